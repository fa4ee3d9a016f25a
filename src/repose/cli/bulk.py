"""`repose bulk`: translates a corpus in shards, on one or many machines; shows progress; merges the parts."""

import threading
import time
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from typer import Argument, Option
from typer.core import TyperGroup

from repose.cli.documents import SPLIT, warn_of_model
from repose.cli.options import (
    PLACES,
    Address,
    BeamSize,
    Device,
    Engine,
    LengthPenalty,
    ModelDir,
    NoRepeat,
    Precision,
    To,
)
from repose.system.errors import ConfigError, DataError, unknown
from repose.system.signals import stopping
from repose.system.terminal import counted, duration, make_table, say, show

if TYPE_CHECKING:
    from repose.bulk.local import Tally
    from repose.bulk.plan import Plan
    from repose.bulk.storage import Store
    from repose.decoding.translator import Translator

EVERY = 10.0
"""Seconds between two lines about progress."""

Out = Annotated[str, Option("--out", "-o", help="Folder (or s3://...) for the job: its plan and its parts.")]
ShardLines = Annotated[int | None, Option(min=1, help="Lines per shard (default: 20,000).")]
Workers = Annotated[int | None, Option(min=1, help="Number of processes, or of Ray actors (default: one per core).")]
On = Annotated[str, Option(help="Where to work on shards: local, or ray for a Ray cluster (extra `cluster`).")]
Of = Annotated[
    str | None,
    Option("--shard", metavar="I/N", help="Work on every N-th shard, from the I-th (counted from 0); for job arrays."),
]


class _Verbs(TyperGroup):
    """Treats `repose bulk MODEL ...` as `repose bulk run MODEL ...`."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        if args and args[0] not in (*self.commands, "-h", "--help"):
            args = ["run", *args]
        return super().parse_args(ctx, args)


app = typer.Typer(
    name="bulk",
    cls=_Verbs,
    no_args_is_help=True,
    help="Translate corpora of any size: repose bulk MODEL INPUT... --out DIR (options: repose bulk run --help).",
)


@app.command()
def run(
    model: ModelDir,
    inputs: Annotated[list[str], Argument(help="Text, JSONL or Parquet files; text and JSONL may be .gz or .xz.")],
    out: Out,
    format: Annotated[str | None, Option(help="text, jsonl or parquet (default: from the files' names).")] = None,
    field: Annotated[str, Option(help="For JSONL and Parquet: field with the text.")] = "text",
    into: Annotated[str, Option(help="For JSONL and Parquet: field for the translation.")] = "translation",
    shard_lines: ShardLines = None,
    on: On = "local",
    address: Address = None,
    workers: Workers = None,
    shard: Of = None,
    merge: Annotated[bool, Option("--merge", help="Merge the parts when all are done.")] = False,
    beam_size: BeamSize = None,
    num_hypotheses: Annotated[
        int, Option("--num-hypotheses", "-n", min=1, help="Hypotheses per line (widens the beam).")
    ] = 1,
    length_penalty: LengthPenalty = None,
    no_repeat_ngram_size: NoRepeat = None,
    scores: Annotated[bool, Option(help="Also write log-probabilities, in nats.")] = False,
    pairs: Annotated[bool, Option(help="For text: write the source and a tab before each translation.")] = False,
    failed: Annotated[
        str, Option(help="keep or drop: what to do with lines that are blank, too long or not UTF-8.")
    ] = "keep",
    to: To = None,
    device: Device = "cpu",
    precision: Precision = None,
    engine: Engine = "auto",
) -> None:
    """Translate files in shards; each shard is written completely or not at all. Run it again to resume."""
    from repose.bulk.jobs import translation_job
    from repose.bulk.plan import make_plan
    from repose.bulk.shards import remove_unpacked
    from repose.bulk.storage import Store

    check_place(on, shard, address, merged=merge)
    search = {"beam_size": beam_size, "length_penalty": length_penalty, "no_repeat_ngram_size": no_repeat_ngram_size}
    job, files, models = translation_job(
        model,
        inputs,
        form=format,
        field=field,
        load={"device": device, "precision": precision, "engine": engine},
        search={**search, "to": to},
        shard_lines=shard_lines,
        output={
            "into": into,
            "num_hypotheses": num_hypotheses,
            "scores": scores,
            "pairs": pairs,
            "failed": failed,
        },
    )
    store = Store.at(out)
    plan = make_plan(store, job, files)
    run_plan(store, plan, models, on=on, address=address, workers=workers, shard=shard, merged=merge)
    if merge:
        remove_unpacked(store)


@app.command()
def status(out: Annotated[str, Argument(help="Folder of a job.")]) -> None:
    """Show a job's progress and an estimate of the time left, over all its workers."""
    from repose.bulk.plan import read_plan
    from repose.bulk.status import status as status_of
    from repose.bulk.storage import Store

    store = Store.at(out)
    found = status_of(store, read_plan(store))
    rows: list[tuple[str, str] | None] = [
        ("shards done", f"{found.shards_done:,} of {found.shards:,}"),
        ("lines done", f"{found.lines_done:,} of {found.lines:,}"),
        ("tokens read", f"{found.tokens:,}"),
        ("lines a second, lately", f"{found.rate:,.0f}"),
        ("lines a second of each worker", f"{found.lines_done / found.seconds:,.0f}" if found.seconds else ""),
    ]
    if found.latest:
        rows.append(("last shard finished", f"{duration(max(0.0, time.time() - found.latest))} ago"))
    if found.seconds_left and found.lines_done < found.lines:
        rows.append(("time left, at that rate", duration(found.seconds_left)))
    rows += [("translated in parts", f"{found.too_long:,}")] if found.too_long else []
    rows += [(f"failed: {reason}", f"{number:,}") for reason, number in sorted(found.failed.items())]
    show(make_table(("figure", "value"), rows, right=[1], title=out))


