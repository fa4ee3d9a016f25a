"""Tags: a token before a source sentence, which says what kind of pair it belongs to or what is wanted.

A model that learns from several corpora is told by it which one a sentence comes from, or into which language to
translate (Johnson et al. 2017, arXiv 1611.04558), and which sources a machine wrote (Caswell et al. 2019, arXiv
1906.06442). A tag is a reserved token of the source vocabulary, [START] [tag] …: no text can spell it.

On its way through the preparation of a corpus a sentence carries its tag as text before it, between NUL characters,
which the readers let no sentence hold.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from repose.data.language import UNKNOWN
from repose.data.pairs import Pair
from repose.data.tokenizer import Tokenizer
from repose.system.errors import ConfigError, unknown

MARK = "\0"
"""Stands around a tag before a source."""
_LEAVE_OUT = ": leave the tag out (of synthetic pairs, with --set corpus.synthetic_tag=none)"


class Taught(NamedTuple):
    """A kind of pair that a model was trained on."""

    tag: str | None
    src_lang: str
    tgt_lang: str


def taught(config: Mapping[str, Any]) -> list[Taught]:
    """What a model was trained on by its config.json, its own pairs first; "und" for languages that it does not say."""
    also = config.get("also")
    every = [config, *(each for each in (also if isinstance(also, list) else []) if isinstance(each, dict))]
    tags = (each.get("tag") for each in every)
    sides = ([str(each.get(name, UNKNOWN)) for name in ("src_lang", "tgt_lang")] for each in every)
    return [Taught(tag if isinstance(tag, str) else None, *pair) for tag, pair in zip(tags, sides, strict=True)]


def direction(config: Mapping[str, Any], tag: str | None) -> tuple[str, str]:
    """Source and target language of a model by its config.json, where it is told this tag; "und" for what that does not
    say, and where it was trained on several. None is the model's own tag."""
    own, *more = taught(config)
    if tag is None:
        tag = own.tag
    if found := [one for one in (own, *more) if one.tag == tag]:
        sources, targets = {one.src_lang for one in found}, {one.tgt_lang for one in found}
        return sources.pop() if len(sources) == 1 else UNKNOWN, targets.pop() if len(targets) == 1 else UNKNOWN
    if own.tag != own.tgt_lang:  # tags tell corpora apart: of another one the source's language is not known
        return UNKNOWN, own.tgt_lang
    return (own.tgt_lang if tag == own.src_lang else UNKNOWN), str(tag)


def tag_pairs(pairs: Iterable[Pair], tag: str | None) -> Iterator[Pair]:
    """The pairs, whose sources carry the tag, if there is one."""
    before = "" if tag is None else f"{MARK}{tag}{MARK}"
    return ((before + src, tgt) for src, tgt in pairs)


def is_tagged(text: str) -> bool:
    """Whether a source carries a tag."""
    return text.startswith(MARK)


class TaggingEncoder:
    """A source tokenizer that reads the tag before a text; a `TextEncoder` (`repose.data.prepare`)."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer

    @property
    def vocab_size(self) -> int:
        """The tokenizer's."""
        return self._tokenizer.vocab_size

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """[START (tag) … END] of each text. Raises ConfigError for a tag that the tokenizer does not have."""
        parts = [text.split(MARK, 2) if is_tagged(text) else ["", "", text] for text in texts]
        encoded = self._tokenizer.encode_batch([text for _, _, text in parts])
        return [
            with_tag(self._tokenizer, ids, tag or None, advice=_LEAVE_OUT)
            for ids, (_, tag, _) in zip(encoded, parts, strict=True)
        ]


def with_tag(tokenizer: Tokenizer, ids: list[int], tag: str | None, *, advice: str = "") -> list[int]:
    """Source ids with a tag after START. Raises ConfigError, which `advice` ends, for one that the tokenizer lacks."""
    if tag is None:
        return ids
    if tag not in tokenizer.tags:
        if not tokenizer.tags:
            raise ConfigError(f"the tag {tag!r} is not in the source vocabulary, which was made without tags{advice}")
        raise ConfigError(unknown("tag of the source vocabulary", tag, list(tokenizer.tags)) + advice)
    return [ids[0], tokenizer.tags[tag], *ids[1:]]
