"""The warning about scores of text that is not as people write it: tokenised, or with entities."""

from collections.abc import Mapping
from typing import Any

_DIFFERS = 0.1
"""BLEU."""


def inflated(scores: Mapping[str, Any], *, figures: bool = True) -> str:
    """A sentence about the scores of a run (`scores.<split>.json`) whose BLEU is inflated; "" for others.

    Which are so is decided where they are scored: they have `bleu_detokenised` beside `bleu`. Where the two hardly
    differ, there is nothing to warn of. `figures`: with both.
    """
    both = {
        name: (found["bleu"]["value"], found["bleu_detokenised"]["value"])
        for name, found in scores.get("decoded", {}).items()
        if "bleu_detokenised" in found
    }
    if not any(abs(given - plain) >= _DIFFERS for given, plain in both.values()):
        return ""
    counts = scores["references"]
    kinds = {"tokenised": "look tokenised", "entities": "contain HTML entities"}
    found = [(counts[kind], what) for kind, what in kinds.items() if counts[kind]]
    of = f" of the {scores['num_sentences']:,} references"
    why = " and ".join(f"{number:,}{of if place == 0 else ''} {what}" for place, (number, what) in enumerate(found))
    shown = "; ".join(f"{name} {given:.2f}, detokenised {plain:.2f}" for name, (given, plain) in both.items())
    beside = f" ({shown})" if figures else ""
    return f"{why}, so that BLEU counts pieces of words as words, which inflates it{beside}: quote the detokenised one"
