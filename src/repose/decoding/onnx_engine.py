"""The engine `onnx`: computes with graphs exported from a model (`repose.graphs`), through ONNX Runtime, on a CPU.

It needs neither torch nor onnx. It uses one thread: a step is many small operations, and several processes keep all
cores busy.
"""

import contextlib
import os
import pickle
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repose.decoding.best import refuse_nan
from repose.decoding.engine import Engine, padded
from repose.decoding.one_sentence_graph import Candidates, beam_hypotheses, greedy_hypothesis
from repose.decoding.options import SearchOptions
from repose.decoding.search import Ints, TokenHypothesis
from repose.graphs.folder import TARGET, GraphFolder
from repose.saved_model.description import read_description
from repose.system.device import keep_freed_memory
from repose.system.errors import CheckpointError, MissingExtraError
from repose.system.locks import share_lock
from repose.system.token_ids import START

_LARGE = 1 << 26
"""Size of a step's graph in bytes above which products with weights take most of the time."""


class OnnxState:
    """Rows of a decoding: W cells side by side for each of N sentences, so that each sentence's memory is stored once.

    A sentence with fewer rows than others has cells that repeat one of its rows; their results are ignored.
    """

    def __init__(self, memory: dict[str, NDArray[np.float32]], cache: dict[str, NDArray[np.float32]]) -> None:
        self.memory, self.cache = memory, cache
        self.num_sentences, self.width, self.length = len(memory["src_bias"]), 1, 0
        self.sentences = np.arange(self.num_sentences)
        """The sentence of each row."""
        self.cells: Ints | None = None
        """The cell of each row; None if rows and cells are the same."""

    def select(self, rows: Ints) -> None:
        """See `search.State`."""
        sentences = self.sentences[rows]
        if self.cells is None and np.array_equal(sentences, self.sentences):  # rows only move within sentences
            self.cache = {name: x.take(rows, axis=0) for name, x in self.cache.items()}
            return
        live, sentences, counts = np.unique(sentences, return_inverse=True, return_counts=True)
        if len(live) < self.num_sentences:
            self.memory = {name: x[live] for name, x in self.memory.items()}
        self.num_sentences, self.width, self.sentences = len(live), int(counts.max()), sentences
        old = rows if self.cells is None else self.cells[rows]
        if len(rows) == self.num_sentences * self.width and (np.diff(sentences) >= 0).all():
            self.cells = None
        else:
            order = np.argsort(sentences, kind="stable")
            first = (counts.cumsum() - counts)[sentences[order]]
            self.cells = np.empty_like(rows)
            self.cells[order] = sentences[order] * self.width + np.arange(len(rows)) - first
            grid = np.repeat(old[order][counts.cumsum() - counts], self.width)
            grid[self.cells] = old
            old = grid
        self.cache = {name: x.take(old, axis=0) for name, x in self.cache.items()}

    def grid(self, tokens: Ints) -> Ints:
        """Arrange the rows' tokens as cells, (N, W)."""
        if self.cells is not None:
            cells = np.full(self.num_sentences * self.width, START)
            cells[self.cells] = tokens
            tokens = cells
        return tokens.reshape(self.num_sentences, self.width)


