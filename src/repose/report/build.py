"""A report put together from runs, and written as files."""

import dataclasses
import json
import math
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal

from repose.report import figures
from repose.report.collect import ReportRun, RunSet
from repose.report.content import Picture, Report, Section, Table
from repose.report.papers import published_tables
from repose.report.sentences import side_by_side
from repose.report.significance import significance_tables
from repose.report.tables_costs import best_and_last_table, costs_table, equal_epochs_table, runs_table, unequal_epochs
from repose.report.tables_lengths import length_tables
from repose.report.tables_scores import scores_table, task_tables, teacher_forced_table, variants_table
from repose.report.tables_settings import settings_table
from repose.report.text import write_csv, write_latex, write_markdown
from repose.system.errors import CheckpointError

Format = Literal["html", "md", "csv", "tex"]
FORMATS: tuple[Format, ...] = ("html", "md", "csv", "tex")
FORMAT = 1
"""Of report.json."""
Check = Callable[[Path], tuple[str, ...]]
"""Names of the checks that the model of a run directory fails."""


def build(runs: RunSet, *, pictures: Sequence[Picture] = ()) -> Report:
    """Everything that is said about these runs."""
    beside, unknown = published_tables(runs)
    translates = "translation" in runs.tasks
    sections = [
        Section(title="Scores", paragraphs=(runs.about,) if runs.about else (), tables=_scores(runs)),
        Section(title="Settings", tables=(settings_table(runs),)),
        Section(
            title="Significance",
            paragraphs=(
                "Differences, and whether they are more than chance: docs/significance.md says how they are tested.",
            ),
            tables=significance_tables(runs),
        ),
        Section(
            title="Costs",
            tables=(costs_table(runs),) if any(run.done for run in runs.runs) else (),
            pictures=tuple(picture for picture in pictures if "curves" not in picture.id),
        ),
        Section(
            title="Epochs",
            warnings=tuple(f"Epochs are unequal on {corpus}." for corpus in unequal_epochs(runs)),
            tables=_present(best_and_last_table(runs), equal_epochs_table(runs)),
            pictures=tuple(picture for picture in pictures if "curves" in picture.id),
        ),
        Section(title="By length of the sentence", tables=length_tables(runs)),
        Section(title="Beside the papers", tables=beside),
        Section(title="Sentences", comparisons=side_by_side(runs) if translates else ()),
        Section(title="Runs", paragraphs=(*runs.problems, *unknown), tables=(runs_table(runs),)),
    ]
    return Report(
        title=runs.title,
        subtitle=_subtitle(runs),
        warnings=_warnings(runs),
        sections=tuple(s for s in sections if s.tables or s.pictures or s.comparisons or s.warnings),
    )


def _scores(runs: RunSet) -> tuple[Table, ...]:
    """The main table, those of other tasks, and what stands behind the main one."""
    done = any(run.done and run.task == "translation" for run in runs.runs)
    main = (scores_table(runs),) if done else ()
    return (*main, *task_tables(runs), *_present(teacher_forced_table(runs), variants_table(runs)))


def _present(*tables: Table | None) -> tuple[Table, ...]:
    return tuple(table for table in tables if table is not None)


def _subtitle(runs: RunSet) -> str:
    """Which runs, of when, with which versions."""
    done = sum(run.done for run in runs.runs)
    parts = [f"{_count(done, 'finished run')} of {_count(len(runs.groups), 'system')} on {', '.join(runs.corpora)}"]
    if done < len(runs.runs):
        parts[0] += f", {len(runs.runs) - done} unfinished"
    dates = sorted(filter(None, (_finished(run) for run in runs.runs)))
    if dates:
        parts.append(dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}")
    for name in ("repose", "torch"):
        versions = sorted({run.config.versions.get(name, "") for run in runs.runs} - {""})
        parts += [f"{name} {', '.join(versions)}"] if versions else []
    return "; ".join(parts)


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _finished(run: ReportRun) -> str:
    """The day on which its training was done; "" where that is not known."""
    end = run.records.end
    return end.at.partition(" ")[0] if end is not None and run.trained else ""


def _warnings(runs: RunSet) -> tuple[str, ...]:
    """What nobody should miss."""
    ahead = list(dict.fromkeys(run.group for run in runs.runs if run.looks_ahead))
    failed = list(dict.fromkeys(run.group for run in runs.runs if run.failed_checks and not run.looks_ahead))
    systems = {(run.group, run.corpus) for run in runs.runs if run.done}
    single = [system for system in systems if len(runs.done(*system)) == 1]
    found = []
    if ahead:
        found.append(
            f"{', '.join(ahead)}: the decoder sees the tokens that it is to predict. Losses, perplexities and "
            "accuracies of these systems measure nothing, and are not to be compared with any other's."
        )
    if failed:
        found.append(f"{', '.join(failed)}: failed the audit, so that the numbers do not mean what they say.")
    if single:
        who = "Every system" if len(single) == len(systems) else f"{len(single)} of {len(systems)} systems"
        found.append(f"{who} ran with one seed: how much scores move with it is unknown.")
    unfinished = sum(not run.done for run in runs.runs)
    if unfinished:
        found.append(f"Unfinished runs: {unfinished} of {len(runs.runs)}; they are named at the end.")
    return tuple(found)


