"""Warning about scores that are inflated because the text is tokenised or has entities."""

from collections.abc import Mapping
from typing import Any

_DIFFERS = 0.1
"""In BLEU."""


def inflated(scores: Mapping[str, Any], *, figures: bool = True) -> str:
    """Return a warning for a run's scores (`scores.<split>.json`) if their BLEU is inflated, or "".

    Such scores have `bleu_detokenised` beside `bleu`. If both are nearly equal, there is no warning. `figures`: include
    both values.
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
    return f"{why}, so BLEU counts pieces of words as words, which inflates it{beside}: quote the detokenised BLEU"
