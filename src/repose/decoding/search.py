"""Greedy and beam search over a step function, independent of the model.

A step function takes the last token of each row and the rows' state, and returns the log-probabilities of the next
token. Rows are hypotheses. A hypothesis that can no longer matter is no row, so `step` gets fewer and fewer rows.

Ranking: `normalised` = score / ((5 + |y|) / 6)^alpha (Wu et al. 2016, eq. 14, without the coverage term), where score
is the sum of log-probabilities in nats, |y| counts END, and alpha is the option `length_penalty`. PAD and START are
never chosen, and the log-probabilities of the other tokens are not renormalised: a score is the model's own, the same
as in a forced decode.

Beam search, in each step, for each sentence:
1. Its candidates (every live hypothesis with every token) are ranked by score. END among the first `beam_size` of them
   finishes a hypothesis; the first `beam_size` without END stay live. Both are among the first 2 × `beam_size`.
2. A live hypothesis is dropped when it can no longer beat the `num_hypotheses`-th best finished one. A score never
   grows, so the best it can reach is its current score over the penalty of the maximum length (alpha ≥ 0). A sentence
   ends when no live hypothesis is left. This stop is exact: searching on could not change the result, and a longer
   n-best list only appends.
3. At its maximum length a sentence ends; unfinished hypotheses are returned only if it has no finished one.

A beam of one is greedy search. It ends at its first END, although a longer output might rank higher. Ties go to the
earlier beam, then to the lower token id. Each sentence is searched as if it were alone in the batch. A token with
log-probability −inf is never chosen; if all tokens have −inf, a sentence without a finished hypothesis ends unfinished.
With `no_repeat_ngram_size` = n > 0, no hypothesis contains the same n tokens in a row twice (Paulus et al. 2017,
section 2.5): a token that would complete a repeat gets −inf.

The vocabulary is reduced on the device of the log-probabilities (`best`). The few candidates left in each row are
ranked in float64. This costs one synchronisation per step, which dropping finished rows needs anyway.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from repose.decoding.best import best_token, best_tokens, forbid, picked
from repose.decoding.options import SearchOptions
from repose.system.token_ids import END, START

Ints: TypeAlias = NDArray[np.int64]
Floats: TypeAlias = NDArray[np.float64]


class State(Protocol):
    """What a model keeps for each row between steps (a key/value cache)."""

    def select(self, rows: Ints) -> None:
        """Make new row i of old row `rows[i]`, in place; rows may repeat or be dropped. Not called if no row moves."""


S = TypeVar("S", bound=State)
Step: TypeAlias = Callable[[Ints, S], Any]
"""(last tokens (R,); state) -> log-probabilities of the next token, (R, V): a numpy array, which the search may write
to, or a torch tensor on any device."""


@dataclass(frozen=True)
class TokenHypothesis:
    """A hypothesis as token ids, without START and END. `Translator` turns it into a `Hypothesis`."""

    tokens: tuple[int, ...]
    score: float
    """Sum of log-probabilities in nats, END's included if finished."""
    finished: bool
    """False if cut at the maximum length (or where no token had a probability above zero)."""
    normalised: float
    """Score over length penalty: the ranking key."""


def greedy(step: Step[S], state: S, max_lengths: Sequence[int], options: SearchOptions) -> list[TokenHypothesis]:
    """Choose the most probable token at each step until END; return one hypothesis per sentence.

    `max_lengths`: the maximum number of new tokens of each sentence, END included. `state` has one row per sentence and
    cannot be used again. The length penalty affects only `normalised`; `beam_size` and `num_hypotheses` are ignored.
    """
    return token_by_token(step, state, max_lengths, options, lambda log_probs, *_: best_token(log_probs))


Choose: TypeAlias = Callable[[Any, Ints, int], tuple[Floats, Ints]]
"""(log-probabilities (R, V), the sentence of each row (R,), the number of the token, from 1) -> the log-probability and
the id of a token for each row, (R,); −inf if there is none."""