@app.command()
def merge(out: Annotated[str, Argument(help="Folder of a finished job.")]) -> None:
    """Merge the parts of a finished job, in the order of its inputs."""
    from repose.bulk.plan import read_plan
    from repose.bulk.shards import merge as merge_parts
    from repose.bulk.shards import remove_unpacked
    from repose.bulk.storage import Store

    store = Store.at(out)
    print(store.place(merge_parts(store, read_plan(store))))
    remove_unpacked(store)


def check_place(on: str, shard: str | None, address: str | None, *, merged: bool) -> None:
    """Check the options about where to run, before anything is read or written. Raises ConfigError."""
    from repose.system.cluster import import_ray
    from repose.system.job_array import every_nth

    if on not in PLACES:
        raise ConfigError(unknown("backend", on, PLACES))
    every_nth((), shard)
    if merged and shard is not None:
        raise ConfigError("--shard is a part of the work: run `repose bulk merge` when all parts are done")
    if on == "ray":
        import_ray()
    elif address is not None:
        raise ConfigError("--address is for a Ray cluster: leave it out, or add --on ray")


def run_plan(
    store: "Store",
    plan: "Plan",
    models: "list[Translator]",
    *,
    on: str,
    address: str | None,
    workers: int | None,
    shard: str | None,
    merged: bool,
) -> None:
    """Work on a job's shards and report progress. Unpacked inputs are kept. Exits with code 3 if stopped."""
    from repose.bulk.inputs import Failure
    from repose.bulk.jobs import input_warnings
    from repose.bulk.run import run_shards
    from repose.bulk.shards import merge as merge_parts
    from repose.bulk.status import status as status_of
    from repose.system.job_array import every_nth

    for model in models:
        warn_of_model(model)
    before = status_of(store, plan)
    if before.shards_done < len(plan.shards):
        for warning in input_warnings(store, plan, models):
            say(warning.sentence)
    shards = counted(len(plan.shards), "shard")
    if len(plan.shards) > 1:
        shards += f", {before.shards_done:,} of them done"
    say(f"{store.where}: {counted(plan.lines, 'line')} in {shards}")
    mine = every_nth(plan.shards, shard)
    stop = threading.Event()
    with stopping(stop, _interrupt):
        on_progress = _Speaker(before.lines_done, sum(one.lines for one in mine), plan.lines, shard is None)
        finished = run_shards(
            store, plan, mine, models, on=on, address=address, workers=workers, on_progress=on_progress, stop=stop
        )
    if not finished:
        say("stopped: the same command goes on")
        raise typer.Exit(3)
    after = status_of(store, plan)
    lines = f"of {counted(after.lines_done, 'line')}"
    became = {"keep": "were kept", "drop": "were left out"}[plan.job.failed]
    became = "have score 0" if plan.job.work == "score" else became
    for reason, number in sorted(after.failed.items()):
        say(f"a problem ({reason}) in {number:,} {lines}, which {became}")
    if plan.job.work == "score" and Failure.TOO_LONG in after.failed:
        say(
            "too long: the source has more tokens than the longest that the model was trained on, "
            "so it cannot judge the pair"
        )
    if after.too_long:
        say(f"{after.too_long:,} {lines} {SPLIT}")
    print(store.place(merge_parts(store, plan)) if merged else store.where)
    if after.lines_done and sum(after.failed.values()) == after.lines_done:
        done = "scored" if plan.job.work == "score" else "translated"
        raise DataError(f"nothing was {done}, all lines had a problem: check which files and fields were named")


def _interrupt() -> NoReturn:
    raise KeyboardInterrupt


class _Speaker:
    """Reports progress every `EVERY` seconds."""

    def __init__(self, before: int, mine: int, total: int, whole: bool) -> None:
        self._before, self._total = (before, total) if whole else (0, mine)
        self._said = time.monotonic()

    def __call__(self, tally: "Tally") -> None:
        if time.monotonic() - self._said < EVERY or not tally.lines:
            return
        self._said = time.monotonic()
        done = min(self._total, self._before + tally.lines)
        left = duration((self._total - done) / tally.rate)
        rate = f"{tally.rate:,.0f} lines and {tally.rate * tally.tokens / tally.lines:,.0f} tokens a second"
        say(f"{done:,} of {counted(self._total, 'line')}, {rate}, {left} left")
