"""Build a report from runs."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

from repose.report.content import Picture, Report, Section, Shows, Table, some
from repose.report.differences import mixed_code, same_systems, trained_on_their_test, unlike
from repose.report.papers import published_tables
from repose.report.run_set import ReportRun, RunSet
from repose.report.sentences import chosen_sentences, samples, side_by_side
from repose.report.significance import significance_tables
from repose.report.tables_costs import best_and_last_table, costs_table, equal_epochs_table, runs_table, unequal_epochs
from repose.report.tables_scores import scores_table, task_tables, teacher_forced_table, variants_table
from repose.report.tables_settings import check_table, settings_table
from repose.report.tables_translations import endings_table, inflated_scores, length_tables
from repose.report.verdict import main_picture, verdict
from repose.saved_run.folder import RunFolder
from repose.system.errors import ReposeError
from repose.system.terminal import counted

Check = Callable[[Path], tuple[str, ...]]
"""Function that takes a run directory and returns the names of the checks that its model fails."""


def build(runs: RunSet, *, pictures: Sequence[Picture] = ()) -> Report:
    """Build the report on these runs; `pictures` are already drawn."""
    papers, unknown = published_tables(runs)
    tests = significance_tables(runs)
    first = main_picture(pictures, runs)
    pictures = [picture for picture in pictures if picture is not first]
    sections = [
        Section(title="Scores", paragraphs=runs.about, tables=_scores(runs)),
        Section(title="Settings", tables=(settings_table(runs), *_present(check_table(runs)))),
        Section(
            title="Significance",
            paragraphs=(
                "Differences, and whether they are more than chance: docs/significance.md says how they are tested.",
            ),
            tables=tests,
        ),
        Section(
            title="Costs",
            tables=(costs_table(runs),) if any(run.done for run in runs.runs) else (),
            pictures=tuple(picture for picture in pictures if picture.shows is not Shows.CURVES),
        ),
        Section(
            title="Epochs",
            warnings=tuple(
                f"The systems have different numbers of epochs on {corpus}." for corpus in unequal_epochs(runs)
            ),
            tables=_present(best_and_last_table(runs), equal_epochs_table(runs)),
            pictures=tuple(picture for picture in pictures if picture.shows is Shows.CURVES),
        ),
        Section(title="By length of the sentence", tables=length_tables(runs)),
        Section(title="Comparison with the papers", tables=papers),
        Section(title="Sentences", tables=(*chosen_sentences(runs), *samples(runs)), comparisons=side_by_side(runs)),
        Section(title="Runs", paragraphs=(*runs.problems, *unknown), tables=(runs_table(runs),)),
    ]
    return Report(
        title=runs.title,
        subtitle=_subtitle(runs),
        warnings=_warnings(runs),
        verdict=verdict(runs, tests),
        picture=first,
        sections=tuple(s for s in sections if s.tables or s.pictures or s.comparisons or s.warnings),
    )


def _scores(runs: RunSet) -> tuple[Table, ...]:
    """Return the main table, the tables of other tasks, and the tables that add details to the main one."""
    done = any(run.done for run in runs.translations.runs)
    main = (scores_table(runs),) if done else ()
    return (*main, *task_tables(runs), *_present(endings_table(runs), teacher_forced_table(runs), variants_table(runs)))


def _present(*tables: Table | None) -> tuple[Table, ...]:
    return tuple(filter(None, tables))


def _subtitle(runs: RunSet) -> str:
    """Say how many runs there are, from which days and with which versions."""
    done, absent = sum(run.done for run in runs.runs), [one.why for one in runs.absent]
    systems = len({run.group for run in runs.runs if run.done})
    parts = [f"{counted(done, 'finished run')} of {counted(systems, 'system')} on {', '.join(runs.corpora)}"]
    parts[0] += "".join(f", {absent.count(why)} {why}" for why in sorted(set(absent)))
    dates = sorted(filter(None, (_finished(run) for run in runs.runs)))
    if dates:
        parts.append(dates[0] if dates[0] == dates[-1] else f"{dates[0]} to {dates[-1]}")
    for name in ("repose", "torch"):
        versions = sorted({run.config.versions.get(name, "") for run in runs.runs} - {""})
        parts += [f"{name} {', '.join(versions)}"] if versions else []
    return "; ".join(parts)


def _finished(run: ReportRun) -> str:
    """Return the day on which a run's training ended; "" if that is not known."""
    end = run.records.end
    return end.at.partition(" ")[0] if end is not None and run.trained else ""


def _warnings(runs: RunSet) -> tuple[str, ...]:
    ahead = list(dict.fromkeys(run.group for run in runs.runs if run.looks_ahead))
    failed = list(dict.fromkeys(run.group for run in runs.runs if run.failed_checks and not run.looks_ahead))
    systems = {(run.group, run.corpus) for run in runs.runs if run.done}
    single = [system for system in systems if len(runs.done(*system)) == 1]
    found = [*unlike(runs.runs), *same_systems([run for run in runs.runs if run.done]), *mixed_code(runs.runs)]
    if ahead:
        found.append(
            f"{', '.join(ahead)}: the decoder sees the tokens that it is to predict. Losses, perplexities and "
            "accuracies of these systems measure nothing, and must not be compared with those of other systems."
        )
    if failed:
        found.append(f"{', '.join(failed)}: failed the audit, so the numbers do not mean what they say.")
    if single:
        every = "The system" if len(systems) == 1 else "Every system"
        of = f"{len(systems)} systems" + ", counted on each corpus," * (len(runs.corpora) > 1)
        who = every if len(single) == len(systems) else f"{len(single)} of {of}"
        have = "has" if who == every or len(single) == 1 else "have"
        found.append(f"{who} {have} one finished seed: how much scores vary with the seed is unknown.")
    found += [*trained_on_their_test([run for run in runs.runs if run.done]), *inflated_scores(runs)]
    return (*found, *_absent(runs))


def _absent(runs: RunSet) -> list[str]:
    """Return sentences about the runs that failed, are left out, are missing or have not finished."""
    of = counted(len(runs.runs) + len(runs.missing), "cell" if all(run.labels for run in runs.runs) else "run")
    sentences = []
    for why, verb in (("failed", ""), ("left out", "is "), ("missing", "is "), ("unfinished", "is ")):
        names = [one.name for one in runs.absent if one.why == why]
        if names:
            are = verb if len(names) == 1 else verb.replace("is", "are")
            sentences.append(f"{len(names)} of {of} {are}{why}: {some(names)} (see Runs).")
    return sentences


def audited(runs: RunSet, check: Check) -> RunSet:
    """Return the runs with the checks that their models fail. One model is checked per system and corpus: the first
    that can be loaded. Models that cannot be loaded are listed in `problems`."""
    failed: dict[tuple[str, str], tuple[str, ...]] = {}
    problems: list[str] = []
    for run in runs.runs:
        key = (run.group, run.corpus)
        if run.done and run.translates and key not in failed and RunFolder(run.folder).model.is_dir():
            try:
                failed[key] = check(run.folder)
            except ReposeError as error:
                problems.append(f"{run.name} is not audited: {error}.")
    return dataclasses.replace(
        runs,
        problems=(*runs.problems, *problems),
        runs=tuple(
            dataclasses.replace(
                run,
                failed_checks=(found := failed.get((run.group, run.corpus), ())),
                looks_ahead=run.looks_ahead or any(name.startswith("causal") for name in found),
            )
            for run in runs.runs
        ),
    )
