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
        Path, Argument(help="A model that translates from the text's language (run, model directory, export to ONNX).")
    ],
    text: Annotated[Path, Argument(help="Text in the target language of the model to train, one sentence per line.")],
    out: Annotated[Path, Option("--out", "-o", help="Pairs to write: OUT.src (translations) and OUT.tgt (the text).")],
    sampling: Annotated[
        float | None,
        Option(metavar="TEMPERATURE", help="Sample translations at this temperature (1: the model's probabilities)."),
    ] = None,
    beam_size: Annotated[
        int | None, Option("--beam-size", "-b", help="Decode with this beam size (default: the model's).")
    ] = None,
    seed: Annotated[int, Option(help="Random seed of the sampling.")] = 0,
    to: To = None,
    device: Device = "cpu",
    workers: Workers = None,
    precision: Precision = None,
    engine: Engine = "auto",
) -> None:
    """Translate text back into the source language, to get more training pairs (`repose train --synthetic`)."""
    if sampling is not None and beam_size is not None:
        raise ConfigError("--sampling draws and --beam-size searches: give one of them")
    if seed and sampling is None:
        raise ConfigError("--seed is for --sampling: leave it out, or add --sampling")
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
