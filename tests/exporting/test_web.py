"""The exported page translates like `repose translate`, in a real browser if one is installed."""

import functools
import json
import re
import shutil
import threading
from collections.abc import Iterator
from dataclasses import replace
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from tests.axes import NAMED

import repose
from repose.data import phrasebook
from repose.data.normalization import normalization_to
from repose.data.scripts import unseen_script
from repose.data.tokenizer import Tokenizer
from repose.decoding.lengths import lengths_of
from repose.decoding.parts import _pieces, _stripped, translate_texts
from repose.decoding.translator import MODEL_KIND, Translator
from repose.exporting import npm, to_web
from repose.model.architecture import Architecture
from repose.model.positions import TablePositions
from repose.model.presets import PRESETS, preset
from repose.saved_model import directory
from repose.saved_model.api import build
from repose.saved_model.description import read_description
from repose.system.errors import CheckpointError, ConfigError, DataError

from .conftest import TINY, Saving, shaken

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
BEAMS = (1, 4)
HARD_TEXTS = [
    "ação 🙂 «niño» 日本",
    "a  b\tc d ",
    "[END] [PAD] [START][UNK] [END",
    "don't  3.14 1234567 İstanbul ΑΣ ΑΣΑ",
    "हिन्दी भाषा, তা",
    "é́ \u200b\u00a0 \ufeff ﬁ ½ Ǆ",
    "مرحبا بالعالم 123 ٤٥٦",
    "m² x³ १२ ½ Ⅻ ⅷ 一 ④",
    "日本𠮷x𪜀y 𬺡z\U0002b820w\U0002ceb0 \U0002f800丽",
    "\u0007 a",
    "Ü ü ż й ㅎㅏ 한글",
    "x" * 120,
]


# Without a browser


