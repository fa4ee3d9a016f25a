"""Keep pairs of a scored corpus: the best ones up to a number, or those above a threshold."""

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
    """The result of filtering."""

    kept: int
    lines: int
    lowest: float
    """Score of the worst pair that was kept."""
    dropped: Counter[str]
    """Pairs that no threshold would keep, by reason."""


def filter_pairs(store: Store, plan: Plan, *, keep: int | None, threshold: float | None) -> Filtered:
    """Write `kept.src` and `kept.tgt` from the inputs and the merged scores, in input order.

    Among equal scores, the first pairs are kept. Pairs with a reason against them are never kept. Holds about ten bytes
    per pair in memory. Raises DataError if no pair is left or an input has changed; and WriteError.
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
    """List the reasons with their numbers of pairs, most frequent first."""
    return reasons(dict(dropped.most_common()))


def _nothing(plan: Plan, dropped: Counter[str], threshold: float | None) -> DataError:
    """Describe in one sentence why no pair is kept."""
    if plan.lines and dropped.total() == plan.lines:
        return DataError(
            f"no pair is left, since each has a reason against it ({reasons_of(dropped)}): look at the corpus"
        )
    why = f", with reasons against {dropped.total():,} ({reasons_of(dropped)})" if dropped else ""
    remedy = "look at the scores" if threshold is None else "give another --threshold, and look at the scores"
    return DataError(f"no pair is left{why}: {remedy}")


def _scores(store: Store, plan: Plan) -> tuple[NDArray[np.float32], Counter[str]]:
    """Return each pair's score, or -1 if there is a reason not to keep it; and the count of each reason."""
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