def token_by_token(
    step: Step[S], state: S, max_lengths: Sequence[int], options: SearchOptions, choose: Choose
) -> list[TokenHypothesis]:
    """Return one hypothesis per sentence, whose tokens `choose` picks until END; other arguments as for `greedy`."""
    limits, no_repeat = _limits(max_lengths), options.no_repeat_ngram_size
    hypotheses: dict[int, TokenHypothesis] = {}  # by sentence
    # For each row: its sentence, its maximum length, its score, its last token, and its tokens so far.
    sentences, longest, scores = np.arange(len(limits)), limits, np.zeros(len(limits))
    tokens = np.full_like(limits, START)
    prefixes = np.empty((len(limits), 0), dtype=np.int64)  # (R, length)
    length = 0
    while len(sentences):
        length += 1
        log_probs = _without_repeats(step(tokens, state), prefixes, no_repeat)
        best, tokens = choose(log_probs, sentences, length)
        prefixes = np.concatenate([prefixes, tokens[:, None]], 1)
        possible = best > -math.inf
        scores = scores + np.where(possible, best, 0.0)
        going = possible & (tokens != END)
        live = going & (longest > length)
        for row in (~live).nonzero()[0].tolist():
            # Without the last token if that is END, or not possible.
            written = tuple(prefixes[row, : length if going[row] else length - 1].tolist())
            finished, score = bool(possible[row] and not going[row]), float(scores[row])
            normalised = score / options.penalty(len(written) + finished)
            hypotheses[int(sentences[row])] = TokenHypothesis(written, score, finished, normalised)
        if not live.all():
            rows = live.nonzero()[0]
            _select(state, rows, len(sentences))
            sentences, longest, scores = sentences[rows], longest[rows], scores[rows]
            tokens, prefixes = tokens[rows], prefixes[rows]
    return [hypotheses[sentence] for sentence in range(len(limits))]


def beam_search(
    step: Step[S], state: S, max_lengths: Sequence[int], options: SearchOptions
) -> list[list[TokenHypothesis]]:
    """Return the `num_hypotheses` best of each sentence, best first: at least one, fewer if fewer were found.

    `max_lengths` and `state` as for `greedy`; rows are multiplied here, after the first step.
    """
    if options.beam_size == 1:
        return [[hypothesis] for hypothesis in greedy(step, state, max_lengths, options)]
    beams = _Beams(_limits(max_lengths), options)
    tokens = np.full(len(max_lengths), START)
    while (num_rows := len(tokens)) > 0:
        log_probs = _without_repeats(step(tokens, state), beams.prefixes, options.no_repeat_ngram_size)
        # The `beam_size` + 1 best of a row suffice: at most one END, and `beam_size` that stay live.
        rows, tokens = beams.advance(*best_tokens(log_probs, options.beam_size + 1))
        _select(state, rows, num_rows)
    return beams.results()


