"""The served models, and which model translates which direction. Loads no torch."""

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
from repose.graphs import folder as graphs
from repose.model.presets import preset_name
from repose.saved_model import directory, hub
from repose.saved_model.description import description_file
from repose.saved_run.folder import about_model, model_warnings
from repose.serving.languages import canonical, name_of, shown
from repose.serving.refusals import RequestError
from repose.system.errors import CheckpointError, ConfigError

_BYTES_OF_TOKEN = 4  # roughly; enough to bound the queue and to batch sentences of similar length


@dataclass(frozen=True)
class ServedModel:
    """What the front process knows about a model: enough to split texts and to count their tokens."""

    path: Path
    source: str
    """Canonical code of the source language."""
    target: str
    tag: str | None
    """Tag that the model reads before a source by default."""
    tags: frozenset[str]
    """Tags that the model can be told to read."""
    also: tuple[Taught, ...]
    """Kinds of pairs that it was trained on besides pairs of its own languages."""
    lengths: Lengths
    """Limits on the length of sources, in tokens, and the source tokenizer."""
    scripts: frozenset[str]
    """Scripts of the training's sources; empty if the model does not state them."""
    tgt_tokenizer: Tokenizer
    about: dict[str, Any]
    """The model's entry in the answer of /models."""
    beam_size: int = DEFAULTS.beam_size
    """Default beam size."""
    stamp: str = ""
    """Identifies its files; see `stamp_of`."""

    def size(self, text: str) -> int:
        """Estimate a sentence's number of tokens; count them if it may be longer than the model reads."""
        short = self.lengths.tokenizer.most_tokens(text) <= self.lengths.longest
        return 2 + len(text.encode()) // _BYTES_OF_TOKEN if short else self.lengths.num_tokens(text)


class Direction(NamedTuple):
    """A source and a target language, and the model that translates between them."""

    source: str
    target: str
    model: ServedModel
    place: int
    """Index of the model in `Catalogue.models`."""
    tag: str | None
    """Tag to read before each source; None for the model's default, if it has one."""


class Catalogue:
    """The served models and their directions."""

    def __init__(self, models: Sequence[ServedModel]) -> None:
        """Raises ConfigError if two models serve the same direction."""
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
        """Source languages, the first model's first."""
        self.languages = sorted({language for pair in self._directions for language in pair})
        self.first = next(iter(self._directions.values()))
        """The direction that the page starts with."""

    def targets(self, source: str) -> list[str]:
        """Return the target languages for a source language, sorted, with their codes as clients see them."""
        return sorted(shown(target) for start, target in self._directions if start == source)

    def direction(self, source: str, target: str) -> Direction | None:
        """Return the direction between two canonical codes; None if they are equal.

        Raises RequestError if no model serves the direction.
        """
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
        """Return the answer of /languages."""
        return [{"code": shown(code), "name": name_of(code), "targets": self.targets(code)} for code in self.languages]

    def models_json(self) -> list[dict[str, object]]:
        """Return the answer of /models."""
        return [
            {"source": shown(d.source), "target": shown(d.target), **d.model.about} for d in self._directions.values()
        ]


def read_catalogue(runs: Sequence[Path], languages: Sequence[str]) -> Catalogue:
    """Read the catalogue of run directories, model directories, exports to ONNX, and models on a hub.

    `languages`: a pair such as `pt:en` for each model whose config does not state its languages, in order.

    Raises CheckpointError for a directory that cannot be used, ConfigError for languages that are missing, malformed or
    superfluous, and if two models serve the same direction.
    """
    left = list(languages)
    models = [_read_model(path, left) for path in runs]
    if left:
        raise ConfigError(f"--lang {left[0]} belongs to no model: every model here states its own languages")
    return Catalogue(models)


