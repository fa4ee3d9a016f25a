"""Greedy and beam search over a step function; this module knows no model.

A step function takes the last token of each row and the rows' state, and gives the log-probabilities of the next
token. Rows are hypotheses; only hypotheses that can still matter are rows, so `step` sees fewer and fewer of them.

Ranking: `normalised` = score / ((5 + |y|) / 6)^alpha (Wu et al. 2016, eq. 14, without the coverage term), where score
is the sum of log-probabilities in nats and |y| counts END. PAD and START are never chosen, and the log-probabilities
of the rest are not renormalised: a score is the model's own, as a forced decode gives it.

Beam search, each step, each sentence:
1. Its candidates (every live hypothesis with every token) are ranked by score. END among the first `beam_size` of them
   finishes a hypothesis; the first `beam_size` without END live on. Both are found among the first 2 × `beam_size`.
2. A live hypothesis is given up when it cannot beat the `num_hypotheses`-th best finished one. A score never grows,
   so the best it can attain is its score now over the penalty of the maximum length (alpha ≥ 0). A sentence ends when
   none is left. This stop is exact: searching on could not change the result, and a longer n-best list only appends.
3. At its maximum length a sentence ends; unfinished hypotheses are returned only if it has no finished one.

A beam of one is greedy search and ends at its first END, although a longer output might rank higher. Ties go to the
earlier beam, then to the lower token id. Each sentence is searched as if it were alone in the batch. A token of
log-probability −inf is never chosen; where all are −inf, a sentence without a finished hypothesis ends unfinished.
With `no_repeat` = n > 0, a hypothesis never says the same n tokens in a row twice (Paulus et al. 2017, section 2.5):
what would complete them gets −inf.

The vocabulary is reduced on the device of the log-probabilities; what remains (a few candidates a row) is ranked on
the CPU in float64, at the price of one synchronisation a step, which dropping finished rows needs anyway.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeAlias, TypeVar, overload

import torch
from torch import Tensor

from repose.config.experiment import MAX_BEAM_SIZE, MAX_LENGTH_PENALTY
from repose.system.errors import ConfigError, ReposeError

PAD, START, END = 0, 2, 3
_CHUNK = 64  # columns reduced together first: torch's top-k and its max with indices are slow on a CPU


class State(Protocol):
    """What a model remembers of each row between steps (a key/value cache)."""

    def select(self, rows: Tensor) -> None:
        """New row i = old row `rows[i]` (int64), in place; rows may repeat or drop. Not called if nothing moves."""


S = TypeVar("S", bound=State)
Step: TypeAlias = Callable[[Tensor, S], Tensor]
"""(last tokens, int64 (R,); state) -> log-probabilities of the next token, float (R, V)."""


@dataclass(frozen=True)
class Hypothesis:
    """One output of a search, without START and END."""

    tokens: tuple[int, ...]
    score: float
    """Sum of log-probabilities in nats, END's included when finished."""
    finished: bool
    """False when cut at the maximum length (or where no token had a probability above zero)."""
    normalised: float
    """Score over length penalty: the ranking key."""


@overload
def length_penalty(length: int, alpha: float) -> float: ...
@overload
def length_penalty(length: Tensor, alpha: float) -> Tensor: ...
def length_penalty(length: int | Tensor, alpha: float) -> float | Tensor:
    """GNMT's ((5 + |y|) / 6)^alpha (Wu et al. 2016, eq. 14); `length` |y| is in tokens and counts END."""
    return ((5.0 + length) / 6.0) ** alpha


@torch.no_grad()
def greedy(step: Step[S], state: S, max_lengths: Tensor, *, alpha: float = 0.6, no_repeat: int = 0) -> list[Hypothesis]:
    """The most probable token at each step until END; one hypothesis per sentence.

    `max_lengths`: int64 (B,), the most new tokens of each sentence, END included, on the device where `step` wants its
    tokens. `state` has one row per sentence and is used up. `alpha` enters `normalised` only.
    Raises ConfigError for values out of range.
    """
    return token_by_token(
        step, state, max_lengths, lambda log_probs, *_: best_token(log_probs), alpha=alpha, no_repeat=no_repeat
    )


