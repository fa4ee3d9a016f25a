"""The page in a real browser, with a dispatcher that writes in capitals."""

import asyncio
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from stub_server import Shouting, explained, running, served, service, translation

from repose.decoding.translator import Translation
from repose.serving import app
from repose.serving.messages import How

CHROMIUM = shutil.which("chromium")
playwright = pytest.importorskip("playwright.sync_api")
pytestmark = [pytest.mark.browser, pytest.mark.skipif(CHROMIUM is None, reason="needs chromium")]

DECODED = {"greedy": {"bleu": {"value": 20.0}}, "beam4": {"bleu": {"value": 21.25}}}
SCORES = {"split": "test", "num_sentences": 1500, "decoded": DECODED}
ABOUT = {"name": "<b>mine</b>", "preset": "reinforced", "parameters": 1_216_744, "warnings": [], "scores": SCORES}
WARNINGS = ["It looks ahead.", "The model hardly <i>reads</i>."]
CHEAT = {**ABOUT, "name": "cheat", "warnings": WARNINGS, "scores": {"decoded": {}, "warning": "It knows its test set."}}
WIDE, PHONE = {"width": 1280, "height": 900}, {"width": 390, "height": 844}


class Aligned(Shouting):
    """Every word comes from its own place, but for the second head, which looks at the first word; long words are
    unsure. "slow" takes long; the third alternative is the second."""

    async def translate(
        self, how: How, sentences: Sequence[str], num_tokens: Sequence[int], *, num_cut: int = 0
    ) -> list[Translation]:
        if "slow" in sentences[0]:
            await asyncio.sleep(0.4)
        return await super().translate(how, sentences, num_tokens, num_cut=num_cut)

    def answer(self, how: How, sentence: str) -> Translation:
        ranks = range(how.num_hypotheses)
        made = translation(
            *(sentence.upper() + "!" * min(rank, 2) for rank in ranks), scores=[-1.0 - rank for rank in ranks]
        )
        if not how.explain:
            return made
        words = sentence.split()
        n = len(words)
        own = [[0.8 if s == t else 0.2 / max(1, n - 1) for s in range(n)] for t in range(n)]
        first = [[1.0 if s == 0 else 0.0 for s in range(n)] for _ in range(n)]
        log_probs = [-0.1 if len(word) < 8 else -2.5 for word in words]
        return explained(made, words, [[first, first], [own, own]], log_probs=log_probs)


