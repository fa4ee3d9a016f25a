"""The card of an export, README.md, for whoever finds it on a hub: the model's own, with how the export is loaded."""

import contextlib
import json
import re
from collections.abc import Sequence

_TITLE, _LIBRARY = "How to load", {"ctranslate2": "ctranslate2"}
"""The library that loads an export, as the hub calls it; repose unless named."""


def card(text: str, target: str, how_to_load: Sequence[str]) -> str:
    """The card of an export, made from its model's: it has other lines under "How to load", the target among its tags,
    and no list of files, which the description has. What somebody has added stays."""
    sections = re.split(r"(?m)^(?=## )", text)
    loading = f"## {_TITLE}\n\n```python\n" + "\n".join(how_to_load) + "\n```\n\n"
    kept = [loading if part.startswith(f"## {_TITLE}\n") else part for part in sections if part[:9] != "## Files\n"]
    return "".join([_head(kept[0], target), *kept[1:]])


def _head(text: str, target: str) -> str:
    """The part before the first section, in whose lines, as `repose.runs.card` writes them, the target is named."""
    lines = text.splitlines(keepends=True)
    for place, line in enumerate(lines):
        name, _, value = line.partition(": ")
        with contextlib.suppress(ValueError):
            if name == "tags" and isinstance(tags := json.loads(value), list):
                lines[place] = f"tags: {json.dumps([*tags, target], ensure_ascii=False)}\n"
            elif name == "library_name" and json.loads(value) == "repose":
                lines[place] = f"library_name: {json.dumps(_LIBRARY.get(target, 'repose'))}\n"
    return "".join(lines)
