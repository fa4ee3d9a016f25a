"""Beside the scores: how translations end, and what a look at each corpus found."""

from typing import Any

from repose.data import advice
from repose.data.findings import Finding, known_findings
from repose.report import figures
from repose.report.collect import ReportRun, RunSet
from repose.report.content import Cell, Column, Table
from repose.report.tables import Figure, Kind, Of, captioned, figure_table, rows_of
from repose.report.tables_scores import beam_name
from repose.tasks.inflation import inflated


def endings_table(runs: RunSet) -> Table | None:
    """Translations that are too short, did not end, or loop; None for runs of versions that did not count them."""
    rows = [row for row in rows_of(runs.translations) if any(_counts(run, "greedy") for run in row.runs)]
    if not rows:
        return None
    width = beam_name([run for row in rows for run in row.runs])
    ways = (("greedy", "greedy"), (None, width))
    shown = [
        *(
            Figure(f"brevity penalty, {label}", _brevity_penalty(way), digits=3, better="higher", kind=_kind(way))
            for way, label in ways
        ),
        *(
            Figure(f"{name}, {label}", _share(key, way), unit="%", digits=1, better="lower", kind=_kind(way))
            for name, key in (("did not end", "unfinished"), ("loop", "looping"))
            for way, label in ways
        ),
    ]
    return figure_table(rows, shown, "endings")


def _kind(decoding: str | None) -> Kind:
    return lambda run: figures.kind_of_score(run, decoding, "bleu")


def _counts(run: ReportRun, decoding: str | None) -> dict[str, Any]:
    """What was counted beside the scores of a decoding; `decoding` None: of the `beam`."""
    found = figures.decodings(run).get(decoding or figures.beam(run) or "", {})
    return dict(found) if "looping" in found else {}


def _brevity_penalty(decoding: str | None) -> Of:
    return lambda run: _counts(run, decoding).get("bleu", {}).get("brevity_penalty")


def _share(name: str, decoding: str | None) -> Of:
    """Of the sentences, in percent."""

    def share(run: ReportRun) -> float | None:
        count = _counts(run, decoding).get(name)
        return None if count is None or run.scores is None else 100 * count / run.scores["num_sentences"]

    return share


def check_table(runs: RunSet) -> Table | None:
    """What was found in each corpus before it was trained on; None where nothing was."""
    found: dict[tuple[str, Finding], None] = {}
    for run in runs.runs:
        data = run.records.data
        found |= dict.fromkeys((run.corpus, one) for one in known_findings(data.findings if data else ()))
    if not found:
        return None
    columns = [Column(name, numeric=False) for name in ("corpus", "found", "where")]
    rows = [(Cell(corpus), Cell(advice.what(one)), Cell(advice.where(one))) for corpus, one in found]
    return captioned("corpus-check", columns, rows)


def inflated_scores(runs: RunSet) -> tuple[str, ...]:
    """A warning for each corpus whose references are not as people write them."""
    found = {
        run.corpus: sentence
        for run in runs.translations.runs
        if run.scores is not None and (sentence := inflated(run.scores, figures=False))
    }
    return tuple(f"{corpus}: {sentence}." for corpus, sentence in found.items())
