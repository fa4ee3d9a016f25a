"""`repose check`: looks for problems in a corpus before training."""

import codecs
import csv
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from shutil import get_terminal_size
from typing import TYPE_CHECKING, Annotated

from typer import Option

from repose.cli.corpus_options import (
    Config,
    Files,
    Overrides,
    SrcField,
    SrcLang,
    Synthetic,
    Test,
    TgtField,
    TgtLang,
    Valid,
    corpus_settings,
    with_overrides,
)
from repose.system.errors import ConfigError
from repose.system.files import replacing_file
from repose.system.terminal import make_table, no_formula, printable, shortened, show

if TYPE_CHECKING:
    from repose.config.experiment import CorpusConfig
    from repose.data.findings import CorpusCheck

_COLUMNS = ("line", "where", "problem", "source", "target")
"""Columns of the list of lines with problems."""


def check(
    files: Files = None,
    config: Config = None,
    valid: Valid = None,
    test: Test = None,
    src_field: SrcField = None,
    tgt_field: TgtField = None,
    src_lang: SrcLang = None,
    tgt_lang: TgtLang = None,
    synthetic: Synthetic = None,
    out: Annotated[
        Path | None, Option("--out", "-o", help="A CSV file to list every line in that has a problem.")
    ] = None,
    overrides: Overrides = None,
) -> None:
    """Find problems in a parallel corpus that would spoil a model or its scores, and say what to do about them."""
    from rich.text import Text

    from repose.config.experiment import TASK_SETTINGS
    from repose.data import advice
    from repose.data.check import MAX_PAIRS
    from repose.data.findings import worst_first
    from repose.runs.arguments import loaded_experiment
    from repose.tasks.corpus_files import check_files, is_pretokenized

    if out is not None:
        _check_replaceable(out)
    given = with_overrides(corpus_settings(valid, test, src_field, tgt_field, src_lang, tgt_lang), overrides)
    experiment = loaded_experiment(files, config, None, given, synthetic=synthetic, by_size=False).experiment
    if not TASK_SETTINGS[experiment.training.task].translates:
        raise ConfigError(f"repose check reads sentence pairs, not what {experiment.training.task} trains on")
    checked = check_files(experiment.corpus)
    if not checked.looked_at:
        raise ConfigError(f"the corpus {experiment.corpus.name!r} ships with repose: there are no files to check")
    first = f" (of each set the first {MAX_PAIRS:,})" if MAX_PAIRS in checked.looked_at.values() else ""
    looked_at, few = f"{advice.sizes(checked)}{first}", advice.too_few(checked.trained_on)
    if out is not None:
        _list_lines(out, experiment.corpus, checked)
    show(*_directions(experiment.corpus, checked), *_examples(experiment.corpus, checked))
    if few is not None:
        show(few)
    if not checked.findings:
        show(f"{looked_at}: no {'' if few is None else 'other '}problems found")
        return
    pretokenized, rows = is_pretokenized(experiment.corpus), []
    for what, same in groupby(worst_first(checked.findings), key=advice.what):
        alike = list(same)
        places = Text("\n").join(Text(printable(advice.where(finding))) for finding in alike)
        to_do = Text("\n").join(map(Text, advice.all_to_do(alike, pretokenized=pretokenized)))
        rows.append((what, places, to_do))
    show(make_table(("found", "where, and the first line", "what to do"), rows, lines=True), looked_at)


def _list_lines(out: Path, corpus: "CorpusConfig", checked: "CorpusCheck") -> None:
    """Write the lines with problems to a CSV file, in the encoding by which spreadsheets know that it is UTF-8."""
    from repose.data import advice
    from repose.tasks.corpus_files import problem_lines

    with replacing_file(out) as path, path.open("w", encoding="utf-8-sig", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(_COLUMNS)
        for finding, number, pair in problem_lines(corpus, checked):
            writer.writerow((number, *map(no_formula, (advice.place(finding), advice.in_short(finding), *pair))))


def _check_replaceable(out: Path) -> None:
    """Raise ConfigError if there is a file of this name that is no list of lines."""
    head, begins_like_it = codecs.BOM_UTF8 + ",".join(_COLUMNS).encode(), False
    if out.is_file():
        with out.open("rb") as file:
            begins_like_it = file.read(len(head)) == head
    if out.exists() and not begins_like_it:
        raise ConfigError(f"{out} is there already and is no list of an earlier `repose check`: give another name")


def _directions(corpus: "CorpusConfig", checked: "CorpusCheck") -> Iterator[str]:
    """Yield, for source and target, where it is and in which language."""
    from repose.data.language import UNKNOWN, name_with_code
    from repose.tasks.corpus_files import sides_of

    for name, side in zip(("source", "target"), sides_of(corpus, checked.detected), strict=True):
        language = f"{'it looks like ' * side.is_detected}{name_with_code(side.language)}"
        yield f"{name}: {side.place}, {'language unknown' if side.language == UNKNOWN else language}"


def _examples(corpus: "CorpusConfig", checked: "CorpusCheck") -> Iterator[str]:
    """Yield pairs for people to judge: no check notices that files are swapped, or that every pair is wrong."""
    from repose.data.advice import name_sides
    from repose.data.readers import kind_of
    from repose.tasks.corpus_files import examples_of

    width = get_terminal_size((160, 24)).columns
    for example in examples_of(corpus, checked.looked_at["train"]):
        yield f"{example.place} {example.number:,}:"
        yield from (shortened(f"    {text}", width) for text in example.pair)
    kind = kind_of(Path(corpus.train[0]))
    swap = "name the files the other way round" if kind == "text" else name_sides(kind)
    yield (
        f"Are these translations of each other, the source first? If they are swapped, {swap}; if they do not match, "
        "align them again."
    )
