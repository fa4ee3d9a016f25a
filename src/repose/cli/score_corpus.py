"""`repose score-corpus`: scores the pairs of a noisy corpus and keeps the best ones."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from repose.cli import bulk
from repose.cli.options import Address, Device, Engine, Precision, To
from repose.system.errors import ConfigError
from repose.system.terminal import counted, say


def score_corpus(
    model: Annotated[Path, Argument(help="A model that translates the sources into the targets.")],
    files: Annotated[list[str], Argument(help="Two aligned text files, or one TSV, JSONL or Parquet file.")],
    out: bulk.Out,
    backward: Annotated[
        Path | None, Option(help="A model for the other direction; two find far more than one.")
    ] = None,
    keep: Annotated[
        int | None, Option(min=1, help="Write this many of the best pairs, as kept.src and kept.tgt.")
    ] = None,
    threshold: Annotated[
        float | None, Option(min=0.0, max=1.0, help="Write the pairs that score at least this much.")
    ] = None,
    checks: Annotated[bool, Option(help="Also check lengths, copies, scripts and languages.")] = True,
    src_field: Annotated[
        str, Option(help="Field of the sources in JSONL or Parquet, or name or number of a TSV column.")
    ] = "src",
    tgt_field: Annotated[str, Option(help="Field or column of the targets.")] = "tgt",
    to: To = None,
    backward_to: Annotated[
        str | None, Option(help="--to for the backward model, which may be the same model if it translates both ways.")
    ] = None,
    shard_lines: bulk.ShardLines = None,
    on: bulk.On = "local",
    address: Address = None,
    workers: bulk.Workers = None,
    shard: bulk.Of = None,
    device: Device = "cpu",
    precision: Precision = None,
    engine: Engine = "auto",
) -> None:
    """Score the pairs of a corpus with models (dual cross-entropy) and checks, and keep the best. Rerun to resume."""
    if keep is not None and threshold is not None:
        raise ConfigError("--keep and --threshold choose pairs in two ways: give one of them")
    if shard is not None and (keep is not None or threshold is not None):
        raise ConfigError("--shard scores a part: filter without it when all parts are done")
    if backward_to is not None and backward is None:
        raise ConfigError("--backward-to is for the model of the other direction: name it with --backward")
    bulk.check_place(on, shard, address, merged=shard is None)
    from repose.bulk.filtering import filter_pairs, reasons_of
    from repose.bulk.jobs import scoring_job
    from repose.bulk.plan import KEPT, make_plan
    from repose.bulk.shards import remove_unpacked
    from repose.bulk.storage import Store

    job, inputs, models = scoring_job(
        model,
        backward,
        files,
        fields=(src_field, tgt_field),
        load={"device": device, "precision": precision, "engine": engine},
        tags=(to, backward_to),
        shard_lines=shard_lines,
        checks=checks,
    )
    store = Store.at(out)
    plan = make_plan(store, job, inputs)
    bulk.run_plan(store, plan, models, on=on, address=address, workers=workers, shard=shard, merged=shard is None)
    if keep is not None or threshold is not None:
        filtered = filter_pairs(store, plan, keep=keep, threshold=threshold)
        say(f"{filtered.kept:,} of {counted(filtered.lines, 'pair')} kept, of a score of {filtered.lowest:.6g} or more")
        if filtered.dropped:
            number = counted(filtered.dropped.total(), "pair")
            say(f"left out whatever the score: {number} ({reasons_of(filtered.dropped)})")
        print(*map(store.place, KEPT))
    if shard is None:
        remove_unpacked(store)