class _Beams:
    """The live hypotheses of sentences still being searched, and the finished ones of all sentences. Kept on the CPU.

    Shapes: `N` sentences still being searched; `K` live slots of a sentence, at most `beam_size`, best first, −inf if
    unused; `C` candidates of a sentence; `R` rows, which are the used slots, sentence by sentence.
    """

    def __init__(self, limits: Ints, options: SearchOptions) -> None:
        self.options = options
        self.sentences = np.arange(len(limits))  # (N,) index in the batch
        self.limits = limits  # (N,)
        # One number at a time: a vectorised power may round differently at another place in the batch.
        self.last_penalty = np.array([options.penalty(limit) for limit in limits.tolist()])  # (N,)
        self.scores = np.zeros((len(limits), 1))  # (N, K)
        self.prefixes = np.empty((len(limits), 0), dtype=np.int64)  # (R, tokens so far), without START
        # (N, num_hypotheses) `normalised` of the best finished ones, descending
        self.best_finished = np.full((len(limits), options.num_hypotheses), -math.inf)
        self.finished: list[list[TokenHypothesis]] = [[] for _ in range(len(limits))]

    def advance(self, values: Floats, tokens: Ints) -> tuple[Ints, Ints]:
        """Take a step: log-probabilities and ids of each row's best tokens (R, W) -> rows to keep, their tokens."""
        sums, rows, tokens = self._ranked_candidates(values, tokens)  # (N, C) each
        length = self.prefixes.shape[1] + 1  # of the candidates
        is_end = tokens == END
        self._finish(np.where(is_end, sums, -math.inf)[:, : self.options.beam_size], rows, length)
        live = np.where(is_end, -math.inf, sums)
        order = np.argsort(-live, axis=1, kind="stable")[:, : self.options.beam_size]
        live, rows, tokens = picked(order, live, rows, tokens)
        attainable = live / self.last_penalty[:, None]
        going = (attainable > self.best_finished[:, -1:]) & (length < self.limits[:, None])
        searched = going.any(1)
        for n in (~searched).nonzero()[0].tolist():
            if not self.finished[int(self.sentences[n])]:
                self._cut(n, live[n], rows[n], tokens[n])
        rows, tokens = rows[going], tokens[going]
        self.prefixes = np.concatenate([self.prefixes[rows], tokens[:, None]], 1)
        self.scores = np.where(going, live, -math.inf)[searched]
        self.sentences, self.limits = self.sentences[searched], self.limits[searched]
        self.last_penalty, self.best_finished = self.last_penalty[searched], self.best_finished[searched]
        return rows, tokens

    def results(self) -> list[list[TokenHypothesis]]:
        """Return the best hypotheses of every sentence; among ties, the one that finished first comes first."""
        return [sorted(ended, key=lambda h: -h.normalised)[: self.options.num_hypotheses] for ended in self.finished]

    def _ranked_candidates(self, values: Floats, tokens: Ints) -> tuple[Floats, Ints, Ints]:
        """Return scores, rows, tokens of all candidates (N, C), best first; ties go to the earlier beam, lower id."""
        used = self.scores > -math.inf
        row_of = (used.ravel().cumsum() - 1).reshape(used.shape)  # (N, K)
        sums = np.full((*used.shape, values.shape[1]), -math.inf)  # (N, K, W)
        sums[used] = self.scores[used][:, None] + values
        ids = np.full(sums.shape, END)
        ids[used] = tokens
        flat = sums.reshape(len(sums), -1)
        order = np.argsort(-flat, axis=1, kind="stable")
        (rows,) = picked(order // values.shape[1], row_of)
        ranked, ids = picked(order, flat, ids.reshape(flat.shape))
        return ranked, rows, ids

    def _finish(self, sums: Floats, rows: Ints, length: int) -> None:
        """Add the hypotheses that end here: `sums` (N, ≤ beam_size) are their scores, −inf where none ends."""
        normalised = sums / self.options.penalty(length)
        for n, place in np.argwhere(normalised > self.best_finished[:, -1:]).tolist():
            written = self._prefix(rows[n, place])
            hypothesis = TokenHypothesis(written, float(sums[n, place]), True, float(normalised[n, place]))
            self.finished[int(self.sentences[n])].append(hypothesis)
        both = np.concatenate([self.best_finished, normalised], 1)
        self.best_finished = -np.sort(-both, axis=1)[:, : self.options.num_hypotheses]

    def _cut(self, n: int, live: Floats, rows: Ints, tokens: Ints) -> None:
        """End a sentence without a finished hypothesis: return its live hypotheses, or those before a dead end."""
        ended, length = self.finished[int(self.sentences[n])], self.prefixes.shape[1]
        if float(live[0]) > -math.inf:
            for score, row, token in zip(live.tolist(), rows.tolist(), tokens.tolist(), strict=True):
                if score > -math.inf:
                    normalised = score / self.options.penalty(length + 1)
                    ended.append(TokenHypothesis((*self._prefix(row), token), score, False, normalised))
            return
        first_row = int((self.scores[:n] > -math.inf).sum())
        for k, score in enumerate(self.scores[n].tolist()):
            if score > -math.inf:
                normalised = score / self.options.penalty(length)
                ended.append(TokenHypothesis(self._prefix(first_row + k), score, False, normalised))

    def _prefix(self, row: int) -> tuple[int, ...]:
        return tuple(self.prefixes[row].tolist())


def _limits(max_lengths: Sequence[int]) -> Ints:
    limits = np.asarray(max_lengths, dtype=np.int64)
    assert limits.ndim == 1
    assert (limits >= 1).all()
    return limits


def _select(state: State, rows: Ints, num_rows: int) -> None:
    """Reorder the state, unless all rows stay in place or none is left."""
    if len(rows) and not np.array_equal(rows, np.arange(num_rows)):
        state.select(rows)


def _without_repeats(log_probs: Any, prefixes: Ints, n: int) -> Any:
    """Give −inf to tokens that would repeat n tokens in a row that a hypothesis already contains (n = 0: none).

    log_probs (R, V) and `prefixes` (R, T) -> (R, V).
    """
    if n == 0 or prefixes.shape[1] < n:
        return log_probs
    windows = np.lib.stride_tricks.sliding_window_view(prefixes, n, axis=1)  # (R, T - n + 1, n)
    rows, places = (windows[..., :-1] == prefixes[:, None, prefixes.shape[1] - n + 1 :]).all(2).nonzero()
    return forbid(log_probs, rows, windows[rows, places, -1])
