"""How long a source may be, in tokens."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from repose.data.tokenizer import Tokenizer
    from repose.decoding.translator import Translator


@dataclass(frozen=True)
class Lengths:
    """Lengths of sources that a model can read. [START] and [END] count; a tag before the source does not."""

    tokenizer: "Tokenizer"
    usual: int
    """Nearly all sources in training were at most this long. Longer sentences are better translated in parts."""
    longest: int
    """Length of the longest source in training, or the longest that the model can read."""

    @classmethod
    def of(cls, tokenizer: "Tokenizer", config: Mapping[str, Any], max_length: int, *, tagged: bool) -> Self:
        """Return the lengths of a model from its config.json, which may lack the lengths of training sources.

        `tagged`: True if the model reads a tag. [START], [END] and one more token always have room.
        """
        longest = _stated(config, "max_src_tokens", max_length)
        usual = _stated(config, "split_src_tokens", longest)
        return cls(tokenizer, max(3, usual - tagged), max(3, longest - tagged))

    def num_tokens(self, text: str) -> int:
        """Return the number of tokens of a sentence."""
        return len(self.tokenizer.encode(text))

    def stays_whole(self, text: str) -> bool:
        """Return whether a sentence is translated without being split."""
        return self._has_at_most(self.usual, text)

    def fits(self, text: str) -> bool:
        """Return whether the model can read a text at once."""
        return self._has_at_most(self.longest, text)

    def _has_at_most(self, number: int, text: str) -> bool:
        return self.tokenizer.most_tokens(text) <= number or self.num_tokens(text) <= number

    def beginning(self, text: str) -> str:
        """Return the longest prefix that fits, for a text without a place to split it."""
        if self.fits(text):
            return text
        fitting, too_long = 0, len(text)
        while too_long - fitting > 1:
            middle = (fitting + too_long) // 2
            fitting, too_long = (middle, too_long) if self.fits(text[:middle]) else (fitting, middle)
        return text[:fitting]


def lengths_of(translator: "Translator", to: str | None = None) -> Lengths:
    """Return the lengths of a translator that is given the tag `to`, if any."""
    tagged = translator.tag is not None or to is not None
    return Lengths.of(translator.src_tokenizer, translator.config, translator.max_length, tagged=tagged)


def _stated(config: Mapping[str, Any], name: str, most: int) -> int:
    """Return a length from config.json, at most `most`; `most` if it is missing."""
    said = config.get(name)
    return min(most, said) if isinstance(said, int) and said > 2 else most
