"""What a check of a corpus finds, in numbers; the sentences about it are in `repose.data.advice`."""

import enum
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Self

from repose.data.language import UNKNOWN

HELD_OUT = ("valid", "test")
"""The sets that are not trained on."""


class Kind(enum.StrEnum):
    """What can be wrong with a corpus, the worst first: findings are told in this order."""

    SLIPPED = "slipped"
    """From `line` on, the lines fit better when the targets are moved: they stand `amount` lines too late."""
    SAME_LANGUAGE = "same_language"
    """Both sides are in the language `detail`; `count` and `of` are of a sample of long lines."""
    SWAPPED = "swapped"
    """A side in the language `detail`, which is the other side's; of a sample, likewise."""
    MISNAMED = "misnamed"
    """A side in the language `detail`, which is neither the one that it is named by nor the other side's; likewise."""
    REVERSED = "reversed"
    """Pairs whose source is in the script of the other targets, and whose target in that of the other sources; the
    first is `detail`, as "Latin to Greek"."""
    LANGUAGE = "language"
    """Lines in the language `detail`, which is not their side's; of a sample, likewise."""
    SCRIPT = "script"
    """Lines in another script than their side, the first in `detail`."""
    OTHER_SCRIPT = "other_script"
    """Lines of a set in another script than that side of the training set, `detail`: most of them are."""
    IDENTICAL = "identical"
    """Source and target are the same."""
    COPIED = "copied"
    """Most long words of the target are words of the source."""
    TRAINED_ON = "trained_on"
    """Pairs of a held-out set that are training pairs; only those of `amount` characters and more, where it is not 0.
    """
    HALF_TRAINED_ON = "half_trained_on"
    """Pairs of a held-out set of which one sentence is in the training set, likewise."""
    VALIDATED_ON = "validated_on"
    """Pairs of the test set that are validation pairs, likewise."""
    ENTITIES = "entities"
    """Lines with HTML entities, such as `detail`."""
    QUOTED = "quoted"
    """Lines in double quotes, and quotes in them doubled, as a spreadsheet saves cells."""
    TOKENISED = "tokenised"
    """Lines of which words and punctuation are parted by spaces already."""
    MARKUP = "markup"
    """Lines with tags, such as `detail`."""
    NUMBERED = "numbered"
    """Lines that begin with a number, larger than that of the line before; the first with `detail`."""
    PREFIX = "prefix"
    """Lines that begin with `detail`, or with a tag such as it."""
    CONTROL = "control"
    """Lines with control characters, invisible marks, or what is left of text that was decoded wrongly."""
    LOST = "lost"
    """Lines with a question mark inside a word, as an encoding leaves it that does not have the letter."""
    DECOMPOSED = "decomposed"
    """Lines that Unicode's normal form NFC makes shorter: letters and their accents as characters of their own."""
    COLUMN_NAMES = "column_names"
    """The first pair is the names of two languages, `detail`, or looks like names in a table: a line that names the
    columns, read as a pair."""
    REPEATED = "repeated"
    """Pairs that occurred before."""
    RETRANSLATED = "retranslated"
    """Sentences that occurred before, with another translation."""
    ALTERNATIVES = "alternatives"
    """Lines of several sentences with a separator between them, which the other side of the pair does not have."""
    EXPLAINED = "explained"
    """Lines that end in brackets, such as `detail`, while the other side of the pair has none."""
    UNEQUAL = "unequal"
    """Pairs of which one side is far longer than the other, for this corpus."""
    LONG = "long"
    """Pairs with a side that is longer than a sentence."""
    WORDLESS = "wordless"
    """Pairs with a side that has neither letter nor digit."""
    UNUSABLE = "unusable"
    """Lines that are no pair and are left out, for the reason `detail`."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """One thing that is wrong with a set."""

    kind: Kind
    split: str
    """ "train", "valid", "test", "synthetic", or "also0" and so on for a further corpus."""
    side: str = ""
    """ "src" or "tgt"; "" for pairs."""
    count: int
    """Lines or pairs that have it."""
    of: int
    """Lines or pairs that were looked at."""
    line: int
    """An example, the first: its line in the file, from 1; or its place among what `places` names."""
    places: str = ""
    """ "row" or "unit" of a file whose pairs are no lines; "" of one whose are."""
    detail: str = ""
    amount: int = 0
    is_joined: bool = False
    """Whether `count` and `of` are of texts that are several short lines put together, in the place of long lines."""

    @property
    def share(self) -> float:
        """The share of the lines or pairs looked at that have it, 0 to 1."""
        return self.count / self.of

    def to_json(self) -> dict[str, Any]:
        """Fields by name, empty ones left out."""
        return {name: value for name, value in asdict(self).items() if value not in ("", 0)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """The inverse. Raises KeyError, TypeError or ValueError for anything else."""
        return cls(**{**content, "kind": Kind(content["kind"])})


def known_findings(findings: Iterable[Mapping[str, Any]]) -> Iterator[Finding]:
    """The recorded findings that this version knows; others are left out."""
    for content in findings:
        with suppress(KeyError, TypeError, ValueError):
            yield Finding.from_json(content)


@dataclass(frozen=True)
class CorpusCheck:
    """What was seen of a corpus."""

    looked_at: Mapping[str, int]
    """Set to its pairs that were looked at."""
    findings: tuple[Finding, ...]
    """What was found: in the training set first, and in each set the worst first."""
    detected: tuple[str, str] = (UNKNOWN, UNKNOWN)
    """Languages that most long lines of the training set's two sides are in; "und" where that is not clear."""

    @property
    def trained_on(self) -> int:
        """Pairs of all sets that are not held out."""
        return sum(count for split, count in self.looked_at.items() if split not in HELD_OUT)

    def to_json(self) -> dict[str, Any]:
        """The check as a JSON object."""
        findings = [finding.to_json() for finding in self.findings]
        return {"looked_at": dict(self.looked_at), "findings": findings, "detected": list(self.detected)}

    @classmethod
    def from_json(cls, content: Mapping[str, Any]) -> Self:
        """The check that `to_json` gave."""
        src, tgt = content.get("detected", (UNKNOWN, UNKNOWN))  # folders in a cache may have none
        return cls(dict(content["looked_at"]), tuple(known_findings(content["findings"])), (src, tgt))
