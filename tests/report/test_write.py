"""Reports as Markdown, CSV and LaTeX can be read again."""

import csv
import dataclasses
import io
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from rich.cells import cell_len

from repose.report.build import build
from repose.report.collect import read_runs
from repose.report.content import (
    Cell,
    Column,
    Picture,
    Report,
    Section,
    Sentence,
    SentenceComparison,
    Shows,
    Table,
    slug,
)
from repose.report.latex import latex, write_latex
from repose.report.markdown import markdown_table, write_markdown
from repose.report.page import write_page
from repose.report.write import FORMATS, write, write_csv

RESULTS = Path(__file__).parents[2] / "results"
TABLE = Table(
    id="scores",
    title="Scores & costs",
    columns=(Column(name="system", numeric=False), Column(name="loss", unit="nats per token"), Column(name="of_50%")),
    rows=(
        (
            Cell(text="a|b_*c*"),
            Cell(text="1.23 ± 0.10", value=1.2345678901234567, deviation=0.1, n=3, notes=("Looks ahead.",), best=True),
            Cell(text="12", value=12.0),
        ),
        (Cell(text="日本語"), Cell(text="–", notes=("Looks ahead.", 'Says "no".')), Cell(text="1,234", value=1234.0)),
    ),
    caption="50 % of <all>.",
)


def test_markdown_is_aligned_and_escaped() -> None:
    text = markdown_table(TABLE)
    grid = [line for line in text.splitlines() if line.startswith("|")]
    assert len({cell_len(line) for line in grid}) == 1
    assert grid[1].split("|")[1:3] == [" ----------- ", f" {'-' * 20}: "]
    assert r"a\|b\_\*c\*" in grid[2]
    assert "**1.23 ± 0.10** [a]" in grid[2]
    assert "– [a] [b]" in grid[3]
    assert '- [b] Says "no".' in text
    assert r"50 % of \<all>." in text


def test_markdown_keeps_entities_and_tildes_as_they_are(sample: Report) -> None:
    text = write_markdown(dataclasses.replace(sample, title="Tom &amp; ~~Jerry~~"))
    assert text.startswith(r"# Tom \&amp; \~\~Jerry\~\~")


def test_a_report_in_markdown_has_everything() -> None:
    picture = Picture(id="p", title="Curves", shows=Shows.CURVES, svg="<svg/>", description="It falls.", numbers=TABLE)
    sentence = Sentence(
        number=7, src="Ein *Satz*.", reference="A sentence.", hypotheses=("A <b>.", "B."), scores=(40.0, 60.5)
    )
    comparison = SentenceComparison(
        id="s", systems=("x", "y"), src_lang="de", tgt_lang="en", sentences=(sentence,), caption="c"
    )
    section = Section(
        title="S",
        paragraphs=("Of it.",),
        warnings=("Beware.",),
        tables=(),
        pictures=(picture,),
        comparisons=(comparison,),
    )
    text = write_markdown(Report(title="T", subtitle="sub", warnings=("Careful.",), sections=(section,)))
    for line in (
        "# T", "sub", "> **Warning:** Careful.", "## S", "Of it.", "> **Warning:** Beware.", "### Curves",
        "### x and y, de → en",
        "Sentence 7", r"- source: Ein \*Satz\*.", r"- x (chrF 40.0): A \<b>.", "- y (chrF 60.5): B.",
    ):  # fmt: skip
        assert line in text.splitlines()
    assert "It falls." not in text, "is for who cannot see the picture"


def test_languages_that_nobody_named_are_no_pair_in_markdown(sample: Report) -> None:
    comparison = sample.sections[2].comparisons[0]
    unknown = dataclasses.replace(comparison, systems=("x", "y"), src_lang="und")
    section = Section(title="S", comparisons=(unknown,))
    text = write_markdown(Report(title="T", subtitle="", warnings=(), sections=(section,)))
    assert "### x and y" in text.splitlines()