Choose: TypeAlias = Callable[[Tensor, Tensor, int], tuple[Tensor, Tensor]]
"""(log-probabilities (R, V), the sentence of each row (R,), which token it is, from 1) -> the log-probability, float64,
and the id of a token for each row, (R,), on the CPU; −inf where there is none."""


def token_by_token(
    step: Step[S], state: S, max_lengths: Tensor, choose: Choose, *, alpha: float = 0.6, no_repeat: int = 0
) -> list[Hypothesis]:
    """One hypothesis per sentence, each token as `choose` says, until END; the rest as for `greedy`."""
    limits = _checked_limits(max_lengths, alpha)
    totals = torch.zeros(len(limits), dtype=torch.float64)
    finished = torch.zeros(len(limits), dtype=torch.bool)
    written: list[list[int]] = [[] for _ in limits]
    # Of each row: its sentence, the longest it may get, its score, and its last token.
    sentences, longest, scores = torch.arange(len(limits)), limits, totals.clone()
    tokens = torch.full_like(limits, START)
    said = torch.empty(len(limits), 0, dtype=torch.int64)  # (R, tokens so far)
    length = 0
    while len(sentences):
        length += 1
        log_probs = step(tokens.to(max_lengths.device), state)
        best, tokens = choose(_without_repeats(log_probs, said, no_repeat), sentences, length)
        said = torch.cat([said, tokens[:, None]], 1)
        possible = best > -math.inf
        going = possible & (tokens != END)
        scores = scores + best.masked_fill_(~possible, 0.0)
        for sentence, token, goes in zip(sentences.tolist(), tokens.tolist(), going.tolist(), strict=True):
            if goes:
                written[sentence].append(token)
        live = going & (longest > length)
        if not bool(live.all()):
            totals[sentences], finished[sentences] = scores, possible & ~going
            rows = live.nonzero()[:, 0]
            _select(state, rows, len(sentences), max_lengths.device)
            sentences, longest, scores = sentences[rows], longest[rows], scores[rows]
            tokens, said = tokens[rows], said[rows]
    return [
        Hypothesis(tuple(y), score, end, score / length_penalty(len(y) + end, alpha))
        for y, score, end in zip(written, totals.tolist(), finished.tolist(), strict=True)
    ]


@torch.no_grad()
def beam_search(
    step: Step[S],
    state: S,
    max_lengths: Tensor,
    *,
    beam_size: int,
    alpha: float = 0.6,
    num_hypotheses: int = 1,
    no_repeat: int = 0,
) -> list[list[Hypothesis]]:
    """The `num_hypotheses` best of each sentence, best first: at least one, fewer where fewer were found.

    `max_lengths` and `state` as for `greedy`; rows are multiplied here, after the first step.
    Raises ConfigError for values out of range.
    """
    if not 1 <= beam_size <= MAX_BEAM_SIZE:
        raise ConfigError(f"beam_size is {beam_size}, but must be from 1 (greedy search) to {MAX_BEAM_SIZE:,}")
    if not 1 <= num_hypotheses <= beam_size:
        raise ConfigError(
            f"num_hypotheses is {num_hypotheses}, but must be between 1 and beam_size ({beam_size}): "
            "ask for fewer hypotheses or for a wider beam."
        )
    if beam_size == 1:
        return [[hypothesis] for hypothesis in greedy(step, state, max_lengths, alpha=alpha, no_repeat=no_repeat)]
    beams = _Beams(_checked_limits(max_lengths, alpha), beam_size, alpha, num_hypotheses)
    tokens = torch.full(max_lengths.shape, START)
    said = torch.empty(len(tokens), 0, dtype=torch.int64)  # (R, tokens so far)
    while (num_rows := len(tokens)) > 0:
        log_probs = _without_repeats(step(tokens.to(max_lengths.device), state), said, no_repeat)
        # A row's own `beam_size` + 1 best hold all that it can give: one END, and `beam_size` that live on.
        rows, tokens = beams.advance(*best_tokens(log_probs, beam_size + 1))
        said = torch.cat([said[rows], tokens[:, None]], 1)
        _select(state, rows, num_rows, max_lengths.device)
    return beams.results()