@pytest.fixture
def stub_runtime(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages without a network."""
    monkeypatch.setattr(npm, "files_of", lambda package: {name: f"// {name}\n".encode() for name in package.files})


@pytest.mark.usefixtures("stub_runtime")
def test_a_folder_holds_all_that_the_page_asks_for(saving: Saving, tmp_path: Path) -> None:
    of_training = {"max_src_tokens": 20, "decoding": {"length_penalty": None}}
    model = saving("reinforced", {"src_lang": "pt", "tgt_lang": "en", **of_training})
    made = repose.export(model, to="web", out=tmp_path / "out")
    assert set(made.files) == {
        *(
            "index.html",
            "page.css",
            "page.js",
            "translator.js",
            "search.js",
            "parts.js",
            "ort.js",
            "ort.wasm",
            "tokenizers.js",
        ),
        *("model.json", "encoder.onnx", "step.onnx", "tokenizer.src.json", "tokenizer.tgt.json"),
        *("LICENSES.txt", "repose-web.json"),
    }
    assert made.largest_difference is not None
    assert made.largest_difference < 1e-4
    of_model = [size for name, size in made.files.items() if re.search(r"\.onnx$|^model|^tokenizer\.", name)]
    assert (len(of_model), sum(of_model)) == (5, made.parts["model"])
    settings = json.loads((made.folder / "model.json").read_text())
    assert (settings["src_lang"], settings["graphs"]["max_length"]) == ("pt", 48)
    assert settings["decoding"]["length_penalty"] == 0.6
    assert settings["max_src_tokens"] == 20
    page = (made.folder / "index.html").read_text()
    assert "<h1>Portuguese → English</h1>" in page
    assert "{{" not in page


@pytest.mark.usefixtures("stub_runtime")
def test_one_file_holds_everything(saving: Saving, tmp_path: Path) -> None:
    made = repose.export(saving("original"), to="web", out=tmp_path / "out", single_file=True, precision="int8")
    assert "index.html opens in a browser by a double click, and can be emailed" in made.notes
    assert set(made.files) == {"index.html", "LICENSES.txt", "repose-web.json"}
    page = (made.folder / "index.html").read_text()
    names = re.findall(r'data-name="([^"$]+)"', page)
    assert {"encoder.onnx", "step.onnx", "ort.wasm", "ort.js", "translator.js", "search.js", "model.json"} <= set(names)
    assert not re.search(r'(src|href)="(?!data:)', page)
    assert "Microsoft Corporation" in page
    assert read_description(made.folder, "web")["precision"] == "int8"


CUT = {**{f"positions={value}": Architecture(positions=value) for value in NAMED["positions"]}, **repose.presets()}


@pytest.mark.parametrize("architecture", CUT.values(), ids=CUT.keys())
def test_positions_that_are_cut_off_change_nothing_before(architecture: Architecture) -> None:
    model = shaken(build(replace(architecture, **TINY, max_length=40), src_vocab_size=20, tgt_vocab_size=20))
    cut = to_web._shortened(model, 12)
    assert cut.architecture.max_length == 12
    import torch

    ids = torch.randint(4, 20, (3, 12))
    with torch.no_grad():
        assert torch.allclose(cut(ids, ids), model(ids, ids), atol=1e-5)
    assert to_web._shortened(model, 40) is model


def test_positions_that_cannot_be_cut_off_have_no_page(monkeypatch: pytest.MonkeyPatch) -> None:
    """Such as those of a table that does not begin with the first."""
    monkeypatch.setattr(TablePositions, "rows", lambda self, at: self.table.flip(0)[at])
    architecture = replace(preset("original"), **TINY, positions="learned", max_length=40)
    model = shaken(build(architecture, src_vocab_size=20, tgt_vocab_size=20))
    with pytest.raises(ConfigError, match="positions = 'learned' this model computes something else without them"):
        to_web._shortened(model, 12)


@pytest.mark.usefixtures("stub_runtime")
def test_what_a_model_says_of_itself_is_text(saving: Saving, tmp_path: Path) -> None:
    hostile = {"src_lang": "<script>x</script>", "tgt_lang": "{{script}}", "run_id": "{{style}}</footer>"}
    made = repose.export(saving("original", hostile), to="web", out=tmp_path / "out")
    page = (made.folder / "index.html").read_text()
    assert "<h1>&lt;script&gt;x&lt;/script&gt; → {{script}}</h1>" in page
    assert "Model of run {{style}}&lt;/footer&gt;," in page


@pytest.mark.usefixtures("stub_runtime")
def test_a_page_tells_what_its_models_card_warns_of(saving: Saving, tmp_path: Path) -> None:
    model = saving("original", {"validation": {"source_gain": 0.0125}})
    made = repose.export(model, to="web", out=tmp_path / "out")
    assert "The model hardly reads its source (it predicts 0.01 nats" in (made.folder / "index.html").read_text()


@pytest.mark.parametrize("to", ["web", "ctranslate2"])
@pytest.mark.usefixtures("stub_runtime")
def test_settings_that_cannot_be_are_one_sentence(to: str, saving: Saving, tmp_path: Path) -> None:
    if to == "ctranslate2":
        pytest.importorskip("ctranslate2")
    model = saving("original", {"decoding": {"length_penalty": "much"}})
    with pytest.raises(CheckpointError, match="length_penalty of decoding cannot be 'much'"):
        repose.export(model, to=to, out=tmp_path / "out")


@pytest.mark.usefixtures("stub_runtime")
def test_what_looks_ahead_has_no_page(saving: Saving, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="this model cannot translate in a page: its decoder normalises"):
        repose.export(saving("reinforced-lookahead"), to="web", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


# In a browser


@pytest.fixture(scope="module")
def packages(request: pytest.FixtureRequest) -> Iterator[None]:
    """The real ones, kept between runs of the tests."""
    cache = getattr(request.config, "cache", None)
    if cache is None:
        pytest.skip("pytest keeps nothing between runs here (-p no:cacheprovider)")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("REPOSE_HOME", str(cache.mkdir("repose")))
        try:
            npm.files_of(npm.RUNTIME)
            npm.files_of(npm.TOKENIZERS)
        except (ConfigError, DataError) as error:
            pytest.skip(str(error))
        yield


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model directory that knows the demo's words."""
    pairs = phrasebook.read()["train"][:500]
    tokenizers = [Tokenizer.train([pair[side] for pair in pairs], kind="bpe", vocab_size=400) for side in (0, 1)]
    sizes = [tokenizer.vocab_size for tokenizer in tokenizers]
    architecture = replace(preset("reinforced-prefix"), **TINY, max_length=600)
    made = shaken(build(architecture, src_vocab_size=sizes[0], tgt_vocab_size=sizes[1]))
    folder = tmp_path_factory.mktemp("web") / "model"
    extra = {"run_id": "r1", "src_lang": "pt", "tgt_lang": "en", "decoding": {"max_extra_tokens": 2}}
    extra |= {
        "max_src_tokens": 40,
        "split_src_tokens": 38,
        "src_scripts": ["Han", "Latin"],
        "src_normalization": normalization_to(pair[0] for pair in pairs).to_json(),
    }
    directory.save(folder, MODEL_KIND, made, [t.json for t in tokenizers], card="", extra=extra)
    return folder


@pytest.fixture(scope="module")
def translator(model: Path) -> Translator:
    return repose.load(model, workers=1)


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    playwright = pytest.importorskip("playwright.sync_api")
    if CHROMIUM is None:
        pytest.skip("needs chromium")
    with playwright.sync_playwright() as driver:
        arguments = ["--no-sandbox", "--disable-dev-shm-usage"]
        started = driver.chromium.launch(executable_path=CHROMIUM, headless=True, args=arguments)
        yield started
        started.close()


class Page:
    """The page in a browser, loaded; from then on it has no network."""

    def __init__(self, browser: Any, url: str) -> None:
        self.tab, self.errors, self.requests = browser.new_page(), [], 0
        self.tab.on("pageerror", lambda error: self.errors.append(str(error)))
        self.tab.on("console", lambda line: self.errors.append(line.text) if line.type == "error" else None)
        self.tab.goto(url)
        self.tab.locator("#status", has_text="ready").wait_for(timeout=60_000)
        self.tab.context.set_offline(True)
        self.tab.on("request", self._count)

    def _count(self, _: Any) -> None:
        self.requests += 1

    def translate(self, texts: list[str], beam_size: int) -> list[str]:
        script = """async ([texts, beamSize]) => {
            const found = [];
            for (const text of texts) found.push(await repose.translator.translate(text, { beamSize }));
            return found;
        }"""
        return list(self.tab.evaluate(script, [texts, beam_size]))


BROWSER = pytest.mark.browser
IN_BROWSER = [pytest.param("folder", marks=BROWSER), pytest.param("single file", marks=[BROWSER, pytest.mark.slow])]


@pytest.fixture(scope="module", params=IN_BROWSER)
def page(
    request: pytest.FixtureRequest,
    browser: Any,
    packages: None,  # noqa: ARG001
    model: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Page]:
    """The page, from a file server or from disk."""
    out = tmp_path_factory.mktemp("page") / "out"
    repose.export(model, to="web", out=out, single_file=request.param == "single file")
    if request.param == "single file":
        (out / "index.html").rename(out / "moved.html")  # alone
        yield Page(browser, (out / "moved.html").as_uri())
        return

    yield loaded(browser, out)


def loaded(browser: Any, folder: Path) -> Page:
    """The page of a folder, from a file server that has ended since."""

    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), functools.partial(Quiet, directory=folder))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        return Page(browser, f"http://127.0.0.1:{server.server_port}/")
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_the_page_translates_as_the_program_does(page: Page, translator: Translator) -> None:
    texts = [source for source, _ in phrasebook.read()["test"][:100]]
    for beam_size in BEAMS:
        ours = [t.text for t in translator.translate(texts, beam_size=beam_size)]
        assert page.translate(texts, beam_size) == ours
    assert (page.requests, page.errors) == (0, [])


