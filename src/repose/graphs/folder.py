"""A folder with a model's graphs and `repose-onnx.json`, which describes their inputs and outputs.

Reading it needs neither torch nor onnx.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked

from repose.model.architecture import Count, Layers, MaxLength
from repose.saved_model.description import description_file, read_description, write_description
from repose.system.errors import CheckpointError

TARGET = "onnx"
ENCODER, STEP = "encoder.onnx", "step.onnx"
GREEDY, BEAM = "greedy.onnx", "beam.onnx"
"""Searches for one sentence; their weights are in the step's file."""


@checked(frozen=True)
class CacheTensor:
    """A tensor that each row carries from step to step: input `past_<name>`, output `new_<name>`."""

    name: str
    groups: Annotated[int, Field(ge=0)]
    """G in the shape (R, G, T, width), where T grows by one per step; 0 for the shape (R, width), which does not
    grow."""
    width: Count

    @property
    def shape(self) -> list[int | str]:
        """Its dimensions, with names for those that vary between calls."""
        return ["R", self.groups, "T", self.width] if self.groups else ["R", self.width]


@checked(frozen=True, config=ConfigDict(populate_by_name=True))
class GraphFacts:
    """Facts needed to run the graphs."""

    opset: int
    precision: Literal["fp32", "int8"]
    """Precision of products with weights."""
    max_length: MaxLength
    """Longest sequence in tokens, including START and END."""
    tgt_vocab_size: Count
    num_layers: Layers
    """Number of decoder layers, and of a step's outputs attention_0, attention_1, ..."""
    memory: tuple[str, ...]
    """Encoder outputs that every step reads, besides src_bias; their first dimension is the sentence."""
    cache: Annotated[tuple[CacheTensor, ...], Field(alias="kept")]
    """Tensors that rows carry from step to step; called `kept` in JSON files, which other programs read."""

    def to_json(self) -> dict[str, Any]:
        """Return the facts as in `repose-onnx.json`, and in the `model.json` of a web page."""
        return _FACTS.dump_python(self, by_alias=True)


_FACTS = TypeAdapter(GraphFacts)


@dataclass(frozen=True)
class GraphFolder:
    """The paths and facts of a folder of graphs."""

    encoder: Path
    step: Path
    facts: GraphFacts
    description: Mapping[str, Any]
    """The content of `repose-onnx.json`."""
    lock: Path | None = None
    """A lock file shared by all who use the graphs, so that they are not removed meanwhile."""

    def search(self, beam_size: int) -> Path:
        """Return the path of the greedy search or of the beam search for one sentence."""
        return self.step.with_name(GREEDY if beam_size == 1 else BEAM)


def describe(folder: Path, config: Mapping[str, Any], facts: GraphFacts, fields: Mapping[str, Any]) -> None:
    """Write `repose-onnx.json`, after all other files. `config`: the model's config.json."""
    write_description(folder, TARGET, config, {"graphs": facts.to_json(), **fields})


def read(folder: Path) -> GraphFolder:
    """Read a folder and check its files' digests. Raises CheckpointError if a file is missing or damaged; the searches
    may be missing."""
    description = read_description(folder, TARGET, may_lack=(GREEDY, BEAM))
    try:
        facts = _FACTS.validate_python(description.get("graphs"))
    except ValidationError as error:
        raise CheckpointError(f"{folder} has no usable section graphs: export the model again") from error
    place = folder.absolute()  # absolute, because some files are opened later, perhaps from another folder
    return GraphFolder(place / ENCODER, place / STEP, facts, description)


def config_of(graphs: GraphFolder, folder: Path) -> dict[str, Any]:
    """Return the config.json of the exported model. Raises CheckpointError, which names `folder`, if it is unusable."""
    config = graphs.description.get("config")
    if not isinstance(config, dict) or not isinstance(config.get("decoding", {}), dict):
        raise CheckpointError(f"{folder} has no usable section config: export the model again")
    return config


def is_graph_folder(folder: Path) -> bool:
    """Return whether a folder is an export to ONNX."""
    return (folder / description_file(TARGET)).is_file()