def test_csv_has_every_digit_and_columns_of_their_own() -> None:
    head, first, second = csv.reader(io.StringIO(write_csv(TABLE)))
    assert head == ["system", "loss [nats per token]", "loss, sd", "loss, n", "of_50%", "notes"]
    assert first == ["a|b_*c*", "1.2345678901234567", "0.1", "3", "12", "Looks ahead."]
    assert float(first[1]) == TABLE.rows[0][1].value
    assert second == ["日本語", "", "", "", "1234", 'Looks ahead. Says "no".']


def test_no_label_is_a_formula_of_a_spreadsheet() -> None:
    labels = ("=1+1", "+a", "-b", "@c", "\td", "plain = 1")
    heads = (Column(name="=system", numeric=False), Column(name="loss"))
    number = Cell(text="-1.5", value=-1.5)
    table = dataclasses.replace(TABLE, columns=heads, rows=tuple((Cell(text=label), number) for label in labels))
    head, *rows = csv.reader(io.StringIO(write_csv(table)))
    assert head == ["'=system", "loss", "notes"]
    assert [row[0] for row in rows] == ["'=1+1", "'+a", "'-b", "'@c", "'\td", "plain = 1"]
    assert {row[1] for row in rows} == {"-1.5"}  # numbers stay numbers


def test_control_characters_are_written_out(sample: Report) -> None:
    (comparison, _) = sample.sections[2].comparisons
    sentence = dataclasses.replace(comparison.sentences[0], src="a\x1b[31mb\u202ec", hypotheses=("\x07", "d\ne"))
    comparison = dataclasses.replace(comparison, sentences=(sentence,), systems=("x\x1b", "y"))
    report = Report(
        title="t\x1b]0;",
        subtitle="",
        warnings=("w\x9b",),
        sections=(
            Section(title="s\x00", comparisons=(comparison,), tables=(dataclasses.replace(TABLE, title="n\x1b"),)),
        ),
    )
    for text in (write_markdown(report), write_page(report)):
        assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", text)
        for seen in (r"t\x1b", r"w\x9b", r"a\x1b", r"b\u202ec", r"\x07", r"x\x1b", r"n\x1b"):
            assert seen in text.replace("\\\\", "\\")
        assert "d e" in text


def test_corpora_of_any_script_have_ids_of_their_own() -> None:
    assert slug("Multi30k de_en") == "multi30k-de-en"
    assert slug("日本語 ja") == "日本語-ja"


def test_names_that_are_no_utf8_can_be_written(tmp_path: Path) -> None:
    runs = read_runs([RESULTS / "demo"])
    report = dataclasses.replace(build(runs), title="caf\udce9")
    for path in write(report, runs, tmp_path):
        path.read_text(encoding="utf-8")


ESCAPES = {
    "specials": (r"\{}$&#%_^~", r"\textbackslash{}\{\}\$\&\#\%\_\textasciicircum{}\textasciitilde{}"),
    "comparison": ("<a>|", r"\textless{}a\textgreater{}\textbar{}"),
    "signs": ("1 ± 2 × 3 – 4 −5 √d →", r"1 $\pm$ 2 $\times$ 3 -- 4 $-$5 $\surd$d $\rightarrow$"),
    "letters": ("Popović naïve", "Popović naïve"),
    "other scripts": ("日", r"\texttt{U+65E5}"),
    "a line": ("a\n b", "a b"),
}


@pytest.mark.parametrize(("text", "expected"), ESCAPES.values(), ids=ESCAPES.keys())
def test_latex_escapes(text: str, expected: str) -> None:
    assert latex(text) == expected


def test_a_latex_table_has_a_row_for_each_row() -> None:
    text = write_latex(TABLE, "a report")
    assert r"\begin{tabular}{lrr}" in text
    assert r"\caption{Scores \& costs}" in text
    assert text.count(r"\\") == 3
    assert r"\textbf{1.23 $\pm$ 0.10}\textsuperscript{a} & 12 \\" in text
    assert "Units: loss: nats per token." in text
    assert r"\textsuperscript{b}~Says ''no''." in text
    unescaped = re.sub(r"\\[{}]", "", text)
    assert unescaped.count("{") == unescaped.count("}")