def _read_model(path: Path, left: list[str]) -> ServedModel:
    """Read a run directory, a model directory, an export to ONNX, or a model on a hub, without the weights."""
    stamp, place = stamp_of(path), hub.local_folder(path)
    exported = graphs.read(place) if graphs.is_graph_folder(place) else None
    if exported is not None:
        config, limit = graphs.config_of(exported, path), exported.facts.max_length
        tokenizers = directory.read_tokenizers(place, exported.description["sha256"], MODEL_KIND, config)
    else:
        tokenizers, config = directory.load_without_weights(place, MODEL_KIND)
        limit = directory.architecture_in(config, place).max_length
    source, target = (str(config.get(name, "und")) for name in ("src_lang", "tgt_lang"))
    if "und" in (source, target) and not left:
        raise ConfigError(f"{path} does not state its languages: name them, as in --lang pt:en")
    if "und" in (source, target):
        source, target = _pair(left.pop(0))
    src = directory.source_tokenizer(tokenizers[0], config)
    scripts = config.get("src_scripts")
    return ServedModel(
        path=place,
        source=canonical(source),
        target=canonical(target),
        tag=config.get("tag"),
        tags=frozenset(src.tags),
        also=tuple(taught(config)[1:]),
        lengths=Lengths.of(src, config, limit, tagged=config.get("tag") is not None),
        scripts=frozenset(map(str, scripts)) if isinstance(scripts, list) else frozenset(),
        tgt_tokenizer=tokenizers[1],
        about=_about(path, place, config, exported),
        beam_size=config.get("decoding", {}).get("beam_size", DEFAULTS.beam_size),
        stamp=stamp,
    )


def stamp_of(path: Path) -> str:
    """Return the SHA-256 of the file that describes a model, or "" if it has none. The file holds the digests of the
    model's other files."""
    place = hub.local_folder(path)
    is_export = graphs.is_graph_folder(place)
    described = place / description_file("onnx") if is_export else directory.locate(place) / directory.CONFIG
    try:
        return hashlib.sha256(described.read_bytes()).hexdigest()
    except OSError:
        return ""


def _pair(text: str) -> tuple[str, str]:
    source, colon, target = text.partition(":")
    if not (colon and source.isascii() and target.isascii() and source.strip() and target.strip()):
        raise ConfigError(f"--lang {text!r} does not name two languages: write it as pt:en")
    return source.strip(), target.strip()


def _directions(place: int, model: ServedModel) -> list[Direction]:
    """Return the directions that a model serves: its own, and more if it was trained for several target languages with
    their tags. These are the pairs that its config lists, and the reverse of its own."""
    found = {(model.source, model.target): Direction(model.source, model.target, model, place, None)}
    if model.tag is None or canonical(model.tag) != model.target:
        return list(found.values())
    back = next((tag for tag in sorted(model.tags) if canonical(tag) == model.source), None)
    for tag, src, tgt in [*model.also, Taught(back, model.target, model.source)]:
        source, target = canonical(src), canonical(tgt)
        if UNKNOWN not in (source, target) and source != target and tag in model.tags:
            found.setdefault((source, target), Direction(source, target, model, place, tag))
    return list(found.values())


def _about(path: Path, place: Path, config: dict[str, Any], exported: graphs.GraphFolder | None) -> dict[str, Any]:
    """Return a model's entry in the answer of /models. All facts come from its files, in `place`."""
    if exported is not None:
        digest, known = exported.description.get("weights_sha256"), exported.description.get("about")
    else:
        digests = config.get("sha256")
        digest = digests.get(directory.WEIGHTS) if isinstance(digests, dict) else None
        known = about_model(directory.locate(place))
    known = known if isinstance(known, dict) else {}
    preset = None
    with contextlib.suppress(CheckpointError):  # this version may not know the architecture of an export
        preset = preset_name(directory.architecture_in(config, place))
    return {
        "name": path.resolve().name,
        "run_id": config.get("run_id"),
        "sha256": digest,
        "preset": preset,
        "parameters": known.get("parameters"),
        "precision": None if exported is None else exported.facts.precision,  # None: the server's setting applies
        "looks_ahead": bool(config.get("looks_ahead")),
        "warnings": model_warnings(config),
        "finished": known.get("finished"),
        "scores": known.get("scores"),
    }
