"""The page: self-contained, safe with any text, and accessible to people who cannot see it."""

import base64
import dataclasses
import hashlib
import re
import sys
import tomllib
from collections import Counter
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import repose
from repose.report import page as page_module
from repose.report.content import Cell, Column, Report, Section, Table
from repose.report.page import differences, write_page
from repose.system.errors import ConfigError

VOID = {"meta", "link", "br", "img", "source"}


class Page(HTMLParser):
    """The elements of a page, each with its attributes and its text, in their order; all must be closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None], list[str]]] = []
        self.open: list[tuple[str, dict[str, str | None], list[str]]] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        element = (tag, dict(attrs), list[str]())
        self.elements.append(element)
        if tag not in VOID:
            self.open.append(element)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        for _, _, texts in self.open:
            texts.append(data)

    def all(self, *tags: str) -> list[tuple[dict[str, str | None], str]]:
        """Attributes and text of all elements of these kinds."""
        return [(attributes, "".join(texts)) for tag, attributes, texts in self.elements if tag in tags]


@pytest.fixture
def page(sample: Report) -> Page:
    return Page(write_page(sample))


def test_nothing_is_fetched(page: Page) -> None:
    for tag, attributes, _ in page.elements:
        for name in ("src", "href", "srcset", "action", "data"):
            assert re.match(r"#|data:", attributes.get(name) or "#"), f"{name} of {tag}"
        assert all(
            re.match(r"url\(#", part) for value in attributes.values() for part in re.findall(r"url\(.?", value or "")
        )
    assert not re.search(r"url\(|@import", "".join(text for _, text in page.all("style")))
    (policy,) = [a["content"] or "" for a, _ in page.all("meta") if "http-equiv" in a]
    assert policy.startswith("default-src 'none'; img-src data:;")


def test_the_one_script_is_the_one_that_may_run(page: Page) -> None:
    ((_, script),) = page.all("script")
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert any(f"script-src 'sha256-{digest}'" in (a.get("content") or "") for a, _ in page.all("meta"))


def test_text_is_text(page: Page) -> None:
    assert "<script>document.title = 'taken over'</script>" in [text for _, text in page.all("dd")]
    assert [text for _, text in page.all("title")] == ["A report & more"]
    assert "one <run> & no morea" in [text for _, text in page.all("th")]
    assert [(a["role"], a["aria-label"]) for a, _ in page.all("svg")] == [("img", 'Losses fall, from "high" to low.')]


def test_what_is_between_backticks_is_code(sample: Report) -> None:
    page = Page(write_page(dataclasses.replace(sample, warnings=("Run `repose <x>`, not ` alone.",))))
    assert [text for _, text in page.all("code")] == ["repose <x>"]
    assert page.all("aside")[0][1].strip() == "Warning. Run repose <x>, not ` alone."


def test_links_lead_to_one_place_each(page: Page) -> None:
    names = Counter(a["id"] for _, a, _ in page.elements if "id" in a)
    assert set(names.values()) == {1}
    wanted = {(a["href"] or "").removeprefix("#") for a, _ in page.all("a")}
    wanted |= {name for _, a, _ in page.elements for name in (a.get("aria-labelledby") or "").split()}
    assert wanted <= set(names)
    assert {"table-scores", "picture-curves", "sentences-a", "sentences-a-2", "section-epochs"} <= wanted


def test_ids_that_look_numbered_lead_to_one_place_each() -> None:
    names = ("demo-2", "demo", "demo", "demo 2")
    tables = tuple(Table(id=name, title=name, columns=[Column("a")], rows=[]) for name in names)
    found = Page(write_page(Report(title="a", subtitle="", warnings=(), sections=(Section(title="b", tables=tables),))))
    anchors = [a["id"] or "" for _, a, _ in found.elements if "id" in a]
    assert {"table-demo", "table-demo-2", "table-demo-3", "table-demo-2-2"} <= set(anchors)
    assert len(set(anchors)) == len(anchors)


def test_pictures_have_ids_of_their_own_and_fit(sample: Report) -> None:
    section = sample.sections[1]
    other = dataclasses.replace(section.pictures[0], id="other")
    section = dataclasses.replace(section, pictures=(*section.pictures, other))
    page = Page(write_page(dataclasses.replace(sample, sections=(section,))))
    ids = [a["id"] for a, _ in page.all("path")]
    assert ids == ["picture-curves-p", "picture-other-p"]
    assert [(a["xlink:href"] or "").removeprefix("#") for a, _ in page.all("use")] == ids
    (first, _), _ = page.all("svg")
    assert "max-width: 480px" in (first["style"] or "")  # 360 points
    assert "width" not in first


def test_headings_heads_and_warnings(page: Page) -> None:
    levels = [int(tag[1]) for tag, _, _ in page.elements if re.fullmatch("h[1-6]", tag)]
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    scopes = Counter(a["scope"] for a, _ in page.all("th"))
    assert scopes == {"col": 14 + 2, "row": 4 + 1}  # a table without rows has no head either
    warnings = [text for _, text in page.all("aside")]
    assert len(warnings) == 2
    assert "reinforced-lookahead looks ahead." in warnings[0]
    assert "One." in warnings[1]
    assert "Two." in warnings[1]
    ((_, contents),) = page.all("nav")
    assert re.search(r"Scores\s+warning", contents)


def test_languages_are_named(page: Page) -> None:
    found = [(a.get("lang"), text[:6]) for a, text in page.all("dd")]
    assert found[0] == ("ja", "赤い帽子の女")
    assert {lang for lang, _ in found[1:4]} == {"en"}
    assert [lang for lang, _ in found[4:]] == [None, "zh", "zh", "zh"]  # "und" is no language
    assert "(empty" in found[-1][1] + page.all("dd")[-1][1]


def test_unknown_languages_are_not_named_as_a_pair(page: Page) -> None:
    ((_, contents),) = page.all("nav")
    assert "und" not in contents.split()
    assert contents.count("baseline and reinforced, ja → en") == 1


def test_marks_lead_to_notes_and_the_first_mark_is_led_back_to(page: Page) -> None:
    marks = [a for a, text in page.all("a") if "-note-" in (a["href"] or "") and text in "abc"]
    assert Counter(a["href"] for a in marks) == {"#table-scores-note-a": 4, "#table-scores-note-b": 2}
    assert [a["id"] for a in marks if "id" in a] == ["table-scores-mark-a", "table-scores-mark-b"]
    notes = {a["id"]: text for a, text in page.all("li") if "-note-" in (a.get("id") or "")}
    assert notes["table-scores-note-b"] == "bThis model looks ahead."
    assert notes["table-scores-note-c"] == "A note without a mark."


def page_of(columns: list[Column], rows: list[list[Cell]]) -> Page:
    table = Table(id="t", title="", columns=columns, rows=rows)
    section = Section(title="s", tables=(table,))
    return Page(write_page(Report(title="", subtitle="", warnings=(), sections=(section,))))


def test_figures_stand_below_figures() -> None:
    page = page_of([Column("x")], [[Cell("-34.2 ± 0.3", notes=("Why.",))], [Cell("5")], [Cell("–")]])
    spans = {kind: [(a, text) for a, text in page.all("span") if a.get("class") == kind] for kind in ("figure", "tail")}
    assert [text for _, text in spans["figure"]] == ["−34.2", "5", "–"]
    assert [text for _, text in spans["tail"]] == [" ± 0.3a", "", ""]
    # space, sign, space, 0, point, 3; and the mark: as many digits wide in all rows
    assert {a["style"] for a, _ in spans["tail"]} == {f"min-width:{0.5 + 1 + 0.5 + 1 + 0.5 + 1 + 1.0}ch"}


def test_words_are_never_taken_for_numbers() -> None:
    names = ["a ± b", "-x"]
    page = page_of([Column("x", numeric=False)], [[Cell(name)] for name in names])
    assert [text for a, text in page.all("th") if a["scope"] == "row"] == names


def test_names_do_not_break_at_their_hyphens() -> None:
    names = ["scaled-reinforced-lookahead", "a name of more words than anyone gives a system"]
    heads = [Column("system", numeric=False), Column("against", numeric=False)]
    page = page_of(heads, [[Cell(name), Cell(name)] for name in names])
    for cells in (page.all("td"), [(a, text) for a, text in page.all("th") if a["scope"] == "row"]):
        assert [a.get("class") for a, _ in cells] == ["short", None]
    ((_, style),) = page.all("style")
    assert ".number, .short { white-space: nowrap; }" in style
    assert "tr > :first-child:not(.short) { max-width: 38vw; }" in style  # on a phone, or the name would stick out


def test_blocks_of_rows_are_set_apart() -> None:
    rows = [[Cell(corpus), Cell(system)] for corpus in "xy" for system in "ab"]
    heads = [Column("corpus", numeric=False), Column("system", numeric=False)]
    apart = [a.get("class") == "apart" for a, _ in page_of(heads, rows).all("tr")]
    assert apart == [False, False, False, True, False]  # the first is the head
    assert not any(a.get("class") for a, _ in page_of(heads, rows[::2]).all("tr"))


# What only one of two texts has is in brackets.
DIFFERENCES = {
    "words": ("Two [dogs run].", "Two [cats sit]."),
    "a word": ("Two dogs [run].", "Two [big] dogs."),
    "words and spaces": ("a [small red] hat", "a hat"),
    "with signs": ("it's [well-made], no?", "it's [3.5], no?"),
    "Japanese": ("赤い[帽]子", "赤い[椅]子"),
    "Chinese": ("一[个]人", "一[名]人"),
    "Korean, by words": ("[나는] 간다", "[나도] 간다"),
    "Hindi, by words": ("[हिन्दी] है", "[हिन्दू] है"),
    "nothing": ("[all]", ""),
    "equal": ("the same", "the same"),
}


@pytest.mark.parametrize(("one", "other"), DIFFERENCES.values(), ids=DIFFERENCES.keys())
def test_what_differs_is_marked(one: str, other: str) -> None:
    plain = [re.sub(r"[\[\]]", "", text) for text in (one, other)]
    marked = ["".join(f"[{text}]" if differs else text for text, differs in p) for p in differences(*plain)]
    assert marked == [one, other]


@given(st.text(max_size=30), st.text(max_size=30))
def test_no_letter_is_lost(one: str, other: str) -> None:
    pieces = differences(one, other)
    assert ["".join(text for text, _ in found) for found in pieces] == [one, other]
    assert not any(differs for found in differences(one, one) for _, differs in found)


def luminance(colour: str) -> float:
    """WCAG 2's relative luminance of #rrggbb."""
    parts = [int(colour[index : index + 2], 16) / 255 for index in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


@pytest.mark.parametrize("scheme", [0, 1], ids=["light", "dark"])
def test_letters_can_be_read(scheme: int, page: Page) -> None:
    ((_, style),) = page.all("style")
    colours = dict(re.findall(r"--([\w-]+): (#\w{6});", style.split(":root {")[1 + scheme]))
    on = {name: ("paper", "caution-paper", "mark") if name == "ink" else ("paper",) for name in ("ink", "dim", "link")}
    on["caution"] = ("paper", "caution-paper")
    for letters, papers in on.items():
        for paper in papers:
            low, high = sorted((luminance(colours[letters]), luminance(colours[paper])))
            assert (high + 0.05) / (low + 0.05) >= 4.5, f"{letters} on {paper}"


def test_a_title_is_not_said_twice(sample: Report) -> None:
    table = dataclasses.replace(sample.sections[0].tables[0], title="Scores")
    page = Page(write_page(dataclasses.replace(sample, sections=(Section(title="Scores", tables=(table,)),))))
    ((_, contents),) = page.all("nav")
    assert contents.split() == ["Contents", "Scores"]
    assert [a.get("class") for a, text in page.all("strong") if text == "Scores"] == ["unseen"]  # but read aloud


def test_the_same_report_is_the_same_page(sample: Report) -> None:
    assert write_page(sample) == write_page(sample)


def test_an_empty_report_is_a_page() -> None:
    assert Page(write_page(Report(title="t", subtitle="", warnings=(), sections=()))).all("h1")[0][1] == "t"


def test_without_jinja2_one_sentence(sample: Report, monkeypatch: pytest.MonkeyPatch) -> None:
    page_module._template.cache_clear()
    monkeypatch.setitem(sys.modules, "jinja2", None)
    with pytest.raises(ConfigError, match=r"pip install 'repose-nmt\[report\]'"):
        write_page(sample)


def test_the_page_is_shipped() -> None:
    root = Path(repose.__file__).parent
    patterns = tomllib.loads((root.parents[1] / "pyproject.toml").read_text())["tool"]["setuptools"]["package-data"]
    assert any(root / "report" / "page.html" in root.glob(pattern) for pattern in patterns["repose"])
