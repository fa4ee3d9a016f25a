"""Make the graphs of a model directory once, and cache them under a digest of weights, architecture and code."""

import contextlib
import copy
import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from repose.data.corpora import cache_home
from repose.data.tokenizer import SPECIAL_TOKENS
from repose.decoding.engine import Engine
from repose.decoding.onnx_engine import OnnxEngine, runtime_version
from repose.decoding.options import SearchOptions
from repose.decoding.search import beam_search
from repose.decoding.translator import MODEL_KIND
from repose.graphs import folder as graphs
from repose.saved_model import directory
from repose.system.code import code_digest
from repose.system.device import own_defaults
from repose.system.errors import CheckpointError
from repose.system.files import replacing_folder
from repose.system.locks import locked, making_lock, using_lock
from repose.system.token_ids import END, START

if TYPE_CHECKING:
    from repose.model.transformer import Transformer

TOLERANCE = 1e-4
"""Largest difference of a log-probability, in nats, at which fp32 graphs are accepted without a further check."""
_TIMES_OWN_ERROR = 4
"""Above `TOLERANCE`, graphs are refused if their error exceeds this many times the model's own error in fp32. Both
errors are measured against the model in fp64."""
_LENGTHS, _SEED = (3, 6, 9, 12, 15, 18, 21, 24, 128), 1  # one long sentence, for errors that need a distance
_SEARCHED, _LIMIT = 4, 12
"""Number of these sentences on which the graphs of whole searches are tried, and the longest translation there."""


def engine_of(model: Path, config: Mapping[str, Any], *, int8: bool, again: bool) -> OnnxEngine:
    """Return the engine of a model directory with this config.json, whose files have been checked. Its graphs are made
    if they are not in the cache. `again`: make them even if they were refused before with this version of ONNX Runtime.

    Raises CheckpointError for graphs that compute something else, and if the directory now holds another model;
    WriteError if the cache cannot be written.
    """
    # Weights alone do not identify the model: many axes, such as positions, have none.
    code = code_digest("model", "graphs")  # after a change to an equation, the graphs must be made again
    of = json.dumps([config["sha256"][directory.WEIGHTS], config["architecture"], code], sort_keys=True)
    digest = hashlib.sha256(of.encode()).hexdigest()
    folder = graphs_home() / f"{digest[:32]}-{'int8' if int8 else 'fp32'}"
    with contextlib.suppress(CheckpointError):
        return _cached(folder)
    refused = folder.with_name(f".{folder.name}.refused-{runtime_version()}")
    with locked(making_lock(folder)):
        with contextlib.suppress(CheckpointError):  # another process was first
            return _cached(folder)
        if refused.exists() and not again:
            raise CheckpointError("what ONNX Runtime computes differed from the model's log-probabilities")
        from repose.graphs.writing import write_graphs

        loaded = directory.load(model, MODEL_KIND)
        if loaded.config != config:
            raise CheckpointError(f"{model} holds another model than a moment ago: load it again")
        with own_defaults(), replacing_folder(folder) as temporary:
            facts = write_graphs(temporary, loaded.model, int8=int8)
            graphs.describe(temporary, config, facts, {})
            made = OnnxEngine(graphs.read(temporary))
            try:
                compare(made, loaded.model)
            except CheckpointError as error:
                with contextlib.suppress(OSError):  # the marker only saves time
                    refused.mkdir(exist_ok=True)
                raise CheckpointError(f"{error}, or engine = 'torch'") from error
        return _cached(folder)


def _cached(folder: Path) -> OnnxEngine:
    """Return the engine of graphs in the cache, which stay there while it lives. Raises as `graphs.read` does."""
    return OnnxEngine(replace(graphs.read(folder), lock=using_lock(folder)))


def graphs_home() -> Path:
    """Return the cache's folder of graphs."""
    return cache_home() / "onnx"


def can_make() -> bool:
    """Return whether the extra `fast` is installed."""
    return all(find_spec(name) is not None for name in ("onnxruntime", "onnx"))


def compare(engine: OnnxEngine, model: "Transformer") -> float:
    """Return the largest difference of a log-probability, in nats, between graphs and model on random sentences.

    Raises CheckpointError in fp32 if it is above `TOLERANCE`, unless the model's own rounding error is about as large,
    and in both precisions if graphs of whole searches compute other scores than the steps do.
    """
    from repose.decoding.torch_engine import TorchEngine

    generator = np.random.default_rng(_SEED)

    def drawn(vocab_size: int, most: int) -> list[list[int]]:
        first, lengths = min(len(SPECIAL_TOKENS), vocab_size - 1), [min(length, most) for length in _LENGTHS]
        ids = [generator.integers(first, vocab_size, max(0, n - 2)).tolist() for n in lengths]
        return [[START, *words, END][:n] for words, n in zip(ids, lengths, strict=True)]

    sources = drawn(model.src_vocab_size, engine.max_length)
    targets = drawn(model.tgt_vocab_size, engine.max_length + 1)  # the last token is no input

    def scores(computing: Engine) -> NDArray[np.float64]:
        return np.concatenate([forced.log_probs for forced in computing.force(sources, targets)], dtype=np.float64)

    ours, theirs = scores(TorchEngine(model)), scores(engine)
    largest = _difference(ours, theirs)
    if engine.precision == "fp32" and not largest <= TOLERANCE:
        exact = scores(TorchEngine(copy.deepcopy(model).double()))
        allowed = max(TOLERANCE, _TIMES_OWN_ERROR * _difference(ours, exact))
        if not _difference(theirs, exact) <= allowed:
            raise CheckpointError(
                f"what ONNX Runtime computes differs from the model's log-probabilities by {largest:.1e}, so nothing "
                "was written: try another version of it"
            )
    _check_searches(engine, sources[:_SEARCHED], largest)
    return largest


def _check_searches(engine: OnnxEngine, sources: Sequence[Sequence[int]], largest: float) -> None:
    """Raise CheckpointError if most sentences, searched in one call, get a score that their tokens do not have step by
    step, or in fp32 another translation. A few may get another: two words can be so close that rounding decides.

    `largest`: the largest difference of a step's log-probability from the model's; scores may differ by as much for
    each token.
    """
    limit, allowed = min(_LIMIT, engine.max_length), max(TOLERANCE, largest)
    rounds = engine.precision != "fp32" or largest > TOLERANCE  # rounding decides between many words
    for beam_size in (1, 4):
        options, differ = SearchOptions(beam_size), []
        for source in sources:
            if (found := engine.search(source, limit, options)) is None:  # it goes step by step anyway
                continue
            tokens = [START, *found[0].tokens, *([END] if found[0].finished else [])]
            (forced,) = engine.force([source], [tokens])
            is_near = abs(found[0].score - forced.log_probs.sum()) <= len(tokens) * allowed
            by_steps = beam_search(engine.step, engine.start([source]), [limit], options)[0][0]
            differ.append(not is_near or not (rounds or found[0].tokens == by_steps.tokens))
        if 2 * sum(differ) > len(differ):
            raise CheckpointError(
                f"what ONNX Runtime finds in one call with a beam of {beam_size} differs from the same search step by "
                "step, so nothing was written: try another version of it"
            )


def _difference(some: NDArray[np.float64], others: NDArray[np.float64]) -> float:
    """Return the largest difference; where both are −inf, there is none."""
    with np.errstate(invalid="ignore"):
        return float(np.where(some == others, 0.0, np.abs(some - others)).max())
