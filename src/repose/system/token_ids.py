"""Ids of the special tokens, the same in every tokenizer, prepared corpus, model and export; and a check of tags."""

import re

from repose.system.errors import ConfigError

PAD, UNK, START, END = 0, 1, 2, 3
MOST_TOKENS = 1_000_000
"""Most tokens of a vocabulary."""


def check_tag(name: str) -> str:
    """Return the name if it is a valid tag (`repose.data.tags`). Raises ConfigError if not."""
    if not re.fullmatch(r"[\w-]{1,32}", name) or name in ("PAD", "UNK", "START", "END"):
        raise ConfigError(f"{name!r} cannot be a tag: take at most 32 letters, digits, - and _, such as 'pt'")
    return name