def test_the_page_reads_unusual_characters_as_the_program_does(page: Page, translator: Translator) -> None:
    usual, unusual = "O gato vê a avó - sim.", "O\u00a0ga\u00adto ve\u0302 a avo\u0301 \u2014 sim."
    ours = translator.translate([unusual], beam_size=1)[0].text
    assert page.translate([usual, unusual], 1) == [ours, ours]


def test_somebody_types(page: Page, translator: Translator) -> None:
    one, two, three = (source for source, _ in phrasebook.read()["test"][:3])
    ours = {t.src_tokens: t.text for t in translator.translate([one, two, three], beam_size=1)}
    first, second, third = ours.values()
    page.tab.select_option("#beam", "1")
    page.tab.fill("#src", f"{one}\n\n{two} {three}")
    page.tab.locator("#status", has_text="3 sentences in").wait_for()
    assert page.tab.locator("#tgt").text_content() == f"{first}\n\n{second} {third}"
    assert page.tab.title() == "Portuguese → English"
    assert not page.tab.locator("#tag").is_visible()
    assert (page.requests, page.errors) == (0, [])


def test_white_space_at_the_beginning_of_a_line_stays(page: Page, translator: Translator) -> None:
    one, two = (source for source, _ in phrasebook.read()["test"][:2])
    page.tab.select_option("#beam", "1")
    lines = [f"  {one} ", f"\t{two}", "   ", "😀!😀", "۱۲؟۳"]
    page.tab.fill("#src", "\n".join(lines))
    ours = [t.text for t, _ in translate_texts(translator, lines, beam_size=1)]
    assert ours[-2:] == lines[-2:], "no letters"
    page.tab.wait_for_function("text => document.getElementById('tgt').textContent === text", arg="\n".join(ours))