@pytest.mark.parametrize(("report", "label"), [("Multi30k, de-en", "multi30k-de-en-scores"), ("", "scores")])
def test_labels_of_two_reports_are_not_the_same(report: str, label: str) -> None:
    assert rf"\label{{tab:{label}}}" in write_latex(TABLE, report)


def test_a_latex_table_fits_the_line_and_the_page() -> None:
    """Two names of 20 letters leave less than half of a line; of 30 rows of four lines, 11 have room on a page."""
    columns = [Column(name, numeric=False) for name in ("of", "what", "settings")]
    rows = [[Cell("x" * 20), Cell("y" * 20), Cell("word " * 27)]] * 30
    text = write_latex(dataclasses.replace(TABLE, columns=columns, rows=rows), "a report")
    (share,) = {float(found) for found in re.findall(r"llp\{([.\d]+)\\linewidth\}", text)}
    assert 0.4 < share < 0.5
    assert r"\footnotesize\setlength{\tabcolsep}{3pt}" in text
    tables = text.split(r"\end{table}")[:-1]
    assert [table.count("x & y") for table in tables] == [11, 11, 8]
    assert [r"\label" in table for table in tables] == [True, False, False]
    assert [", continued}" in table for table in tables] == [False, True, True]
    assert [latex(TABLE.caption) in table for table in tables] == [False, False, True]


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("pdflatex") is None, reason="pdflatex is not installed")
def test_every_table_of_a_real_report_compiles(tmp_path: Path) -> None:
    runs = read_runs([RESULTS / "enhanced-small", RESULTS / "multi30k-de-en"])
    report = build(runs)
    hostile = dataclasses.replace(
        TABLE, id="hostile", rows=((Cell(text="[x] \\ & % $ # _ { } ~ ^ é ł ø ŋ 日 ✓"), *TABLE.rows[0][1:]),)
    )
    report = dataclasses.replace(report, sections=(*report.sections, Section(title="x", tables=(hostile,))))
    files = [path for path in write(report, runs, tmp_path, ("tex",)) if path.suffix == ".tex"]
    inputs = "".join(rf"\input{{tables/{path.name}}}\clearpage " for path in files)
    (tmp_path / "all.tex").write_text(
        rf"\documentclass{{article}}\usepackage{{booktabs}}\begin{{document}}{inputs}\end{{document}}"
    )
    command = ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "all.tex"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False, errors="replace")
    assert done.returncode == 0, done.stdout[-2000:]
    assert len(files) > 8


def test_files_are_those_that_were_asked_for(tmp_path: Path) -> None:
    runs = read_runs([RESULTS / "demo"])
    report = build(runs)
    assert FORMATS == ("html", "md", "csv", "tex")
    written = write(report, runs, tmp_path, ("md", "csv"))
    assert sorted(path.relative_to(tmp_path) for path in tmp_path.rglob("*") if path.is_file()) == sorted(
        path.relative_to(tmp_path) for path in written
    )
    assert {path.suffix for path in written} == {".md", ".csv", ".json"}
    assert "96.1" in (tmp_path / "report.md").read_text()


def test_notes_of_a_whole_table_have_no_letter_and_an_empty_translation_is_said(sample: Report) -> None:
    text = write_markdown(sample)
    assert "- [b] This model looks ahead." in text
    assert "- A note without a mark." in text
    assert ": (empty)" in text
    table = sample.sections[0].tables[0]
    assert r"\raggedright A note without a mark." in write_latex(table, "a report")


def test_commands_in_captions_stay_commands() -> None:
    table = Table(id="x", title="x", columns=[Column("a")], rows=[], caption="`repose check --all` says *what* to_do.")
    assert "`repose check --all` says \\*what\\* to\\_do." in markdown_table(table)
