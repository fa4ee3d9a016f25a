"""How long a source may be for a model, in tokens."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

if TYPE_CHECKING:
    from repose.data.tokenizer import Tokenizer
    from repose.decoding.translator import Translator


@dataclass(frozen=True)
class Lengths:
    """How much of a text a model reads at once. [START] and [END] count; the tag that it may read before does not."""

    num_tokens: Callable[[str], int]
    """Counts the tokens of a sentence."""
    most_tokens: Callable[[str], int]
    """Gives that number or a larger one, without counting."""
    usual: int
    """What nearly all sources that it was trained on are no longer than; longer ones are better translated in parts."""
    longest: int
    """The longest source that it was trained on, or that it can read."""

    @classmethod
    def of(cls, tokenizer: "Tokenizer", config: Mapping[str, Any], max_length: int, *, tagged: bool) -> Self:
        """The lengths of a model by its config.json, which may not say how long the sources of its training were.

        `tagged`: whether it reads a tag; [START], [END] and one token more always have room."""
        longest = _stated(config, "max_src_tokens", max_length)
        usual = _stated(config, "split_src_tokens", longest)
        return cls(
            lambda text: len(tokenizer.encode(text)),
            tokenizer.most_tokens,
            max(3, usual - tagged),
            max(3, longest - tagged),
        )

    def stays_whole(self, text: str) -> bool:
        """Whether a sentence is translated as one."""
        return self._has_at_most(self.usual, text)

    def fits(self, text: str) -> bool:
        """Whether the model can read a text at once."""
        return self._has_at_most(self.longest, text)

    def _has_at_most(self, number: int, text: str) -> bool:
        return self.most_tokens(text) <= number or self.num_tokens(text) <= number

    def beginning(self, text: str) -> str:
        """The longest beginning of a text that fits, for a text without a place to split it."""
        if self.fits(text):
            return text
        fitting, too_long = 0, len(text)
        while too_long - fitting > 1:
            middle = (fitting + too_long) // 2
            fitting, too_long = (middle, too_long) if self.fits(text[:middle]) else (fitting, middle)
        return text[:fitting]


def lengths_of(translator: "Translator", to: str | None = None) -> Lengths:
    """The lengths of a translator, where it is told the tag `to`, if any."""
    tagged = translator.tag is not None or to is not None
    return Lengths.of(translator.src_tokenizer, translator.config, translator.max_length, tagged=tagged)


def _stated(config: Mapping[str, Any], name: str, most: int) -> int:
    """A length in config.json, at most `most`; that where it says none."""
    said = config.get(name)
    return min(most, said) if isinstance(said, int) and said > 2 else most
