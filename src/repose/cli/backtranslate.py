"""`repose backtranslate`: makes training pairs from text in one language."""

from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option

from repose.cli.options import Device, Engine, Precision, To, Workers
from repose.system.errors import ConfigError
from repose.system.signals import Interrupted, interruptible
from repose.system.terminal import counted, say


def backtranslate(
    model: Annotated[
        Path, Argument(help="A run directory, a model directory or an export to ONNX, from the text's language.")
    ],
    text: Annotated[Path, Argument(help="Text in the target language of the model to be, one sentence per line.")],
    out: Annotated[
        Path, Option("--out", "-o", help="Name of the pairs to write: OUT.src (translations) and OUT.tgt (the text).")
    ],
    sampling: Annotated[
        float | None,
        Option(metavar="TEMPERATURE", help="Draw translations at this temperature (1: as likely as the model says)."),
    ] = None,
    beam_size: Annotated[
        int | None, Option("--beam-size", "-b", help="Search with this beam (default: the model's).")
    ] = None,
    seed: Annotated[int, Option(help="Seed of the draws.")] = 0,
    to: To = None,
    device: Device = "cpu",
    workers: Workers = None,
    precision: Precision = None,
    engine: Engine = "auto",
) -> None:
    """Translate text back into the source language, as more pairs to train on (`repose train --synthetic`)."""
    if sampling is not None and beam_size is not None:
        raise ConfigError("--sampling draws and --beam-size searches: give one of them")
    if seed and sampling is None:
        raise ConfigError("--seed is of draws: leave it out, or add --sampling")
    try:
        with interruptible():
            from repose.decoding.load import load
            from repose.decoding.sampling import Sampling
            from repose.tasks.back_translation import back_translate

            draw = None if sampling is None else Sampling(sampling, seed)
            with load(model, device, workers, precision, engine) as translator:
                written = back_translate(translator, text, out, sampling=draw, beam_size=beam_size, to=to)
    except Interrupted as signal:
        say(f"stopped ({signal.name}): nothing was written")
        raise typer.Exit(3) from None
    if written.warning is not None:
        say(written.warning.sentence)
    say(f"{counted(written.pairs, 'pair')} of {counted(written.lines, 'line')}")
    for reason, number in written.dropped.items():
        say(f"{number:,} left out ({reason})")
    print(f"{out}.src {out}.tgt")