LONG_TEXTS = [
    "o gato viu o cachorro " * 12,
    "o gato, que dormia na casa; a mesa: um livro – o rio (a ponte) — e o mar, " * 3,
    "  um\u00a0 dois\u2003três quatro\u3000cinco seis\x1fsete\ufeffoito nove " * 3 + "\t",
    "猫は犬を見た、" * 9 + "日本語" * 20 + "🙂" * 9,
    "🙂🇧🇷 " * 12 + "x" * 60,
    "x" * 90,
    "a,b;c:" * 30,
    "o gato de 1,000 anos, às 10:30, viu https://a.com/b?c=d;e,f e o mar,日本 " * 3,
]


def test_long_sentences_are_split_as_the_program_splits_them(page: Page, translator: Translator) -> None:
    texts = [*LONG_TEXTS, *(("o, " * 40)[:length] for length in range(10, 120))]
    page.tab.evaluate("repose.translator.sentences = (line) => [line]")
    several = []
    for to in (None, "pt"):  # a tag is a token of the source
        script = "([texts, to]) => texts.map((text) => [...repose.translator.parts(text, {to: to ?? undefined})])"
        found = page.tab.evaluate(script, [texts, to])
        ours = [list(map(_stripped, _pieces(text, lengths_of(translator, to).stays_whole))) for text in texts]
        assert [[(p["before"], p["text"], p["after"]) for p in parts] for parts in found] == ours
        several.append([len(parts) > 1 for parts in ours])
    page.tab.evaluate("delete repose.translator.sentences")
    assert several[0][: len(LONG_TEXTS)] == [True] * 5 + [False, True, True]
    assert sum(several[1]) > sum(several[0])


def test_what_is_short_is_split_as_the_program_splits_it(page: Page) -> None:
    texts = ["abc;", ";", "a;b", "a b", "a b;", "猫犬", "ab;cd"]
    script = """async ([texts, code]) => {  // a single file has no parts.js beside it
        const { pieces } = await import(URL.createObjectURL(new Blob([code], { type: "text/javascript" })));
        return texts.map((text) => pieces(text, (part) => part.length <= 1));
    }"""
    found = page.tab.evaluate(script, [texts, to_web._shipped("parts.js").decode()])
    assert found == [list(_pieces(text, lambda part: len(part) <= 1)) for text in texts]


def test_somebody_types_what_is_long(page: Page, translator: Translator) -> None:
    lines = [text.strip("\x1f") for text in LONG_TEXTS if "\ufeff" not in text] + ["猫。犬。 O gato."]
    page.tab.select_option("#beam", "1")
    page.tab.fill("#src", "\n".join(lines))
    done = [translation.text for translation, _ in translate_texts(translator, lines, beam_size=1)]
    same = "text => document.getElementById('tgt').textContent === text"
    page.tab.wait_for_function(same, arg="\n".join(done), timeout=120_000)


