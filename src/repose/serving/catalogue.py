"""The models that are served, and which of them translates from which language into which. Loads no torch."""

import contextlib
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from repose.data.language import UNKNOWN
from repose.data.tags import Taught, taught
from repose.data.tokenizer import Tokenizer
from repose.decoding.lengths import Lengths
from repose.decoding.options import DEFAULTS
from repose.decoding.translator import MODEL_KIND
from repose.documents.alignment import Spans
from repose.graphs import folder as graphs
from repose.model.presets import preset_name
from repose.runs.folder import about_model
from repose.saved_model import directory, hub
from repose.saved_model.description import description_file
from repose.serving.languages import canonical, name_of, shown
from repose.serving.refusals import RequestError
from repose.system.errors import CheckpointError, ConfigError

_BYTES_OF_TOKEN = 4  # about; what a queue holds and which sentences are of like length needs no more


@dataclass(frozen=True)
class ServedModel:
    """What the front process knows of a model: enough to split a text and to count its tokens."""

    path: Path
    source: str
    """Canonical."""
    target: str
    tag: str | None
    """What it reads before a source by itself."""
    tags: frozenset[str]
    """What else it can be told to read."""
    also: tuple[Taught, ...]
    """What it was trained on beside pairs of its own languages."""
    lengths: Lengths
    """How long sources may be."""
    scripts: frozenset[str] | None
    """Scripts that training saw; None where the model does not say."""
    spans: Spans
    """Where its tokens stand in texts."""
    about: dict[str, Any]
    """For /models."""
    beam_size: int = DEFAULTS.beam_size
    """The beam that it searches with unless told otherwise."""
    stamp: str = ""
    """The stamp of its files: see `stamp_of`."""

    def size(self, text: str) -> int:
        """Tokens of a sentence, about: counted only of one that may be longer than the model reads."""
        short = self.lengths.most_tokens(text) <= self.lengths.longest
        return 2 + len(text.encode()) // _BYTES_OF_TOKEN if short else self.lengths.num_tokens(text)


class Direction(NamedTuple):
    """A model that translates from one language into another."""

    source: str
    target: str
    model: ServedModel
    place: int
    """Where the model stands in the list of all."""
    tag: str | None
    """To be read before each source; None: the model's own, if it has one."""


class Catalogue:
    """Models, and the directions they serve."""

    def __init__(self, models: Sequence[ServedModel]) -> None:
        """Raises ConfigError where two models serve the same direction."""
        self.models = list(models)
        self._directions: dict[tuple[str, str], Direction] = {}
        for place, model in enumerate(models):
            for direction in _directions(place, model):
                if (other := self._directions.get(direction[:2])) is not None:
                    raise ConfigError(
                        f"{other.model.path} and {model.path} both translate from {direction.source} into "
                        f"{direction.target}: serve one of them, or each on a port of its own"
                    )
                self._directions[direction[:2]] = direction
        self.sources = list(dict.fromkeys(source for source, _ in self._directions))
        """Languages that can be translated from, those of the first model first."""
        self.languages = sorted({language for pair in self._directions for language in pair})
        self.first = next(iter(self._directions.values()))
        """What a page begins with."""

    def targets(self, source: str) -> list[str]:
        """Languages that it can be translated into, as they are shown, sorted."""
        return sorted(shown(target) for start, target in self._directions if start == source)

    def direction(self, source: str, target: str) -> Direction | None:
        """The direction between two canonical codes; None where they are the same. Raises RequestError."""
        if source == target:
            return None
        found = self._directions.get((source, target))
        if found is None:
            raise RequestError(
                400,
                f"{name_of(target)} ({shown(target)}) is not available as a target language from "
                f"{name_of(source)} ({shown(source)})",
            )
        return found

    def to_json(self) -> list[dict[str, object]]:
        """/languages."""
        return [{"code": shown(code), "name": name_of(code), "targets": self.targets(code)} for code in self.languages]

    def models_json(self) -> list[dict[str, object]]:
        """/models."""
        return [
            {"source": shown(d.source), "target": shown(d.target), **d.model.about} for d in self._directions.values()
        ]


def read_catalogue(runs: Sequence[Path], languages: Sequence[str]) -> Catalogue:
    """The catalogue of run or model directories, exports to ONNX, and models on a hub. `languages`: `pt:en` for each
    whose config does not know them, in order.

    Raises CheckpointError for a directory, ConfigError for languages.
    """
    left = list(languages)
    models = [_read_model(path, left) for path in runs]
    if left:
        raise ConfigError(f"--lang {left[0]} belongs to no model: each run here says its languages itself")
    return Catalogue(models)


