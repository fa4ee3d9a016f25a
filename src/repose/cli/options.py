"""Options shared by several commands: the model, decoding settings, and what computes the translations."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from typer import Argument, Option

if TYPE_CHECKING:
    from repose.decoding import engine
    from repose.exporting import targets

    EngineChoice: TypeAlias = engine.EngineChoice
    PrecisionName: TypeAlias = engine.Precision
    TargetName: TypeAlias = targets.TargetName
else:  # for typer: the code that uses a value checks it, and lists the valid ones
    EngineChoice = PrecisionName = TargetName = str

PLACES = ("local", "ray")
"""Values of `--on`: where work can be done."""


def change(what: str) -> Any:
    """Return the option `--set`, which changes one setting of `what` and can be repeated."""
    return Option("--set", "-s", metavar="SECTION.FIELD=VALUE", help=f"Change {what}. Can be repeated.")


ModelDir = Annotated[Path, Argument(help="A run directory, a model directory, an export to ONNX, or hf://owner/name.")]
BeamSize = Annotated[
    int | None, Option("--beam-size", "-b", help="Beam size; 1 decodes greedily (default: the model's).")
]
LengthPenalty = Annotated[
    float | None, Option(help="0 is none; higher values prefer longer translations (default: the model's).")
]
NoRepeat = Annotated[
    int | None,
    Option(min=0, help="Never repeat a sequence of this many tokens; 3 stops loops, 0 is off (default: the model's)."),
]
To = Annotated[
    str | None,
    Option(
        metavar="LANG",
        help="For a model with several tags (of languages or corpora): the tag to use.",
    ),
]
Ensemble = Annotated[
    list[Path] | None,
    Option(
        metavar="RUN",
        help="Also use this model, and translate by the mean of the models' probabilities. Can be repeated.",
    ),
]
Device = Annotated[str, Option(help="auto, cpu, cuda, cuda:1 or mps.")]
TrainingDevice = Annotated[str, Option(help="auto, cpu, cuda or cuda:1.")]
Address = Annotated[str | None, Option(help="Address of the Ray cluster's head (default: RAY_ADDRESS).")]
Workers = Annotated[
    int | None, Option(help="Number of processes that translate (default: one per core, one on a GPU).")
]
Precision = Annotated[
    PrecisionName | None, Option(help="fp32 (the default), or int8: faster on a CPU, but a few translations differ.")
]
Engine = Annotated[
    EngineChoice,
    Option(help="torch, or onnx: the same on a CPU, but faster; auto uses onnx if the extra `fast` is installed."),
]