def test_a_translation_of_before_is_seen_to_be_one(page: Page) -> None:
    """From the first key on."""
    page.tab.fill("#src", "o gato")
    page.tab.wait_for_function("() => document.getElementById('status').textContent.startsWith('1 sentence')")
    looks = """() => {
        const [status, text] = ["status", "tgt"].map((id) => document.getElementById(id));
        return [status.textContent, text.getAttribute("aria-busy"), getComputedStyle(text).opacity < 1];
    }"""
    typed = f"""() => {{
        const source = document.getElementById("src");
        source.value = "a mesa";
        source.dispatchEvent(new Event("input"));
        return ({looks})();  // at once: the translation may be done when the next call comes
    }}"""
    assert page.tab.evaluate(typed) == ["translating …", "true", True]
    page.tab.wait_for_function("() => document.getElementById('status').textContent.startsWith('1 sentence')")
    assert page.tab.evaluate(looks)[1:] == [None, False]
    page.tab.fill("#src", "")
    page.tab.wait_for_function("() => document.getElementById('status').textContent === ''")


def test_an_older_translation_that_ends_is_not_the_newer_ones(page: Page) -> None:
    """While the page waits for the next key."""
    page.tab.evaluate("""() => {
        globalThis.ends = [];  // of each translation that has begun
        repose.translator.translate = (text) => new Promise((next) => ends.push(() => next(text)));
    }""")
    begun = "(number) => ends.length === number"
    page.tab.fill("#src", "o gato")
    page.tab.wait_for_function(begun, arg=1)
    page.tab.fill("#src", "a mesa")
    busy = page.tab.evaluate("""async () => {
        ends[0]();
        await new Promise((next) => setTimeout(next, 50));
        return document.getElementById("tgt").getAttribute("aria-busy");
    }""")
    page.tab.wait_for_function(begun, arg=2)
    page.tab.evaluate("ends[1]()")
    page.tab.locator("#status", has_text="1 sentence in").wait_for()
    page.tab.evaluate("delete repose.translator.translate")
    assert busy == "true"


def test_a_line_is_cut_as_it_is_translated(page: Page) -> None:
    """Not as a whole before its first sentence: a book without line breaks would hold up the page."""
    script = """() => {
        const { translator } = repose, { source } = translator, { encode } = source;
        let times = 0;
        source.encode = (text) => { times += 1; return encode.call(source, text); };
        translator.parts("O gato dorme. ".repeat(2000)).next();
        source.encode = encode;
        return times;
    }"""
    assert page.tab.evaluate(script) == 1


def test_an_address_alone_stays_as_it_is(page: Page) -> None:
    page.tab.select_option("#beam", "1")
    address = "https://example.com/a?b=c\no.gato@example.com\n12"
    page.tab.fill("#src", address)
    page.tab.locator("#status", has_text="3 sentences in").wait_for()
    assert page.tab.locator("#tgt").text_content() == address


def test_what_is_cut_off_is_told(page: Page) -> None:
    page.tab.select_option("#beam", "1")
    page.tab.fill("#src", "O gato. " + "a" * 600)
    page.tab.locator("#status", has_text="; 1 of them longer than the model reads: the rest was cut off").wait_for()
    page.tab.fill("#src", "O gato.")
    page.tab.locator("#status", has_text="1 sentence in").wait_for()
    assert "cut" not in page.tab.inner_text("#status")


def test_text_in_a_script_that_training_hardly_saw_is_told(page: Page) -> None:
    texts = ["o gato", "кот", "кот vê o gato", "кот vê", "猫がいます", "고양이", "123", "ªº µ ー", "γάτα e gato"]
    found = page.tab.evaluate("texts => texts.map(text => repose.translator.isUnseen(text))", texts)
    assert found == [unseen_script(text, {"Han", "Latin"}) is not None for text in texts]
    page.tab.select_option("#beam", "1")
    page.tab.fill("#src", "o gato\nкот")
    page.tab.locator("#status", has_text="; line 2 is in a script that this model's training hardly saw").wait_for()
    page.tab.fill("#src", "o gato")
    page.tab.locator("#status", has_text="1 sentence in").wait_for()
    assert "script" not in page.tab.inner_text("#status")


def test_sentences_are_counted_and_not_their_parts(page: Page) -> None:
    page.tab.select_option("#beam", "1")
    page.tab.fill("#src", "O gato, " * 60 + "dorme. O gato.")
    page.tab.locator("#status", has_text="sentences in").wait_for()
    assert page.tab.inner_text("#status").startswith("2 sentences in ")
    assert page.tab.evaluate("[...repose.translator.parts('O gato, '.repeat(60))].length") > 2
    page.tab.fill("#src", "a" * 600 + ", " + "b" * 600)
    page.tab.locator("#status", has_text="1 sentence in").wait_for()
    assert "; 1 of them longer than the model reads" in page.tab.inner_text("#status")


