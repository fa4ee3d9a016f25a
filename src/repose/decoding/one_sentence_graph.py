"""Build the hypotheses of one sentence from a graph that contains the whole search (`repose.graphs.searches`).

Such a graph returns the choices of every step. These functions turn them into the hypotheses that `search` would have
found step by step.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

from repose.decoding.options import SearchOptions
from repose.decoding.search import TokenHypothesis
from repose.system.token_ids import END


class Candidates(NamedTuple):
    """The best candidates of one step of a beam search, best first: twice as many as hypotheses stay live."""

    scores: list[float]
    """Sums of log-probabilities; −inf where there is no candidate."""
    rows: list[int]
    """The row of the step that each candidate continues."""
    tokens: list[int]


def greedy_hypothesis(tokens: Sequence[int], log_probs: Sequence[float], options: SearchOptions) -> TokenHypothesis:
    """Return the hypothesis of `search.greedy` for the tokens that it chose, END included, and their log-probabilities.
    It ends at the first −inf."""
    possible = [*log_probs, -math.inf].index(-math.inf)
    finished = possible > 0 and tokens[possible - 1] == END
    written, score = tuple(tokens[: possible - finished]), sum(log_probs[:possible])
    return TokenHypothesis(written, score, finished, score / options.penalty(possible))


def beam_hypotheses(steps: Sequence[Candidates], limit: int, options: SearchOptions) -> list[TokenHypothesis]:
    """Return the hypotheses of `search.beam_search` for the candidates of its steps."""
    beam_size, num_hypotheses = options.beam_size, options.num_hypotheses
    last_penalty = options.penalty(limit)
    best, finished = [-math.inf] * num_hypotheses, []
    # For each row: its tokens so far, and the sum of their log-probabilities.
    prefixes: list[tuple[int, ...]] = [()]
    scores = [0.0]
    for length, step in enumerate(steps, 1):
        penalty, enough = options.penalty(length), best[-1]
        candidates = [x for x in zip(*step, strict=True) if x[0] > -math.inf]
        for score, row, token in candidates[:beam_size]:
            if token == END:
                normalised = score / penalty
                best.append(normalised)
                if normalised > enough:
                    finished.append(TokenHypothesis(prefixes[row], score, True, normalised))
        best = sorted(best, reverse=True)[:num_hypotheses]
        live = [x for x in candidates if x[2] != END][:beam_size]
        going = [x for x in live if x[0] / last_penalty > best[-1]] if length < limit else []
        if not going and not finished:  # cut at the limit, or at a dead end
            finished = [
                TokenHypothesis((*prefixes[row], token), score, False, score / penalty) for score, row, token in live
            ]
            shorter = options.penalty(length - 1)
            finished = finished or [
                TokenHypothesis(prefix, score, False, score / shorter)
                for prefix, score in zip(prefixes, scores, strict=True)
            ]
        prefixes = [(*prefixes[row], token) for _, row, token in going]
        scores = [score for score, _, _ in going]
    return sorted(finished, key=lambda h: -h.normalised)[:num_hypotheses]