class _Beams:
    """The live hypotheses of the sentences that are still searched, and the finished ones of all. Lives on the CPU.

    Shapes: `N` sentences still searched, `K` live slots of a sentence, best first (at most `beam_size`; −inf where not
    used; used ones are the rows of the step, sentence by sentence), `C` candidates of a sentence, `R` rows.
    """

    def __init__(self, limits: Tensor, beam_size: int, alpha: float, num_hypotheses: int) -> None:
        self.beam_size, self.alpha, self.num_hypotheses = beam_size, alpha, num_hypotheses
        self.length = 0  # of the live hypotheses, in tokens
        self.sentences = torch.arange(len(limits))  # (N,) which of the batch
        self.limits = limits  # (N,)
        # Number by number: a vectorised power may round otherwise at another place in the batch.
        penalties = [length_penalty(limit, alpha) for limit in limits.tolist()]
        self.last_penalty = torch.tensor(penalties, dtype=torch.float64)  # (N,) at the maximum length
        self.scores = torch.zeros(len(limits), 1, dtype=torch.float64)  # (N, K)
        # (N, num_hypotheses) `normalised` of the best finished ones, descending
        self.best = torch.full((len(limits), num_hypotheses), -math.inf, dtype=torch.float64)
        self.finished: list[list[Hypothesis]] = [[] for _ in range(len(limits))]
        self.trail: list[tuple[list[int], list[int]]] = []  # per step: each row's previous row, its token

    def advance(self, values: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
        """One step on: log-probabilities and ids of each row's best tokens (R, W) -> rows to keep, their tokens."""
        sums, rows, tokens = self._ranked_candidates(values, tokens)  # (N, C) each
        self.length += 1
        is_end = tokens == END
        self._finish(sums.masked_fill(~is_end, -math.inf)[:, : self.beam_size], rows)
        live, order = sums.masked_fill(is_end, -math.inf).sort(dim=1, descending=True, stable=True)
        live, order = live[:, : self.beam_size], order[:, : self.beam_size]
        rows, tokens = rows.gather(1, order), tokens.gather(1, order)
        attainable = live / self.last_penalty[:, None]
        going = (attainable > self.best[:, -1:]) & (self.length < self.limits[:, None])
        searched = going.any(1)
        for n in (~searched).nonzero()[:, 0].tolist():
            if not self.finished[int(self.sentences[n])]:
                self._cut(n, live[n], rows[n], tokens[n])
        rows, tokens = rows[going], tokens[going]
        self.trail.append((rows.tolist(), tokens.tolist()))
        self.scores = live.masked_fill(~going, -math.inf)[searched]
        self.sentences, self.limits = self.sentences[searched], self.limits[searched]
        self.last_penalty, self.best = self.last_penalty[searched], self.best[searched]
        return rows, tokens

    def results(self) -> list[list[Hypothesis]]:
        """The best hypotheses of every sentence; of equals, the one that was finished first comes first."""
        return [sorted(ended, key=lambda h: -h.normalised)[: self.num_hypotheses] for ended in self.finished]

    def _ranked_candidates(self, values: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Scores, rows and tokens of every candidate (N, C), best first; of equals the earlier beam, the lower id."""
        used = self.scores > -math.inf
        row_of = (used.flatten().cumsum(0) - 1).view_as(used)  # (N, K)
        sums = torch.full((*used.shape, values.shape[1]), -math.inf, dtype=torch.float64)  # (N, K, W)
        sums[used] = self.scores[used][:, None] + values
        ids = torch.full(sums.shape, END)
        ids[used] = tokens
        ranked, order = sums.flatten(1).sort(dim=1, descending=True, stable=True)
        rows = row_of.gather(1, order // values.shape[1])
        return ranked, rows, ids.flatten(1).gather(1, order)

    def _finish(self, sums: Tensor, rows: Tensor) -> None:
        """Take up the hypotheses that end here: `sums` (N, ≤ beam_size) are their scores, −inf where none ends."""
        normalised = sums / length_penalty(self.length, self.alpha)
        for n, place in (normalised > self.best[:, -1:]).nonzero().tolist():
            written = self._written(int(rows[n, place]))
            hypothesis = Hypothesis(written, float(sums[n, place]), True, float(normalised[n, place]))
            self.finished[int(self.sentences[n])].append(hypothesis)
        best = torch.cat([self.best, normalised], 1).sort(1, descending=True).values
        self.best = best[:, : self.num_hypotheses]

    def _cut(self, n: int, live: Tensor, rows: Tensor, tokens: Tensor) -> None:
        """End a sentence without a finished hypothesis: return what lives now, or lived before a dead end."""
        ended = self.finished[int(self.sentences[n])]
        if float(live[0]) > -math.inf:
            for score, row, token in zip(live.tolist(), rows.tolist(), tokens.tolist(), strict=True):
                if score > -math.inf:
                    normalised = score / length_penalty(self.length, self.alpha)
                    ended.append(Hypothesis((*self._written(row), token), score, False, normalised))
            return
        first_row = int((self.scores[:n] > -math.inf).sum())
        for k, score in enumerate(self.scores[n].tolist()):
            if score > -math.inf:
                normalised = score / length_penalty(self.length - 1, self.alpha)
                ended.append(Hypothesis(self._written(first_row + k), score, False, normalised))

    def _written(self, row: int) -> tuple[int, ...]:
        """The tokens of a row of the last step, without START."""
        backwards = []
        for previous, tokens in reversed(self.trail):
            backwards.append(tokens[row])
            row = previous[row]
        return tuple(reversed(backwards))


def _checked_limits(max_lengths: Tensor, alpha: float) -> Tensor:
    """`max_lengths` on the CPU, or ConfigError."""
    if not 0 <= alpha <= MAX_LENGTH_PENALTY:
        raise ConfigError(f"the length penalty's alpha is {alpha}, but must be from 0 (none) to {MAX_LENGTH_PENALTY:g}")
    assert max_lengths.dim() == 1
    assert max_lengths.dtype == torch.int64
    limits = max_lengths.cpu()
    assert bool((limits >= 1).all())
    return limits


def _select(state: State, rows: Tensor, num_rows: int, device: torch.device) -> None:
    """Reorder the state, unless all rows stay where they are or none is left."""
    if len(rows) and not (len(rows) == num_rows and torch.equal(rows, torch.arange(num_rows))):
        state.select(rows.to(device))


def _without_repeats(log_probs: Tensor, said: Tensor, n: int) -> Tensor:
    """−inf for tokens that would complete n tokens in a row that a row has said before (n = 0: none).

    log_probs (R, V) and `said`, int64 (R, T) on the CPU -> (R, V).
    """
    if n == 0 or said.shape[1] < n:
        return log_probs
    windows = said.unfold(1, n, 1)  # (R, T - n + 1, n)
    again = (windows[..., :-1] == said[:, None, said.shape[1] - n + 1 :]).all(2)
    rows, places = again.nonzero(as_tuple=True)
    log_probs = log_probs.clone()
    log_probs[rows.to(log_probs.device), windows[rows, places, -1].to(log_probs.device)] = -math.inf
    return log_probs


# The best tokens of each row of log-probabilities: of equals those with the lowest ids; never PAD or START


def best_token(log_probs: Tensor) -> tuple[Tensor, Tensor]:
    """The best token of each row that may be chosen, of equals that with the lowest id.

    (R, V) -> log-probabilities float64 and ids (R,), on the CPU.
    """
    num_columns = log_probs.shape[1]
    # First the chunk with the best, then the best in it: torch's max with indices is slow on a CPU.
    first = log_probs[:, :_CHUNK].clone()
    first[:, PAD : START + 1 : START - PAD] = -math.inf
    maxima = [first.amax(1, keepdim=True)]
    whole = num_columns // _CHUNK * _CHUNK
    if whole > _CHUNK:
        maxima.append(log_probs[:, _CHUNK:whole].unflatten(1, (-1, _CHUNK)).amax(2))
    if whole < num_columns and whole:
        maxima.append(log_probs[:, whole:].amax(1, keepdim=True))
    chunk = torch.cat(maxima, 1).argmax(1, keepdim=True)
    columns = (chunk * _CHUNK + torch.arange(_CHUNK, device=chunk.device)).clamp_(max=num_columns - 1)
    values = log_probs.gather(1, columns).masked_fill_((columns == PAD) | (columns == START), -math.inf)
    best, place = values.max(1)
    best, tokens = best.cpu().double(), columns.gather(1, place[:, None])[:, 0].cpu()
    refuse_nan(best)
    return best, tokens


def refuse_nan(log_probs: Tensor) -> None:
    """Raise ReposeError where a log-probability is no number."""
    if bool(log_probs.isnan().any()):
        raise ReposeError(
            "the model gave NaN as a log-probability: its training may have diverged, so try an earlier checkpoint"
        )


def best_tokens(log_probs: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """At least the `width` best tokens of each row that may be chosen (fewer in a smaller vocabulary).

    (R, V) -> log-probabilities float64 and ids (R, W), on the CPU, in the order of the ids; PAD and START, which take
    two places more, are −inf. Which of equal tokens are taken is fixed: those with the lower ids.
    """
    width = min(width + 2, log_probs.shape[1])
    values, tokens = (x.cpu() for x in _topk(log_probs, min(width + 1, log_probs.shape[1])))
    refuse_nan(values)
    tied = (values[:, width - 1] == values[:, -1]) & (values[:, -1] > -math.inf)
    values = values[:, :width]
    if values.shape[1] < tokens.shape[1] and bool(tied.any()):
        # top-k took any of the tokens that equal its last: put the lowest ids in their places, in order
        last = values[tied, -1:]
        equal = log_probs[tied.to(log_probs.device)] == last.to(log_probs)
        ids = torch.arange(log_probs.shape[1], device=log_probs.device)
        lowest = torch.where(equal, ids, len(ids)).topk(width, largest=False, sorted=True).values.cpu()
        num_better = (values[tied] > last).sum(1, keepdim=True)
        place = torch.arange(width) - num_better
        tokens[tied, :width] = torch.where(place < 0, tokens[tied, :width], lowest.gather(1, place.clamp_min(0)))
    tokens, order = tokens[:, :width].sort(1)
    values = values.gather(1, order).double()
    return values.masked_fill_((tokens == PAD) | (tokens == START), -math.inf), tokens


def _topk(log_probs: Tensor, width: int) -> tuple[Tensor, Tensor]:
    """Values and ids of `torch.topk`: the `width` best of a row lie in the `width` chunks with the best maxima."""
    num_rows, num_columns = log_probs.shape
    num_chunks = num_columns // _CHUNK
    if num_chunks < 2 * width:
        return log_probs.topk(width)
    maxima = log_probs[:, : num_chunks * _CHUNK].view(num_rows, num_chunks, _CHUNK).amax(2)
    chunks = maxima.topk(width, sorted=False).indices
    inside = (chunks[:, :, None] * _CHUNK + torch.arange(_CHUNK, device=chunks.device)).flatten(1)
    rest = torch.arange(num_chunks * _CHUNK, num_columns, device=chunks.device).expand(num_rows, -1)
    columns = torch.cat([inside, rest], 1)
    values, place = log_probs.gather(1, columns).topk(width)
    return values, columns.gather(1, place)