def test_a_text_that_is_half_translated_is_told_from_a_whole_one(page: Page) -> None:
    page.tab.select_option("#beam", "1")
    page.tab.fill("#src", "O gato.")
    page.tab.locator("#status", has_text="1 sentence in").wait_for()
    said = """() => {
        globalThis.said = [];
        const [status, text] = ["status", "tgt"].map((id) => document.getElementById(id));
        const keep = () => said.push([status.textContent, text.getAttribute("aria-busy"), text.textContent.length]);
        new MutationObserver(keep).observe(text, { childList: true });
    }"""
    page.tab.evaluate(said)
    page.tab.fill("#src", "O gato.\n" * 5)
    page.tab.locator("#status", has_text="5 sentences in").wait_for()
    *before, (_, busy, length) = page.tab.evaluate("said")
    assert {(status, busy) for status, busy, least in before if least < length} == {("translating …", "true")}
    assert page.tab.get_attribute("#tgt", "aria-busy") is None
    assert busy in (None, "true")  # observers hear of it a moment later


@BROWSER
def test_a_folder_that_is_opened_from_disk_says_what_to_do(
    browser: Any,
    packages: None,  # noqa: ARG001
    model: Path,
    tmp_path: Path,
) -> None:
    repose.export(model, to="web", out=tmp_path / "out")
    tab = browser.new_page()
    tab.goto((tmp_path / "out" / "index.html").as_uri())
    tab.locator("#status", has_text="open it through a web server, or export with --single-file").wait_for()
    tab.context.close()
    without = browser.new_context(java_script_enabled=False).new_page()
    without.goto((tmp_path / "out" / "index.html").as_uri())
    assert without.locator("noscript p").is_visible()
    assert not without.locator("#status").is_visible()
    without.context.close()


@pytest.mark.parametrize(("about", "offered"), [({}, ["xx"]), ({"synthetic_tag": "xx"}, [])])
def test_what_tells_synthetic_sources_is_not_offered(about: dict[str, str], offered: list[str], saving: Saving) -> None:
    folder = saving("original", extra={"tag": "xx", **about})
    with repose.load(folder, engine="onnx", workers=1) as translator:
        facts = translator.engine.graphs.facts  # type: ignore[attr-defined]
        assert to_web._settings(translator, facts)["tags"] == offered


@BROWSER
def test_the_other_direction_of_a_model_has_its_own_languages(
    browser: Any,
    packages: None,  # noqa: ARG001
    tmp_path: Path,
) -> None:
    texts = [text for pair in phrasebook.read()["train"][:200] for text in pair]
    src = Tokenizer.train(texts, kind="bpe", vocab_size=300, tags=["en", "pt"])
    tgt = Tokenizer.train(texts, kind="bpe", vocab_size=300)
    architecture = replace(preset("original"), **TINY, max_length=48, tie_embeddings="none")
    made = shaken(build(architecture, src_vocab_size=src.vocab_size, tgt_vocab_size=tgt.vocab_size))
    extra = {"src_lang": "pt", "tgt_lang": "en", "tag": "en"}
    directory.save(tmp_path / "model", MODEL_KIND, made, [src.json, tgt.json], card="", extra=extra)
    repose.export(tmp_path / "model", to="web", out=tmp_path / "out")
    tab = loaded(browser, tmp_path / "out").tab

    def said() -> list[str]:
        names = [tab.inner_text(f"label[for={pane}]") for pane in ("src", "tgt")]
        return [*(tab.get_attribute(f"#{pane}", "lang") for pane in ("src", "tgt")), *names, tab.title()]

    assert said() == ["pt", "en", "Portuguese", "English", "Portuguese → English"]
    tab.select_option("#tag", "pt")
    assert said() == ["en", "pt", "English", "Portuguese", "English → Portuguese"]
    split = "to => repose.translator.direction(to).src_lang"
    assert [tab.evaluate(split, to) for to in ("en", "pt", "constructor")] == ["pt", "en", "pt"]