def _read_model(path: Path, left: list[str]) -> ServedModel:
    stamp = stamp_of(path)
    files = _read_files(path)
    place, limit, tokenizers, config = files[:4]
    source, target = (str(config.get(name, "und")) for name in ("src_lang", "tgt_lang"))
    if "und" in (source, target) and not left:
        raise ConfigError(f"{path} does not say its languages: name them, as in --lang pt:en")
    if "und" in (source, target):
        source, target = _pair(left.pop(0))
    src, tgt = directory.source_tokenizer(tokenizers[0], config), tokenizers[1]
    scripts = config.get("src_scripts")
    return ServedModel(
        path=place,
        source=canonical(source),
        target=canonical(target),
        tag=config.get("tag"),
        tags=frozenset(src.tags),
        also=tuple(taught(config)[1:]),
        lengths=Lengths.of(src, config, limit, tagged=config.get("tag") is not None),
        scripts=frozenset(map(str, scripts)) if isinstance(scripts, list) else None,
        spans=Spans.of(src, tgt),
        about=_about(path, files),
        beam_size=config.get("decoding", {}).get("beam_size", DEFAULTS.beam_size),
        stamp=stamp,
    )


def stamp_of(path: Path) -> str:
    """The digest of the file that describes a model, and holds the digests of its others; "" where there is none."""
    place = hub.local_folder(path)
    is_export = graphs.is_graph_folder(place)
    described = place / description_file("onnx") if is_export else directory.locate(place) / directory.CONFIG
    try:
        return hashlib.sha256(described.read_bytes()).hexdigest()
    except OSError:
        return ""


class _Files(NamedTuple):
    place: Path
    max_length: int
    tokenizers: tuple[Tokenizer, Tokenizer]
    config: dict[str, Any]
    exported: graphs.GraphFolder | None = None
    """Of an export to ONNX."""


def _read_files(path: Path) -> _Files:
    """Of a run directory, a model directory, an export to ONNX, or a model on a hub; all but the weights."""
    place = hub.local_folder(path)
    if graphs.is_graph_folder(place):
        found = graphs.read(place)
        config = graphs.config_of(found, path)
        src, tgt = directory.read_tokenizers(place, found.description["sha256"], MODEL_KIND, config)
        return _Files(place, found.facts.max_length, (src, tgt), config, found)
    (src, tgt), config = directory.load_without_weights(place, MODEL_KIND)
    return _Files(place, directory.architecture_in(config, place).max_length, (src, tgt), config)


def _pair(text: str) -> tuple[str, str]:
    source, colon, target = text.partition(":")
    if not (colon and source.isascii() and target.isascii() and source.strip() and target.strip()):
        raise ConfigError(f"--lang {text!r} names no two languages: write it as pt:en")
    return source.strip(), target.strip()


def _directions(place: int, model: ServedModel) -> list[Direction]:
    """The model's own; and of one that was trained for several, each with its target as its tag, the others that it
    says, and the opposite one."""
    found = {(model.source, model.target): Direction(model.source, model.target, model, place, None)}
    if model.tag is None or canonical(model.tag) != model.target:
        return list(found.values())
    back = next((tag for tag in sorted(model.tags) if canonical(tag) == model.source), None)
    for tag, src, tgt in [*model.also, Taught(back, model.target, model.source)]:
        source, target = canonical(src), canonical(tgt)
        if UNKNOWN not in (source, target) and source != target and tag in model.tags:
            found.setdefault((source, target), Direction(source, target, model, place, tag))
    return list(found.values())


def _about(path: Path, files: _Files) -> dict[str, Any]:
    """What there is to say of a model: never more than its files do."""
    place, config, exported = files.place, files.config, files.exported
    if exported is not None:
        digest, known = exported.description.get("weights_sha256"), exported.description.get("about")
    else:
        digests = config.get("sha256")
        digest = digests.get(directory.WEIGHTS) if isinstance(digests, dict) else None
        known = about_model(directory.locate(place))
    known = known if isinstance(known, dict) else {}
    preset = None
    with contextlib.suppress(CheckpointError):  # an export may be of an architecture that is only known elsewhere
        preset = preset_name(directory.architecture_in(config, place))
    return {
        "name": path.resolve().name,
        "run_id": config.get("run_id"),
        "sha256": digest,
        "preset": preset,
        "parameters": known.get("parameters"),
        "precision": None if exported is None else exported.facts.precision,  # of another, what the server is asked for
        "looks_ahead": bool(config.get("looks_ahead")),
        "finished": known.get("finished"),
        "scores": known.get("scores"),
    }