def audited(runs: RunSet, check: Check) -> RunSet:
    """The runs, with the checks that their models fail: the first model of a system and corpus is tried for all."""
    failed: dict[tuple[str, str], tuple[str, ...]] = {}
    for run in runs.runs:
        key = (run.group, run.corpus)
        if run.done and run.task == "translation" and key not in failed and (run.folder / "model").is_dir():
            failed[key] = check(run.folder)
    return dataclasses.replace(
        runs,
        runs=tuple(
            dataclasses.replace(
                run,
                failed_checks=(found := failed.get((run.group, run.corpus), ())),
                looks_ahead=run.looks_ahead or any(name.startswith("causal") for name in found),
            )
            for run in runs.runs
        ),
    )


def all_tables(report: Report) -> list[Table]:
    """The tables of a report, those behind its pictures included."""
    return [
        table
        for section in report.sections
        for table in (*section.tables, *(picture.numbers for picture in section.pictures))
    ]


def write(report: Report, runs: RunSet, out: Path, formats: Sequence[Format] = FORMATS) -> list[Path]:
    """Writes report.html, report.md, tables/*.csv, tables/*.tex, and always report.json; returns what was written.

    The files of a report that was written there before are removed first, others left alone. Raises
    CheckpointError where the folder cannot be written.
    """
    contents: dict[Path, str] = {}
    if "html" in formats:
        from repose.report.html import write_html

        contents[Path("report.html")] = write_html(report)
    if "md" in formats:
        contents[Path("report.md")] = write_markdown(report)
    for table in all_tables(report):
        if "csv" in formats:
            contents[Path("tables") / f"{table.id}.csv"] = write_csv(table)
        if "tex" in formats:
            contents[Path("tables") / f"{table.id}.tex"] = write_latex(table)
    contents[Path("report.json")] = json.dumps(to_json(report, runs), indent=1, ensure_ascii=False) + "\n"
    try:
        for former in _former(out):
            former.unlink(missing_ok=True)
        for name, text in contents.items():
            (out / name).parent.mkdir(parents=True, exist_ok=True)
            (out / name).write_text(text, encoding="utf-8")
    except OSError as error:
        raise CheckpointError(f"{out} cannot be written ({error.strerror}): choose another --out") from error
    return [out / name for name in contents]


def _former(out: Path) -> list[Path]:
    """Files of the report that lies in a folder, by its report.json; none where that is not a report's."""
    try:
        content = json.loads((out / "report.json").read_text(encoding="utf-8"))
        if content["format"] != FORMAT:
            return []
        tables = [name for name in content["tables"] if Path(name).name == name]
    except (OSError, ValueError, KeyError, TypeError):
        return []
    pages = [out / f"report.{ending}" for ending in ("html", "md", "json")]
    return [*pages, *(out / "tables" / f"{name}.{ending}" for name in tables for ending in ("csv", "tex"))]


def to_json(report: Report, runs: RunSet) -> dict[str, Any]:
    """All numbers, for a program: of every run with its id, and of every table."""
    return {
        "format": FORMAT,
        "title": report.title,
        "subtitle": report.subtitle,
        "warnings": list(report.warnings),
        "problems": list(runs.problems),
        "baseline": runs.baseline,
        "runs": [_run_json(run) for run in runs.runs],
        "tables": {table.id: _table_json(table) for table in all_tables(report)},
    }


def _run_json(run: ReportRun) -> dict[str, Any]:
    names = ("name", "group", "corpus", "seed", "run_id", "status", "split", "task", "looks_ahead")
    measured = {
        "epochs": figures.epochs(run),
        "updates": figures.updates(run),
        "train_loss": figures.train_loss(run),
        "valid_loss": figures.valid_loss(run),
        "perplexity": figures.perplexity(run),
        "valid_accuracy_percent": figures.valid_accuracy(run),
        "seconds_per_epoch": figures.seconds_per_epoch(run),
        "seconds": figures.total_seconds(run),
        "parameters": figures.parameters(run),
        "training_flops_per_target_token": figures.flops_per_token(run),
        "train_pairs": figures.train_pairs(run),
    }
    return {
        **{name: getattr(run, name) for name in names},
        "labels": dict(run.labels),
        "failed_checks": list(run.failed_checks),
        "versions": dict(run.config.versions),
        "figures": {name: _finite(value) for name, value in measured.items()},
        "scores": None if run.scores is None else dict(run.scores),
    }


def _table_json(table: Table) -> dict[str, Any]:
    return {
        "title": table.title,
        "caption": table.caption,
        "columns": [{"name": column.name, "unit": column.unit} for column in table.columns],
        "rows": [
            [
                {
                    "text": cell.text,
                    "value": _finite(cell.value),
                    "sd": _finite(cell.deviation),
                    "n": cell.n,
                    "notes": list(cell.notes),
                    "best": cell.best,
                }
                for cell in row
            ]
            for row in table.rows
        ],
        "notes": dict(table.notes),
    }


def _finite(value: Any) -> Any:
    """A number that JSON has, or null."""
    return None if isinstance(value, float) and not math.isfinite(value) else value