def test_hypotheses_have_the_scores_of_the_search(page: Page, translator: Translator) -> None:
    text = phrasebook.read()["test"][0][0]
    script = "text => repose.translator.hypotheses(text, { beamSize: 4, numHypotheses: 4 })"
    found = page.tab.evaluate(script, text)
    ours = translator.translate([text], beam_size=4, num_hypotheses=4)[0].hypotheses
    assert [h["text"] for h in found] == [h.text for h in ours]
    assert [h["score"] for h in found] == pytest.approx([h.score for h in ours], abs=1e-3)
    assert [h["normalised"] for h in found] == pytest.approx([h.normalised for h in ours], abs=1e-3)
    assert [h["finished"] for h in found] == [h.finished for h in ours]
    assert page.translate(["", "  ", "\x1c\x85"], 4) == ["", "", ""]
    assert [t.text for t in translator.translate(["\ufeff"], beam_size=1)] == page.translate(["\ufeff"], 1)


def test_an_unknown_tag_is_one_sentence(page: Page) -> None:
    script = "to => repose.translator.translate('O gato.', { to }).catch((error) => error.message)"
    for to in ("zz", "constructor"):
        assert page.tab.evaluate(script, to) == f"this model has no tag {to}: leave it out"
    for argument, said in (
        ("'x', { beamSize: 0 }", "beamSize must be a whole number of at least 1"),
        ("'x', { beamSize: NaN }", "beamSize must be a whole number of at least 1"),
        ("'x', { numHypotheses: '2' }", "numHypotheses must be a whole number of at least 1"),
        ("undefined", "a text must be a string"),
    ):
        asked = f"() => repose.translator.hypotheses({argument}).then(String, (error) => error.message)"
        assert page.tab.evaluate(asked) == said


def test_no_ngram_is_said_twice_where_that_is_asked(page: Page, translator: Translator) -> None:
    texts = [source for source, _ in phrasebook.read()["test"][:8]]
    page.tab.evaluate("repose.translator.settings.decoding.no_repeat_ngram_size = 2")
    for beam_size in BEAMS:
        ours = [t.text for t in translator.translate(texts, beam_size=beam_size, no_repeat_ngram_size=2)]
        assert page.translate(texts, beam_size) == ours
    page.tab.evaluate("repose.translator.settings.decoding.no_repeat_ngram_size = 0")


def test_sentences_are_told_apart_whatever_the_code(page: Page) -> None:
    for code in ("pt", "por-Latn", "und", "<none>", "x"):
        page.tab.evaluate("code => { repose.translator.settings.src_lang = code; }", code)
        for end in ("\u2028", "\x85", " "):
            line = f"O gato{end}vive"
            assert page.tab.evaluate("line => [...repose.translator.sentences(line)]", line) == [line]
        found = page.tab.evaluate("[...repose.translator.sentences('O gato vive. Quem é?  Eu!')]")
        assert found == ["O gato vive. ", "Quem é?  ", "Eu!"]


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece", "wordlevel"])
def test_tokenizers_are_the_same(kind: Any, page: Page) -> None:
    lines = [
        *(source for source, _ in phrasebook.read()["train"][:300]),
        "21 gatos e 345 cães",
        "der Straße ação 日本語 ² ³ ٤ ½ 𠮷x 𪜀 y z w",
    ]
    settings: list[dict[str, Any]] = [{}, {"lowercase": True}, {"strip_accents": True, "lowercase": True}]
    for how in settings + [{"single_digits": True}] * (kind != "wordlevel"):
        made = Tokenizer.train(lines, kind=kind, vocab_size=420, tags=["xx"], **how)
        script = """([spec, texts]) => {
            const tokenizer = new repose.TextTokenizer(repose.Tokenizer, JSON.parse(spec));
            const ids = texts.map((text) => tokenizer.encode(text));
            return [ids, ids.map((row) => tokenizer.decode(row)), tokenizer.tags];
        }"""
        ids, texts, tags = page.tab.evaluate(script, [made.json, HARD_TEXTS])
        assert ids == made.encode_batch(HARD_TEXTS)
        assert texts == [made.decode(row) for row in ids]
        assert tags == made.tags


def test_every_preset_that_translates_has_graphs() -> None:
    assert [name for name, p in PRESETS.items() if to_web.why_not(p.architecture) is not None] == [
        "reinforced-lookahead",
        "reinforced-printed",
    ]
