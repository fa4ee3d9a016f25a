"""What callers give to a translator: one sentence for what cannot be used."""

from collections.abc import Iterable, Mapping, Sequence

from repose.system.errors import ConfigError, DataError


def sentences(verb: str, texts: Iterable[str]) -> list[str]:
    """Texts in a list, without line breaks at their ends, which those of a file's lines have. Raises ConfigError for a
    bare text, a mapping or a table in its place, and for what is no text."""
    if isinstance(texts, str | bytes) or not (hasattr(texts, "__iter__") or hasattr(texts, "__getitem__")):
        raise ConfigError(f"{verb} takes a list of sentences, not {texts!r:.60}: write [text] for one")
    if isinstance(texts, Mapping) or hasattr(texts, "columns"):
        raise ConfigError(f"{verb} takes a list of sentences, not a {type(texts).__name__}: give one of its columns")
    texts = list(texts)
    if wrong := [text for text in texts if not isinstance(text, str)]:
        raise ConfigError(f"{verb} takes sentences, not {wrong[0]!r:.60}")
    return [text.rstrip("\r\n") for text in texts]


def check_targets(targets: Sequence[Sequence[int]], *, num_sources: int, max_length: int, vocab_size: int) -> None:
    """Raises DataError unless there are so many targets, that go on after START, and are no longer than is read."""
    if num_sources != len(targets):
        raise DataError(f"there are {num_sources} sources and {len(targets)} targets: give one target per source")
    if (longest := max(map(len, targets), default=0) - 1) > max_length:
        raise DataError(
            f"a target of {longest} tokens is longer than the model's max_length of {max_length}: shorten it"
        )
    for target in targets:
        if len(target) < 2:
            raise DataError(f"a target has the ids {list(target)}, but needs START and one more at least")
        if min(target) < 0 or max(target) >= vocab_size:
            wrong = min(target) if min(target) < 0 else max(target)
            raise DataError(f"id {wrong} is not in the target vocabulary of {vocab_size} tokens: use the model's own")