class OnnxEngine(Engine):
    """ONNX Runtime sessions of an encoder, a decoding step and, if exported, whole searches."""

    name = "onnx"
    device_type = "cpu"
    looks_ahead = False
    can_share = True

    def __init__(self, graphs: GraphFolder) -> None:
        """Raises ConfigError without ONNX Runtime; CheckpointError if it cannot read the graphs, or if the graphs have
        changed since the folder was read."""
        self.graphs, facts = graphs, graphs.facts
        if graphs.lock is not None:
            share_lock(graphs.lock, self)
        self.precision = facts.precision
        self.max_length = facts.max_length
        self._encoder, self._step = (_session(path) for path in (graphs.encoder, graphs.step))
        if not self._is_as_it_was():
            raise CheckpointError(f"{graphs.encoder.parent} was replaced since it was read: load it again")
        self._searches: dict[bool, Any] = {}  # keyed by whether the search is greedy; None if there is no graph
        self._memory = ["src_bias", *facts.memory]
        self._cache = [tensor.name for tensor in facts.cache]
        self._results = ["log_probs", *(f"new_{name}" for name in self._cache)]
        self._attention = [f"attention_{index}" for index in range(facts.num_layers)]
        self._check_facts()

    def _check_facts(self) -> None:
        """Raises CheckpointError if inputs and outputs of the graphs are not those that the folder describes."""
        facts = self.graphs.facts
        shapes: dict[str, list[int | str]] = {"log_probs": ["R", facts.tgt_vocab_size]}
        shapes |= {f"{when}_{tensor.name}": tensor.shape for tensor in facts.cache for when in ("past", "new")}
        past = [f"past_{name}" for name in self._cache]
        for graph, inputs, outputs in (
            (self._encoder, ["src"], self._memory),
            (self._step, ["tokens", "at", *self._memory, *past], [*self._results, *self._attention]),
        ):
            read, written = ({x.name: x.shape for x in side} for side in (graph.get_inputs(), graph.get_outputs()))
            right = sorted(read) == sorted(inputs) and written.keys() >= set(outputs)
            if not (right and all(_fits(shape, shapes.get(name, shape)) for name, shape in (read | written).items())):
                raise CheckpointError(
                    f"inputs and outputs of the graphs in {self.graphs.encoder.parent} are not those that it "
                    "names: export the model again"
                )

    @classmethod
    def of_message(cls, graphs: GraphFolder) -> "OnnxEngine":
        """The engine, for a process of its own."""
        keep_freed_memory()
        return cls(graphs)

    def __reduce__(self) -> tuple[type["OnnxEngine"], tuple[GraphFolder]]:
        return OnnxEngine, (self.graphs,)  # a copy opens the graphs itself, on this machine

    def message(self) -> bytes:
        """See `Engine`: the message says where the graphs are."""
        return pickle.dumps((OnnxEngine.of_message, self.graphs))

    def search(self, source: Sequence[int], limit: int, options: SearchOptions) -> list[TokenHypothesis] | None:
        """See `Engine`. None for a large model: it would gain nothing, and its weights would be in memory twice."""
        is_greedy = options.beam_size == 1
        if is_greedy not in self._searches:
            self._searches[is_greedy], path = None, self.graphs.search(options.beam_size)
            if path.is_file() and self.graphs.step.stat().st_size < _LARGE:
                with contextlib.suppress(CheckpointError):  # such a graph only saves time
                    session = _session(path, weights=self.graphs.step)
                    self._searches[is_greedy] = session if self._is_as_it_was() else None
        if (session := self._searches[is_greedy]) is None:
            return None
        feeds = {"limit": np.array(limit), **self._encoded([source])}
        if is_greedy:
            tokens, log_probs, *best = session.run(None, feeds)
            refuse_nan(log_probs)
            if best and (tokens != best[0]).any():  # the rough numbers chose a wrong token, which is rare
                return None
            return [greedy_hypothesis(tokens.ravel().tolist(), log_probs.ravel().tolist(), options)]
        width = min(options.beam_size + 1, self.graphs.facts.tgt_vocab_size)
        numbers = {"beam_size": options.beam_size, "width": width, "num_hypotheses": options.num_hypotheses}
        feeds |= {name: np.array([number]) for name, number in numbers.items()}
        feeds["penalties"] = np.array([options.penalty(length) for length in range(limit + 1)])
        *candidates, sums = session.run(["scores", "rows", "tokens", "sums"], feeds)
        refuse_nan(sums)
        steps = [Candidates(*step) for step in zip(*(each.tolist() for each in candidates), strict=True)]
        return beam_hypotheses(steps, limit, options)

    def _is_as_it_was(self) -> bool:
        """Return whether the folder's description is the one that was read: another export may have replaced it.
        Checked after a file is opened. Graphs without a description are not shared with anyone."""
        if not self.graphs.description:
            return True
        try:
            return read_description(self.graphs.encoder.parent, TARGET, check_files=False) == self.graphs.description
        except CheckpointError:
            return False

    def _encoded(self, sources: Sequence[Sequence[int]]) -> dict[str, NDArray[np.float32]]:
        return dict(zip(self._memory, self._encoder.run(self._memory, {"src": padded(sources)}), strict=True))

    def start(self, sources: Sequence[Sequence[int]]) -> OnnxState:
        """See `Engine`."""
        memory = self._encoded(sources)
        cache = {
            tensor.name: np.zeros(
                (len(sources), *((tensor.groups, 0) if tensor.groups else ()), tensor.width), np.float32
            )
            for tensor in self.graphs.facts.cache
        }
        return OnnxState(memory, cache)

    def step(self, tokens: Ints, state: OnnxState) -> NDArray[np.float32]:
        """See `Engine`."""
        log_probs, *_ = self._run(tokens, state, self._results)
        return log_probs if state.cells is None else log_probs[state.cells]

    def _run(self, tokens: Ints, state: OnnxState, outputs: list[str]) -> list[NDArray[np.float32]]:
        """Compute one step, and return its `outputs`: log-probabilities first, then the rows' cache, then others."""
        past = {f"past_{name}": x for name, x in state.cache.items()}
        at = np.array(state.length)
        results = self._step.run(outputs, {"tokens": state.grid(tokens), "at": at, **state.memory, **past})
        state.cache = dict(zip(self._cache, results[1 : 1 + len(self._cache)], strict=True))
        state.length += 1
        return list(results)

    def attention(self, source: Sequence[int], tokens: Sequence[int]) -> NDArray[np.float32]:
        """See `Engine`. Computed token by token."""
        state, rows = self.start([source]), []
        for token in tokens:
            results = self._run(np.array([token]), state, [*self._results, *self._attention])
            layers = results[len(self._results) :]
            rows.append(np.stack([x.reshape(-1, x.shape[-1]) for x in layers]))  # (layers, heads, source)
        return np.stack(rows, 2)


