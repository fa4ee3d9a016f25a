"""Findings of a corpus check, as numbers. The sentences about them are in `repose.data.advice`."""

import enum
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from repose.data.language import UNKNOWN

HELD_OUT = ("valid", "test")
"""The sets that are not trained on."""


class Kind(enum.StrEnum):
    """What can be wrong with a corpus, from the worst to the mildest; findings are reported in this order."""

    SLIPPED = "slipped"
    """From `line` on, the lines fit better if the targets move: they come `amount` lines too late."""
    SAME_LANGUAGE = "same_language"
    """Both sides are in the language `detail`; `count` and `of` refer to a sample of long lines."""
    SWAPPED = "swapped"
    """A side is in the language `detail`, which is the other side's; refers to a sample, as for SAME_LANGUAGE."""
    MISNAMED = "misnamed"
    """A side is in the language `detail`, which is neither its stated language nor the other side's; refers to a
    sample."""
    REVERSED = "reversed"
    """Pairs with source and target scripts exchanged, compared with most pairs. `detail` gives the direction of the
    first, such as "Latin to Greek"."""
    LANGUAGE = "language"
    """Lines in the language `detail`, which is not their side's; refers to a sample."""
    SCRIPT = "script"
    """Lines in another script than the rest of their side; the first is in the script `detail`."""
    OTHER_SCRIPT = "other_script"
    """Most lines of a side are in another script than in the training set, the first in the script `detail`."""
    IDENTICAL = "identical"
    """Source and target are identical."""
    COPIED = "copied"
    """Most long words of the target are words of the source."""
    TRAINED_ON = "trained_on"
    """Pairs of a held-out set that are also training pairs; if `amount` is not 0, only those of at least `amount`
    characters."""
    HALF_TRAINED_ON = "half_trained_on"
    """Pairs of a held-out set with one sentence that is in the training set; `amount` as for TRAINED_ON."""
    VALIDATED_ON = "validated_on"
    """Pairs of the test set that are also validation pairs; `amount` as for TRAINED_ON."""
    ENTITIES = "entities"
    """Lines with HTML entities, such as `detail`."""
    QUOTED = "quoted"
    """Lines in double quotes, with quotes inside doubled, as a spreadsheet saves cells."""
    TOKENISED = "tokenised"
    """Lines that are tokenised already: spaces separate words from punctuation."""
    MARKUP = "markup"
    """Lines with tags, such as `detail`."""
    NUMBERED = "numbered"
    """Lines that begin with a number larger than that of the line before; the first begins with `detail`."""
    PREFIX = "prefix"
    """Lines that begin with `detail`, or with a tag such as `detail`."""
    CONTROL = "control"
    """Lines with control characters, invisible marks, or remains of text that was decoded wrongly."""
    LOST = "lost"
    """Lines with a question mark inside a word, as left by an encoding that lacks the letter."""
    DECOMPOSED = "decomposed"
    """Lines that Unicode's normal form NFC makes shorter: letters and their accents are separate characters."""
    COLUMN_NAMES = "column_names"
    """The first pair, `detail`, names two languages or looks like the column names of a table, but was read as a
    pair."""
    REPEATED = "repeated"
    """Pairs that occurred before."""
    RETRANSLATED = "retranslated"
    """Sentences that occurred before, with another translation."""
    ALTERNATIVES = "alternatives"
    """Lines of several sentences with a separator between them, while the other side of the pair has none."""
    EXPLAINED = "explained"
    """Lines that end in brackets, such as `detail`, while the other side of the pair has none."""
    UNEQUAL = "unequal"
    """Pairs with one side far longer than the other, compared with the rest of the corpus."""
    LONG = "long"
    """Pairs with a side that is longer than a sentence."""
    WORDLESS = "wordless"
    """Pairs with a side that has neither letters nor digits."""
    UNUSABLE = "unusable"
    """Lines that are not a pair and are left out, for the reason `detail`."""


IN_TWO_SETS = (Kind.TRAINED_ON, Kind.HALF_TRAINED_ON, Kind.VALIDATED_ON)
"""Findings about pairs or sentences that a held-out set has in common with another set."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A problem found in one set."""

    kind: Kind
    split: str
    """ "train", "valid", "test", "synthetic", or "also0" and so on for a further corpus."""
    side: str = ""
    """ "src" or "tgt"; "" for pairs."""
    count: int
    """Lines or pairs with the problem."""
    of: int
    """Lines or pairs that were checked."""
    line: int
    """Line number of the first example in the file, from 1; if `places` is set, the number of its row or unit."""
    places: str = ""
    """ "row" or "unit" if the file's pairs are not lines; else ""."""
    detail: str = ""
    amount: int = 0
    is_joined: bool = False
    """True if `count` and `of` refer to short lines joined together, checked because there are too few long lines."""
    lines: NDArray[np.int64] | None = field(default=None, compare=False, repr=False)
    """(`count`,): the numbers of all these lines, counted like `line`; None in what `from_json` returns."""

    @property
    def share(self) -> float:
        """The share of the checked lines or pairs with the problem, 0 to 1."""
        return self.count / self.of

    def to_json(self) -> dict[str, Any]:
        """Return the fields by name, without empty ones and without `lines`, which may be many."""
        content = {one.name: getattr(self, one.name) for one in fields(self) if one.name != "lines"}
        return {name: value for name, value in content.items() if value not in ("", 0)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Return the finding that `to_json` wrote. Raises KeyError, TypeError or ValueError for anything else."""
        return cls(**{**content, "kind": Kind(content["kind"])})


def worst_first(findings: Iterable[Finding]) -> list[Finding]:
    """Sort findings by kind, the worst first; those of one kind keep their order."""
    kinds = list(Kind)
    return sorted(findings, key=lambda finding: kinds.index(finding.kind))


def known_findings(findings: Iterable[Mapping[str, Any]]) -> Iterator[Finding]:
    """Yield the recorded findings that this version knows; skip the others."""
    for content in findings:
        with suppress(KeyError, TypeError, ValueError):
            yield Finding.from_json(content)


@dataclass(frozen=True)
class CorpusCheck:
    """The result of checking a corpus."""

    looked_at: Mapping[str, int]
    """For each set, how many of its pairs were checked."""
    findings: tuple[Finding, ...]
    """The findings: training set first, and within each set the worst first."""
    detected: tuple[str, str] = (UNKNOWN, UNKNOWN)
    """Language of most long lines on each side of the training set; "und" if unclear."""

    @property
    def trained_on(self) -> int:
        """Number of pairs in all sets that are not held out."""
        return sum(count for split, count in self.looked_at.items() if split not in HELD_OUT)

    def to_json(self) -> dict[str, Any]:
        """Return the check as a JSON object."""
        findings = [finding.to_json() for finding in self.findings]
        return {"looked_at": dict(self.looked_at), "findings": findings, "detected": list(self.detected)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """Return the check that `to_json` wrote."""
        src, tgt = content.get("detected", (UNKNOWN, UNKNOWN))  # cached folders may have none
        return cls(dict(content["looked_at"]), tuple(known_findings(content["findings"])), (src, tgt))
