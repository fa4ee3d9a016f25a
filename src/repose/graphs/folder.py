"""A folder with the graphs of a model and `repose-onnx.json`, which says what goes in and out of them.

Reading needs neither torch nor onnx.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import ConfigDict, Field, TypeAdapter, ValidationError
from pydantic.dataclasses import dataclass as checked

from repose.model.architecture import Count, Layers, MaxLength
from repose.saved_model.description import read_description, write_description
from repose.system.errors import CheckpointError

if TYPE_CHECKING:
    from repose.model.transformer import Transformer

TARGET = "onnx"
ENCODER, STEP = "encoder.onnx", "step.onnx"
GREEDY, BEAM = "greedy.onnx", "beam.onnx"
"""Searches of one sentence, which read their weights in the step."""


@checked(frozen=True)
class CacheTensor:
    """What each row of a decoding keeps from step to step: `past_<name>` in, `new_<name>` out."""

    name: str
    groups: Annotated[int, Field(ge=0)]
    """G of (R, G, T, width), where T grows by one in a step; 0 for (R, width), which does not grow."""
    width: Count

    @property
    def shape(self) -> list[int | str]:
        """Its dimensions, with names for those that differ from call to call."""
        return ["R", self.groups, "T", self.width] if self.groups else ["R", self.width]


@checked(frozen=True, config=ConfigDict(populate_by_name=True))
class GraphFacts:
    """What whoever runs the graphs must know of them."""

    opset: int
    precision: Literal["fp32", "int8"]
    """The precision of the products with weights."""
    max_length: MaxLength
    """Longest sequence in tokens, START and END included."""
    tgt_vocab_size: Count
    num_layers: Layers
    """Layers of the decoder: a step has so many outputs attention_0, attention_1, ..."""
    memory: tuple[str, ...]
    """Outputs of the encoder that every step gets, beside src_bias; the first dimension is the sentence's."""
    cache: Annotated[tuple[CacheTensor, ...], Field(alias="kept")]
    """What rows keep from step to step; called `kept` in the JSON files that other programs read."""

    def to_json(self) -> dict[str, Any]:
        """The facts as they stand in `repose-onnx.json`, and in the `model.json` of a page."""
        return _FACTS.dump_python(self, by_alias=True)


_FACTS = TypeAdapter(GraphFacts)


@dataclass(frozen=True)
class GraphFolder:
    """A folder that was read."""

    encoder: Path
    step: Path
    facts: GraphFacts
    description: Mapping[str, Any]
    """All of `repose-onnx.json`."""
    lock: Path | None = None
    """A lock file that all who compute with the graphs share, so that nobody removes them meanwhile."""

    def search(self, beam_size: int) -> Path:
        """The search of one sentence, greedy or with a beam."""
        return self.step.with_name(GREEDY if beam_size == 1 else BEAM)


def write_graphs(folder: Path, model: "Transformer", *, int8: bool = False) -> GraphFacts:
    """Write the graphs into a folder. Raises ConfigError where the extra `fast` is missing."""
    from repose.graphs import searches
    from repose.graphs.graph import refer
    from repose.graphs.stacks import graphs_of

    graphs = graphs_of(model, int8=int8)
    step = graphs.step.SerializeToString()
    (folder / ENCODER).write_bytes(graphs.encoder.SerializeToString())
    (folder / STEP).write_bytes(step)
    for name, write in ((GREEDY, searches.greedy), (BEAM, searches.beam)):
        searching = write(model, graphs.memory, int8=int8)
        refer(searching, STEP, step)
        (folder / name).write_bytes(searching.SerializeToString())
    return graphs.facts


def describe(folder: Path, config: Mapping[str, Any], facts: GraphFacts, fields: Mapping[str, Any]) -> None:
    """Write `repose-onnx.json`, last; `config` is the config.json of the model that the graphs are of."""
    write_description(folder, TARGET, config, {"graphs": facts.to_json(), **fields})


def read(folder: Path) -> GraphFolder:
    """The folder, its files' digests checked. Raises CheckpointError for whatever is missing or damaged; the searches
    may be missing."""
    description = read_description(folder, TARGET, may_lack=(GREEDY, BEAM))
    try:
        facts = _FACTS.validate_python(description.get("graphs"))
    except ValidationError as error:
        raise CheckpointError(f"{folder} has no usable section graphs: export the model again") from error
    place = folder.absolute()  # some files are opened later, when the process may be in another folder
    return GraphFolder(place / ENCODER, place / STEP, facts, description)


def config_of(graphs: GraphFolder, folder: Path) -> dict[str, Any]:
    """The config.json of the model that was exported. Raises CheckpointError, which names `folder`, where it cannot be
    used."""
    config = graphs.description.get("config")
    if not isinstance(config, dict) or not isinstance(config.get("decoding", {}), dict):
        raise CheckpointError(f"{folder} has no usable section config: export the model again")
    return config


def is_graph_folder(folder: Path) -> bool:
    """Whether a folder is an export to ONNX."""
    return (folder / f"repose-{TARGET}.json").is_file()