def _fits(shape: Sequence[int | str], described: Sequence[int | str]) -> bool:
    """Return whether a shape matches its description; only sizes that are numbers in both are compared."""
    pairs = zip(shape, described, strict=False)
    return len(shape) == len(described) and all(a == b for a, b in pairs if isinstance(a, int) and isinstance(b, int))


def runtime_version() -> str:
    """Return the version of ONNX Runtime. Raises ConfigError if it cannot be imported."""
    return str(_runtime().__version__)


def _runtime() -> Any:
    os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")  # ONNX Runtime sends telemetry unless told not to
    try:
        import onnxruntime
    except ImportError as error:
        raise MissingExtraError(
            f"this engine needs ONNX Runtime, which cannot be imported ({error}): pip install 'repose-nmt[fast]', or "
            "'repose-nmt[runtime]' without torch"
        ) from error
    return onnxruntime


def _session(path: Path, *, weights: Path | None = None) -> Any:
    """Open a graph. `weights`: for a graph of a whole search, the file beside it that holds its weights. It is read
    into memory: ONNX Runtime would map it, and compute with whatever is later written over it. Such a graph does not
    keep memory between calls, as the C library is faster for its small tensors."""
    ort = _runtime()
    options = ort.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.add_session_config_entry("session.intra_op.allow_spinning", "0")
    options.enable_cpu_mem_arena = weights is None
    options.enable_mem_pattern = False  # a pattern would be kept for each shape, and a search has many
    options.log_severity_level = 3
    try:
        if weights is not None:
            content = weights.read_bytes()
            options.add_external_initializers_from_files_in_memory([weights.name], [content], [len(content)])
        return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # its exceptions have no common class
        first = str(error).splitlines()[0]
        raise CheckpointError(f"ONNX Runtime {ort.__version__} cannot read {path}: {first}") from error
