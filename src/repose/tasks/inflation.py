"""The warning about scores of text that is not as people write it: tokenised, or with entities."""

from collections.abc import Mapping
from typing import Any


def inflated(scores: Mapping[str, Any], *, figures: bool = True) -> str:
    """A sentence about the scores of a run (`scores.<split>.json`) whose BLEU is inflated; "" for others.

    Which are so is decided where they are scored: they have `bleu_detokenised` beside `bleu`. `figures`: with both.
    """
    both = {
        name: (found["bleu"]["value"], found["bleu_detokenised"]["value"])
        for name, found in scores.get("decoded", {}).items()
        if "bleu_detokenised" in found
    }
    if not both:
        return ""
    counts = scores["references"]
    kinds = {"tokenised": "look tokenised", "entities": "hold HTML entities"}
    why = " and ".join(f"{counts[kind]:,} {what}" for kind, what in kinds.items() if counts[kind])
    shown = "; ".join(f"{name} {given:.2f}, detokenised {plain:.2f}" for name, (given, plain) in both.items())
    beside = f" ({shown})" if figures else ""
    return (
        f"of {scores['num_sentences']:,} references {why}, so that BLEU counts pieces of words as words, which "
        f"inflates it{beside}: quote the detokenised one"
    )
