"""`repose export`: exports a trained model for other tools."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from repose.cli.options import PrecisionName, TargetName
from repose.system.terminal import say


def export(
    model: Annotated[Path, Argument(metavar="RUN", help="A run directory, a model directory, or hf://owner/name.")],
    to: Annotated[TargetName, Option(help="onnx, ctranslate2 or web (see docs/export.md).")],
    out: Annotated[Path, Option("--out", "-o", help="Folder to write.")],
    precision: Annotated[
        PrecisionName, Option(help="fp32, or int8: smaller and faster, but a few translations differ.")
    ] = "fp32",
    single_file: Annotated[
        bool, Option("--single-file", help="For the web: write a single self-contained file.")
    ] = False,
) -> None:
    """Export a trained model to a folder that other tools can load."""
    from repose.exporting.targets import export

    made = export(model, to=to, out=out, precision=precision, single_file=single_file)
    for name, size in made.files.items():
        say(f"{size:>12,} bytes  {name}")
    for part, size in made.parts.items():
        say(f"{size:>12,} bytes of {part}{' before packing' if single_file else ''}")
    if made.largest_difference is not None:
        rounds = ", since int8 rounds" if precision == "int8" else ""
        say(f"largest difference of a log-probability from the model: {made.largest_difference:.1e} nats{rounds}")
    for note in made.notes:
        say(note)
    print(out)