@pytest.fixture(scope="module", autouse=True)
def _soon() -> Iterator[None]:
    """A keystroke is followed by less of a pause."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(app, "FRONTEND_TIMEOUT", 40)
        yield


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    made = service(served("pt", "en", about=ABOUT), served("en", "pt", about=CHEAT), dispatcher=Aligned())
    with running(made) as found:
        yield found


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with playwright.sync_playwright() as p:
        flags = ["--no-sandbox", "--disable-dev-shm-usage"]
        found = p.chromium.launch(executable_path=CHROMIUM, headless=True, args=flags)
        yield found
        found.close()


class Visit:
    """A page, what it has asked for, and what the browser complained of."""

    def __init__(self, page: Any, address: str) -> None:
        self.page, self.address = page, address
        self.asked: list[str] = []
        self.complaints: list[str] = []
        page.on("request", lambda request: self.asked.append(request.url))
        page.on("console", lambda message: self.complaints.append(message.text))
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.set_default_timeout(10_000)

    def open(self, path: str = "/") -> Any:
        self.page.goto(self.address + path)
        self.page.wait_for_function("() => document.querySelectorAll('#source option').length > 1")
        return self.page

    def write(self, text: str) -> Any:
        """Type, and wait for the translation."""
        self.page.fill("#text", text)
        self.page.wait_for_function(
            "want => document.getElementById('translation').textContent === want", arg=text.upper()
        )
        return self.page


Visits = Callable[..., Visit]


@pytest.fixture
def visit(browser: Any, address: str) -> Iterator[Visits]:
    contexts = []

    def visit(to: str = address, **how: Any) -> Visit:
        context = browser.new_context(**{"viewport": WIDE, "color_scheme": "light", **how})
        contexts.append(context)
        return Visit(context.new_page(), to)

    yield visit
    for context in contexts:
        context.close()


def texts(page: Any, selector: str) -> list[str]:
    return list(page.locator(selector).all_inner_texts())


def told(page: Any) -> str:
    """Where a word comes from, in letters that one sees."""
    return str(page.inner_text("#word")).translate(dict.fromkeys(map(ord, "\u2068\u2069")))


def test_it_translates_while_one_types(visit: Visits) -> None:
    one = visit()
    page = one.open()
    assert page.evaluate("document.activeElement.id") == "text"
    one.write("o gato dorme")
    assert page.inner_text("#count") == "12 / 5,000"
    assert page.inner_text("#status") == "O GATO DORME"
    assert texts(page, "#alternatives button") == ["O GATO DORME!\n−2.0", "O GATO DORME!!\n−3.0"]
    assert "has −1.0" in page.inner_text("#own-score")
    page.click("#clear")
    page.wait_for_function("() => document.getElementById('translation').textContent === ''")
    assert page.is_hidden("#others")
    assert page.is_disabled("#copy")


def test_an_older_answer_never_overtakes(visit: Visits) -> None:
    one = visit()
    page = one.open()
    page.fill("#text", "slow one")
    with page.expect_request("**/explain"):
        pass
    one.write("two")
    page.wait_for_timeout(450)
    assert page.inner_text("#translation") == "TWO"


def test_alternatives_can_be_taken(visit: Visits) -> None:
    one = visit()
    page = one.open()
    one.write("o gato")
    page.locator("#alternatives button").first.click()
    assert page.inner_text("#translation") == "O GATO!"
    assert texts(page, "#alternatives button")[0].strip() == "O GATO"
    assert page.locator("#why").is_hidden(), "it explains the best translation"
    page.locator("#alternatives button").first.click()
    assert page.inner_text("#translation") == "O GATO", "and given back"
    assert page.locator("#why").is_visible()
    assert texts(page, "#alternatives button")[0].strip() == "O GATO!"


def test_nothing_is_explained_while_another_text_waits(visit: Visits) -> None:
    """Slowly, the older text's attention would be told of the newer one's translation."""
    one = visit()
    page = one.open()
    one.write("o gato")
    page.click("#why summary")
    page.wait_for_selector("#map table")
    with page.expect_request("**/explain"):
        page.fill("#text", "slow cat")
        assert page.is_hidden("#why")
    page.wait_for_function("() => document.getElementById('translation').textContent === 'SLOW CAT'")
    assert page.is_visible("#why summary")
    assert page.is_hidden("#map")


def test_nothing_is_explained_of_an_alternative_of_before(visit: Visits) -> None:
    """That is taken while another text waits for a server that is away."""
    one = visit()
    page = one.open()
    one.write("o gato")
    page.route("**/explain", lambda route: route.abort())
    page.fill("#text", "dois gatos")
    page.wait_for_selector("#problem:visible")
    for _ in range(2):
        page.locator("#alternatives button").first.click()
    assert page.is_hidden("#why")
    page.unroute("**/explain")
    page.evaluate("dispatchEvent(new Event('online'))")
    page.wait_for_function("() => document.getElementById('translation').textContent === 'DOIS GATOS'")
    assert page.is_hidden("#map")


def test_right_to_left(visit: Visits) -> None:
    """A source word is shaded where it stands, and quoted in an English sentence without turning it around."""
    one = visit()
    page = one.open()
    one.write("رأى القط الكلب اليوم")
    page.hover(".piece >> nth=0")
    shaded, editor = (page.locator(name).bounding_box() for name in ("#shades .shade-4", ".editor"))
    assert shaded["x"] > editor["x"] + editor["width"] / 2, "at the right, where the line begins"
    assert "“\u2068رأى\u2069” (80" in page.inner_text("#word")
    assert page.get_attribute("#alternatives button > span", "dir") == "auto"
    assert page.get_attribute("#alternatives button > span", "lang") == "en"
    assert (page.get_attribute("#status", "lang"), page.get_attribute("#text", "lang")) == ("en", "pt")


def test_a_text_is_whole_after_the_other_tab(visit: Visits) -> None:
    one = visit(viewport={"width": 390, "height": 700})
    page = one.open()
    one.write("o gato viu o rato que fugiu. " * 30)
    page.click("#tab-file")
    page.set_viewport_size({"width": 380, "height": 700})
    page.wait_for_timeout(50)
    page.click("#tab-text")
    assert page.evaluate(
        "() => { const t = document.getElementById('text'); return t.scrollHeight <= t.clientHeight; }"
    )


def test_a_focused_word_is_in_sight(visit: Visits) -> None:
    one = visit(viewport={"width": 360, "height": 640})
    page = one.open()
    one.write("o gato viu o rato que fugiu. " * 12)
    page.focus("#clear")
    page.keyboard.press("Tab")
    for _ in range(12):
        page.keyboard.press("ArrowRight")
        assert page.evaluate(
            """() => {
            const { left, top, width, height } = document.activeElement.getBoundingClientRect();
            return document.elementFromPoint(left + width / 2, top + height / 2) === document.activeElement;
        }"""
        )
    foot, word = (page.locator(f".result > {name}").bounding_box() for name in (".foot", "#word"))
    assert word["y"] + word["height"] <= foot["y"] + 1, "none of it is under the buttons"


def test_models_that_come_and_go_are_seen(visit: Visits) -> None:
    one = visit()
    page = one.open()
    one.write("o gato")
    known = page.request.get(one.address + "/languages").json()
    spanish = [{"code": "es", "name": "Spanish", "targets": ["pt"]}]
    page.route("**/languages", lambda route: route.fulfill(json=[*known, *spanish]))
    page.evaluate("document.dispatchEvent(new Event('visibilitychange'))")
    page.wait_for_function("() => [...document.querySelectorAll('#source option')].some(({value}) => value === 'es')")
    assert (page.input_value("#source"), page.input_value("#target")) == ("pt", "en")
    page.route("**/languages", lambda route: route.fulfill(json=spanish))
    page.route("**/explain", lambda route: route.fulfill(status=400, json={"error": "pt is not available"}))
    page.fill("#text", "dois")
    page.wait_for_function("() => document.getElementById('source').value === 'es'")
    assert page.input_value("#target") == "pt"


def test_a_skip_link_asks_for_nothing(visit: Visits) -> None:
    one = visit()
    page = one.open()
    one.write("o gato")
    page.locator("#alternatives button").first.click()
    page.focus(".skip")
    page.keyboard.press("Enter")
    page.wait_for_timeout(200)
    assert page.inner_text("#translation") == "O GATO!"


def test_swapping_says_why_it_cannot(visit: Visits) -> None:
    page = visit().open()
    page.select_option("#source", "auto")
    page.click("#tab-file")
    page.click("#swap")
    assert page.inner_text("#note:visible") == "Choose the language to translate from first."
    page.select_option("#source", "pt")
    assert page.is_hidden("#note")


def test_a_shared_text_is_left_by_swapping_and_by_typing(visit: Visits) -> None:
    one = visit()
    page = one.open()
    one.write("o gato")
    page.click("#share")
    page.wait_for_function("() => location.hash.length > 1")
    page.click("#swap")
    assert page.url == one.address + "/"
    other = visit()
    page = other.open("/?source=pt&target=en&q=bom+dia")
    page.wait_for_function("() => document.getElementById('translation').textContent === 'BOM DIA'")
    other.write("o rato")
    assert page.url == other.address + "/"


def test_the_theme_is_there_before_anything_is_drawn_and_focus_stays(visit: Visits) -> None:
    one = visit(color_scheme="dark")
    held: list[Any] = []
    one.page.route("**/models", lambda route: held.append(route))
    one.page.goto(one.address)
    assert one.page.evaluate("document.documentElement.dataset.theme") == "dark"
    one.page.focus("#theme")
    held[0].continue_()
    one.page.wait_for_function("() => document.querySelectorAll('#source option').length > 1")
    assert one.page.evaluate("document.activeElement.id") == "theme"


def test_swapping_keeps_what_is_not_translated_yet(visit: Visits) -> None:
    page = visit().open()
    page.fill("#text", "um")
    page.wait_for_function("() => document.getElementById('translation').textContent === 'UM'")
    page.evaluate("() => { document.getElementById('text').value = 'dois'; document.getElementById('swap').click(); }")
    assert page.input_value("#text") == "dois"


def test_a_browser_that_keeps_nothing(visit: Visits) -> None:
    one = visit()
    one.page.add_init_script(
        "Object.defineProperty(window, 'localStorage', { get() { throw new DOMException('no', 'SecurityError'); } })"
    )
    page = one.open()
    one.write("o gato")
    for wanted in ("dark", "light"):
        page.click("#theme")
        assert page.evaluate("document.documentElement.dataset.theme") == wanted
    assert one.complaints == []


def test_after_a_refusal_nothing_is_left_to_copy(visit: Visits) -> None:
    one = visit()
    page = one.open()
    one.write("um gato")
    page.route("**/explain", lambda route: route.fulfill(status=500, body='{"error": "It is ill"}'))
    page.fill("#text", "dois")
    page.wait_for_function("() => document.getElementById('problem').textContent === 'It is ill'")
    assert page.inner_text("#translation") == ""
    assert page.is_disabled("#copy")
    assert page.is_disabled("#share")


def test_words_tell_where_they_come_from(visit: Visits) -> None:
    one = visit()
    page = one.open()
    one.write("o gato dorme\nsossegadamente")
    page.hover(".piece >> nth=1")
    assert told(page) == "“GATO” from “gato” (80\u00a0%); probability 90\u00a0%"
    assert texts(page, "#shades .shade-4") == ["gato"]
    page.hover("h1")
    assert page.inner_text("#word") == ""
    page.focus("#text")
    page.keyboard.press("Tab")  # to the button that clears, and on to the first word
    page.keyboard.press("Tab")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.textContent") == "DORME"
    page.keyboard.press("End")
    assert "“sossegadamente” (100\u00a0%); probability 8\u00a0%" in told(page)
    assert texts(page, ".very-unsure:not(#legend span)") == ["SOSSEGADAMENTE"]
    assert page.is_visible("#legend")


def test_letters_beyond_the_first_plane_shift_nothing(visit: Visits) -> None:
    one = visit()
    page = one.open()
    one.write("😀😀 gato")
    page.hover(".piece >> nth=1")
    assert texts(page, "#shades .shade-4") == ["gato"]
    assert page.inner_text("#count").startswith("7 /")


def test_all_heads(visit: Visits) -> None:
    one = visit()
    page = one.open()
    one.write("o gato dorme")
    page.click("#why summary")
    page.wait_for_selector("#map table")
    assert texts(page, "#heads .layer > span") == ["Layer 1", "Layer 2"]
    assert texts(page, "#map thead th") == ["o", "gato", "dorme"]
    assert texts(page, "#map tbody th") == ["O", "GATO", "DORME"]
    assert texts(page, "#map tbody tr >> nth=1 >> td") == ["10", "80", "10"]
    page.click("[aria-label='Layer 1, head 1']")
    assert page.inner_text("#map caption") == "Layer 1, head 1"
    assert texts(page, "#map tbody tr >> nth=1 >> td") == ["100", "", ""]


def test_nothing_comes_from_elsewhere_and_nothing_is_complained_of(visit: Visits) -> None:
    one = visit()
    page = one.open()
    one.write("o gato")
    page.click("#why summary")
    page.wait_for_selector("#map table")
    page.click("#theme")
    assert one.complaints == []
    assert all(url.startswith(one.address + "/") for url in one.asked)
    assert "gato" not in page.url + "".join(one.asked)
    policy = page.request.get(one.address + "/").headers["content-security-policy"]
    assert "default-src 'self'" in policy
    assert "unsafe" not in policy


def test_markup_in_texts_and_names_is_text(visit: Visits) -> None:
    one = visit()
    page = one.open()
    hostile = "<img src=x onerror=alert(1)> <script>alert(2)</script>\u202e \u0000".replace("\u0000", "")
    one.write(hostile)
    page.hover(".piece >> nth=0")
    page.click("#why summary")
    page.wait_for_selector("#map table")
    assert page.locator("#panel-text img, #panel-text script, #model b").count() == 0
    assert "<b>mine</b>" in page.inner_text("#model")
    assert one.complaints == []


def test_it_says_which_model_answers_and_its_score(visit: Visits) -> None:
    page = visit().open()
    wanted = "Model: <b>mine</b> · reinforced · 1.2 M parameters · BLEU 21.3 on 1,500 test sentences (beam 4)"
    assert page.inner_text("#model") == wanted
    page.fill("#text", "o gato")
    page.click("#swap")
    assert page.input_value("#source") == "en"
    assert "not evaluated" in page.inner_text("#model")
    warnings = [strong.inner_text().strip() for strong in page.locator("#model strong").all()]
    assert warnings == ["It knows its test set.", *WARNINGS]


def test_a_text_is_in_the_address_only_when_shared(visit: Visits) -> None:
    one = visit(permissions=["clipboard-read", "clipboard-write"])
    page = one.open()
    one.write("o gato & eu")
    assert page.url == one.address + "/"
    page.click("#copy")
    assert page.evaluate("navigator.clipboard.readText()") == "O GATO & EU"
    page.click("#share")
    page.wait_for_function("() => location.hash.length > 1")
    other = visit()
    other.page.goto(page.url)
    other.page.wait_for_function("() => document.getElementById('translation').textContent === 'O GATO & EU'")
    assert not any("gato" in url for url in other.asked[1:])


def test_an_address_that_was_shared_is_left_with_its_text(visit: Visits) -> None:
    one = visit()
    page = one.open()
    one.write("o gato")
    page.click("#share")
    page.wait_for_function("() => location.hash.length > 1")
    one.write("bom dia")
    assert page.url == one.address + "/"


def test_a_shared_address_is_read_in_a_tab_that_shows_the_page(visit: Visits) -> None:
    one = visit()
    page = one.open()
    one.write("o gato")
    page.evaluate("location.hash = new URLSearchParams({source: 'en', target: 'pt', q: 'two cats'})")
    page.wait_for_function("() => document.getElementById('translation').textContent === 'TWO CATS'")
    assert (page.input_value("#source"), page.input_value("#target")) == ("en", "pt")


def test_a_server_that_gives_fewer_alternatives_is_asked_for_no_more(visit: Visits) -> None:
    for limit, number in ((0, 0), (1, 1), (-1, 2)):
        with running(service(dispatcher=Aligned(), limits={"alternatives_limit": limit})) as address:
            one = visit(address)
            one.open()
            one.write("o gato")
            assert one.page.locator("#alternatives button").count() == number
            assert one.page.is_hidden("#others") == (not number)


def test_what_has_no_words_is_in_no_language(visit: Visits) -> None:
    one = visit()
    page = one.open()
    page.select_option("#source", "auto")
    one.write("o gato dorme na casa e o cachorro também dorme")
    assert page.inner_text("#detected").startswith("Detected: Portuguese (")
    one.write("123")
    assert page.inner_text("#detected") == ""


def test_heads_that_nobody_waits_for_are_no_longer_asked_for(visit: Visits) -> None:
    one = visit()
    page = one.open()
    one.write("o gato")
    page.route("**/explain", lambda route: route.continue_() if "heads" in route.request.post_data else None)
    with page.expect_event("requestfailed") as failed:
        page.click("#why summary")
        page.fill("#text", "dois gatos")
    assert "heads" not in failed.value.post_data
    page.wait_for_function("() => document.getElementById('translation').textContent === 'DOIS GATOS'")


def test_files(visit: Visits) -> None:
    page = visit().open()
    page.click("#tab-file")
    assert page.is_hidden("#panel-text")
    page.set_input_files("#file", {"name": "a.exe", "mimeType": "text/plain", "buffer": b"x"})
    assert page.is_disabled("#file-send")
    page.set_input_files("#file", {"name": "a.txt", "mimeType": "text/plain", "buffer": b"o gato\n"})
    page.click("#file-send")
    with page.expect_download() as download:
        page.click("#file-result a")
    assert download.value.suggested_filename == "a.en.txt"
    assert download.value.path().read_bytes() == b"O GATO\n"
    assert page.inner_text("#file-result") == "Done: Download a.en.txt"
    page.set_input_files("#file", {"name": "slow.txt", "mimeType": "text/plain", "buffer": b"slow\n"})
    page.click("#file-send")
    page.set_input_files("#file", {"name": "a.exe", "mimeType": "text/plain", "buffer": b"x"})
    assert page.inner_text("#file-result") == "Translating slow.txt …"
    page.wait_for_function("() => document.getElementById('file-result').textContent.startsWith('Done')")
    assert page.inner_text("#file-result a") == "Download slow.en.txt"
    assert page.is_disabled("#file-send")
    russian = "Кошка спит на диване, а собака гуляет.\n".encode()
    page.set_input_files("#file", {"name": "b.txt", "mimeType": "text/plain", "buffer": russian})
    page.click("#file-send")
    page.wait_for_function("() => document.getElementById('file-result').textContent.includes('b.en.txt (')")
    assert page.inner_text("#file-result").endswith(")")
    page.focus("#tab-file")
    page.keyboard.press("ArrowLeft")
    assert page.is_visible("#panel-text")


def test_refusals_are_told_and_asked_again(visit: Visits) -> None:
    with running(service(dispatcher=Aligned(), limits={"req_limit": 1, "char_limit": 20})) as address:
        page = visit(address).open()
        page.fill("#text", "um gato")
        page.wait_for_function("() => document.getElementById('translation').textContent === 'UM GATO'")
        page.fill("#text", "dois gatos")
        page.wait_for_selector("#problem:visible")
        assert re.fullmatch(r"Slowdown.*: trying again in \d+(\.\d+)? s", page.inner_text("#problem"))
        page.fill("#text", "a" * 21)
        page.wait_for_function("() => document.getElementById('problem').textContent.includes('20 characters')")
        assert "over" in page.get_attribute("#count", "class")


def test_the_limits_of_a_server_that_was_started_anew_are_learnt(visit: Visits) -> None:
    with running(service(dispatcher=Aligned(), limits={"char_limit": 20})) as address:
        page = visit(address).open()
        limit = page.evaluate("() => document.getElementById('count').textContent")
        assert "20" in limit
    port = int(address.rpartition(":")[2])
    with running(service(dispatcher=Aligned(), limits={"alternatives_limit": 0, "char_limit": 30}), port) as address:
        page.fill("#text", "um gato")
        page.wait_for_function("() => document.getElementById('translation').textContent === 'UM GATO'")
        assert page.locator("#problem").is_hidden()


def test_what_is_refused_for_long_is_not_asked_again(visit: Visits) -> None:
    with running(service(dispatcher=Aligned(), limits={"hourly_req_limit": 1})) as address:
        page = visit(address).open()
        page.fill("#text", "um gato")
        page.wait_for_function("() => document.getElementById('translation').textContent === 'UM GATO'")
        page.fill("#text", "dois gatos")
        page.wait_for_selector("#problem:visible")
        assert page.inner_text("#problem").startswith("Slowdown")
        assert "trying again" not in page.inner_text("#problem")


def test_a_server_that_is_away_for_a_moment_is_asked_again(visit: Visits) -> None:
    one = visit()
    page = one.open()
    one.write("um gato")
    page.route("**/explain", lambda route: route.abort())
    page.fill("#text", "dois gatos")
    page.wait_for_selector("#problem:visible")
    assert page.inner_text("#problem") == "The server cannot be reached: trying again in 5 s"
    assert page.text_content("#translation") == "UM GATO"
    assert page.get_attribute("#translation", "aria-busy") == "true"
    page.unroute("**/explain")
    page.wait_for_function("() => document.getElementById('translation').textContent === 'DOIS GATOS'")
    assert page.locator("#problem").is_hidden()
    assert page.get_attribute("#translation", "aria-busy") == "false"


def test_a_server_that_is_back_is_asked_at_once(visit: Visits) -> None:
    """By whoever looks at the page again; and until then, more and more seldom."""
    one = visit()
    page = one.open()
    one.write("um gato")
    page.clock.install()
    page.route("**/explain", lambda route: route.abort())
    page.fill("#text", "dois gatos")
    for seconds in (5, 10, 20, 40, 60, 60):
        page.clock.run_for(1000)
        page.wait_for_function(f"() => document.getElementById('problem').textContent.endsWith('again in {seconds} s')")
        page.clock.run_for(1000 * (seconds - 1))
    assert page.text_content("#translation") == "UM GATO"
    page.unroute("**/explain")
    page.evaluate("dispatchEvent(new Event('online'))")
    page.clock.run_for(10)
    page.wait_for_function("() => document.getElementById('translation').textContent === 'DOIS GATOS'")


def test_the_translation_of_an_earlier_text_is_not_copied(visit: Visits) -> None:
    one = visit()
    page = one.open()
    one.write("um gato")
    assert page.is_enabled("#copy")
    page.evaluate("""() => {
        const text = document.getElementById("text");
        text.value = "dois gatos";
        text.dispatchEvent(new Event("input"));
        globalThis.then = ["copy", "share"].map((id) => document.getElementById(id).disabled);
    }""")
    assert page.evaluate("then") == [True, True]
    page.wait_for_function("() => !document.getElementById('copy').disabled")
    assert page.text_content("#translation") == "DOIS GATOS"


def test_no_attention_of_before_stands_beside_what_failed(visit: Visits) -> None:
    one = visit()
    page = one.open()
    one.write("o gato. o rato")
    page.click("#why summary")
    page.wait_for_selector("#map table")
    assert page.locator("#heads button").count() > 0
    one.write("dois gatos")
    page.route("**/explain", lambda route: route.abort())
    page.click("#why summary")
    page.wait_for_function("() => document.getElementById('map').textContent === 'The server cannot be reached.'")
    assert page.locator("#heads button").count() == 0
    assert page.locator("#why-sentence").is_hidden()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_themes_have_contrast(visit: Visits, scheme: str) -> None:
    one = visit(color_scheme=scheme)
    page = one.open()
    one.write("o gato sossegadamente")
    page.hover(".piece >> nth=1")
    page.click("#why summary")
    page.wait_for_selector("#map table")
    page.hover(".piece >> nth=1")
    assert page.evaluate("document.documentElement.dataset.theme") == scheme
    assert page.evaluate(CONTRASTS) == []
    page.click("#theme")
    page.reload()
    other = {"light": "dark", "dark": "light"}[scheme]
    assert page.evaluate("document.documentElement.dataset.theme") == other


@pytest.mark.parametrize("width", [PHONE["width"], 320])
def test_a_phone_shows_one_pane_over_the_other(visit: Visits, width: int) -> None:
    one = visit(viewport={**PHONE, "width": width}, has_touch=True)
    page = one.open()
    one.write("o gato dorme " * 20 + "Donaudampfschiffahrtsgesellschaftskapitänsmützenabzeichenverleihung")
    page.tap(".piece >> nth=1")
    assert "“GATO” from" in told(page)
    page.click("#why summary")
    page.wait_for_selector("#map table")
    assert page.evaluate("document.scrollingElement.scrollWidth <= innerWidth")
    source, result = (page.locator(selector).bounding_box() for selector in (".pane >> nth=0", ".pane >> nth=1"))
    assert result["y"] >= source["y"] + source["height"]
    for button in ("#swap", "#source", "#target"):
        assert page.locator(button).bounding_box()["height"] >= 36
    page.evaluate("document.getElementById('legend').hidden = false")
    copy, share = (page.locator(button).bounding_box() for button in ("#copy", "#share"))
    assert copy["y"] == share["y"], "beside each other, even if some words are unsure"


def test_where_a_word_comes_from_is_in_sight_in_a_long_text(visit: Visits) -> None:
    one = visit(viewport={"width": 390, "height": 700})
    page = one.open()
    one.write("o gato viu o rato que fugiu. " * 30)
    page.locator("#translation .piece").first.click()
    assert page.text_content("#word")
    box = page.locator("#word").bounding_box()
    assert 0 <= box["y"] <= 700 - box["height"]


def test_a_pane_is_as_high_as_its_text(visit: Visits) -> None:
    one = visit(viewport={"width": 390, "height": 700})
    page = one.open()
    low = page.locator("#text").bounding_box()["height"]
    one.write("o gato viu o rato que fugiu. " * 30)
    assert page.locator("#text").bounding_box()["height"] > 2 * low
    one.write("o gato")
    assert page.locator("#text").bounding_box()["height"] == low


def test_something_is_said_while_the_page_waits(visit: Visits) -> None:
    page = visit().page
    page.route("**/frontend/settings", lambda _: None)
    page.goto(visit().address)
    said = "getComputedStyle(document.getElementById('translation'), '::before').content"
    assert page.evaluate(said) == '"One moment …"'
    page.unroute_all(behavior="ignoreErrors")


def test_everything_has_a_name_and_a_place_in_the_order(visit: Visits) -> None:
    one = visit()
    page = one.open()
    one.write("o gato")
    assert page.evaluate(NAMELESS) == []
    page.focus(".skip")
    order = []
    for _ in range(13):
        page.keyboard.press("Tab")
        order.append(page.evaluate("document.activeElement.id || document.activeElement.classList[0]"))
    wanted = ["tab-text", "theme", "source", "swap", "target", "panel", "text", "clear", "piece", "copy", "share"]
    assert [one for one in order if one in wanted][:10] == [one for one in wanted if one != "panel"]
    for selector, role in (("#problem", "alert"), ("#status", "status"), ("#translation", "group")):
        assert page.get_attribute(selector, "role") == role


NAMELESS = """() => [...document.querySelectorAll('button, select, textarea, input, a, summary')]
  .filter((one) => !(one.getAttribute('aria-label') || one.textContent.trim() && one.tagName !== 'SELECT'
    && one.tagName !== 'TEXTAREA' || one.labels?.length))
  .map((one) => one.outerHTML.slice(0, 80))"""

CONTRASTS = """() => {
  const canvas = new OffscreenCanvas(1, 1).getContext('2d', {willReadFrequently: true});
  const over = (layers) => {
    canvas.clearRect(0, 0, 1, 1);
    for (const colour of layers) { canvas.fillStyle = colour; canvas.fillRect(0, 0, 1, 1); }
    return [...canvas.getImageData(0, 0, 1, 1).data].slice(0, 3);
  };
  const light = (rgb) => rgb.map((c) => c / 255)
    .map((c) => c <= .03928 ? c / 12.92 : ((c + .055) / 1.055) ** 2.4)
    .reduce((sum, c, i) => sum + c * [.2126, .7152, .0722][i], 0);
  const bad = [];
  for (const one of document.querySelectorAll('body *')) {
    const written = [...one.childNodes].some((node) => node.nodeType === 3 && node.textContent.trim());
    const style = getComputedStyle(one);
    const unseen = !one.checkVisibility() || one.closest('#shades, .unseen, option, noscript');
    if (!written || unseen || one.disabled) continue;
    const layers = [];
    for (let up = one; up; up = up.parentElement) layers.unshift(getComputedStyle(up).backgroundColor);
    const [a, b] = [light(over([...layers, style.color])), light(over(layers))].sort((x, y) => y - x);
    const contrast = (a + .05) / (b + .05);
    if (contrast < 4.5) bad.push(`${one.tagName}#${one.id}.${one.className} ${contrast.toFixed(2)}`);
  }
  return [...new Set(bad)];
}"""
