"""The pairs of a scored corpus that are kept: the best so many, or those above a threshold."""

from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from repose.bulk.plan import KEPT, Plan
from repose.bulk.storage import Store, open_input
from repose.data.lines import on_one_line
from repose.system.errors import DataError
from repose.system.terminal import reasons


@dataclass(frozen=True)
class Filtered:
    """What was kept."""

    kept: int
    lines: int
    lowest: float
    """Score of the worst pair that was kept."""
    dropped: Counter[str]
    """Pairs that no threshold would keep, by reason."""


def filter_pairs(store: Store, plan: Plan, *, keep: int | None, threshold: float | None) -> Filtered:
    """Write `kept.src` and `kept.tgt` from the inputs and the merged scores, in the order of the inputs.

    Of equal scores the first are kept; pairs with a reason never. Holds some ten bytes for each pair in memory. Raises
    DataError where nothing is left, or an input has changed; and WriteError.
    """
    scores, dropped = _scores(store, plan)
    chosen = scores >= 0
    if threshold is not None:
        chosen &= scores >= threshold
    if keep is not None and keep < int(chosen.sum()):
        lowest = np.partition(scores, -keep)[-keep]
        chosen = scores > lowest
        chosen[np.flatnonzero(scores == lowest)[: keep - int(chosen.sum())]] = True
    if not chosen.any():
        raise _nothing(plan, dropped, threshold)
    with ExitStack() as stack:
        places = [stack.enter_context(store.replacing(name)) for name in KEPT]
        sides = [stack.enter_context(place.open("w", encoding="utf-8", newline="\n")) for place in places]
        for number, texts in enumerate(_pairs(store, plan)):
            if chosen[number]:
                for side, text in zip(sides, texts, strict=True):
                    side.write(on_one_line(text) + "\n")
    return Filtered(int(chosen.sum()), plan.lines, float(scores[chosen].min()), dropped)


def reasons_of(dropped: Counter[str]) -> str:
    """Each reason with its number of pairs, the most frequent first."""
    return reasons(dict(dropped.most_common()))


def _nothing(plan: Plan, dropped: Counter[str], threshold: float | None) -> DataError:
    """One sentence for a corpus of which nothing is kept."""
    if plan.lines and dropped.total() == plan.lines:
        return DataError(
            f"no pair is left, since each has a reason against it ({reasons_of(dropped)}): look at the corpus"
        )
    why = f", with reasons against {dropped.total():,} ({reasons_of(dropped)})" if dropped else ""
    remedy = "look at the scores" if threshold is None else "give another --threshold, and look at the scores"
    return DataError(f"no pair is left{why}: {remedy}")


def _scores(store: Store, plan: Plan) -> tuple[NDArray[np.float32], Counter[str]]:
    """Each pair's score, -1 where there is a reason not to keep it; and how often each reason was given."""
    dropped: Counter[str] = Counter()

    def read() -> Iterator[float]:
        with open_input(store.place(plan.job.merged)) as file:
            for line in file:
                score, _, _, reason = line.decode().rstrip("\n").split("\t")
                if reason:
                    dropped[reason] += 1
                yield -1.0 if reason else float(score)

    return np.fromiter(read(), np.float32, plan.lines), dropped


def _pairs(store: Store, plan: Plan) -> Iterator[tuple[str, ...]]:
    for shard in plan.shards:
        for window in plan.windows(store, shard):
            for record in window.records:
                yield record.texts
