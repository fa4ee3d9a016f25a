"""Tags: tokens before a source sentence that tell the model the kind of pair or the desired output.

A tag tells a model that is trained on several corpora which one a sentence comes from, which language to translate into
(Johnson et al. 2017, arXiv 1611.04558), or that the source was written by a machine (Caswell et al. 2019, arXiv
1906.06442). A tag is a reserved token of the source vocabulary, [START] [tag] …, which no text can spell.

While a corpus is prepared, a sentence carries its tag as text before it, between NUL characters. The readers allow no
NUL in a sentence.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from repose.data.language import UNKNOWN
from repose.data.pairs import Pair
from repose.data.tokenizer import Tokenizer
from repose.system.errors import ConfigError, unknown

MARK = "\0"
"""Put before and after a tag in front of a source."""


class Taught(NamedTuple):
    """A kind of pair that a model was trained on."""

    tag: str | None
    src_lang: str
    tgt_lang: str


def taught(config: Mapping[str, Any]) -> list[Taught]:
    """Return the kinds of pairs that a model was trained on, from its config.json; its own pairs come first.

    Languages that the config does not state are "und".
    """
    also = config.get("also")
    every = [config, *(each for each in (also if isinstance(also, list) else []) if isinstance(each, dict))]
    tags = (each.get("tag") for each in every)
    sides = ([str(each.get(name, UNKNOWN)) for name in ("src_lang", "tgt_lang")] for each in every)
    return [Taught(tag if isinstance(tag, str) else None, *pair) for tag, pair in zip(tags, sides, strict=True)]


def direction(config: Mapping[str, Any], tag: str | None) -> tuple[str, str]:
    """Return source and target language of a model from its config.json, for sources with this tag.

    None stands for the model's own tag. A language is "und" if the config does not state it, or if the model was
    trained on several with this tag.
    """
    own, *more = taught(config)
    if tag is None:
        tag = own.tag
    if found := [one for one in (own, *more) if one.tag == tag]:
        sources, targets = {one.src_lang for one in found}, {one.tgt_lang for one in found}
        return sources.pop() if len(sources) == 1 else UNKNOWN, targets.pop() if len(targets) == 1 else UNKNOWN
    if own.tag != own.tgt_lang:  # tags distinguish corpora: the source language of another one is not known
        return UNKNOWN, own.tgt_lang
    return (own.tgt_lang if tag == own.src_lang else UNKNOWN), str(tag)


def tag_pairs(pairs: Iterable[Pair], tag: str | None) -> Iterator[Pair]:
    """Yield the pairs with the tag put before each source; without a tag, unchanged."""
    before = "" if tag is None else f"{MARK}{tag}{MARK}"
    return ((before + src, tgt) for src, tgt in pairs)


def is_tagged(text: str) -> bool:
    """Return whether a source carries a tag."""
    return text.startswith(MARK)


class TaggingEncoder:
    """A source tokenizer that reads the tag before a text; a `TextEncoder` (`repose.data.prepare`)."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    @property
    def vocab_size(self) -> int:
        """Size of the tokenizer's vocabulary."""
        return self._tokenizer.vocab_size

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return [START (tag) … END] for each text. The tokenizer has all tags (`check_tags`)."""
        parts = [text.split(MARK, 2) if is_tagged(text) else ["", "", text] for text in texts]
        encoded = self._tokenizer.encode_batch([text for _, _, text in parts])
        return [with_tag(self._tokenizer, ids, tag or None) for ids, (_, tag, _) in zip(encoded, parts, strict=True)]


def with_tag(tokenizer: Tokenizer, ids: list[int], tag: str | None) -> list[int]:
    """Return source ids with a tag after START. Raises ConfigError if the tokenizer lacks the tag."""
    if tag is None:
        return ids
    if tag not in tokenizer.tags:
        raise ConfigError(_lacks(tokenizer, tag))
    return [ids[0], tokenizer.tags[tag], *ids[1:]]


def check_tags(tokenizer: Tokenizer, tags: Iterable[str]) -> None:
    """Raise ConfigError, with advice for a training, if the tokenizer lacks one of the tags."""
    for tag in tags:
        if tag not in tokenizer.tags:
            advice = "leave the tag out (of synthetic pairs, with --set corpus.synthetic_tag=none)"
            raise ConfigError(f"{_lacks(tokenizer, tag)}: {advice}")


def _lacks(tokenizer: Tokenizer, tag: str) -> str:
    if not tokenizer.tags:
        return f"the tag {tag!r} is not in the source vocabulary, which was made without tags"
    return unknown("source tag", tag, list(tokenizer.tags))
