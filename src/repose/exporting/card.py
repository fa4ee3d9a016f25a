"""The model card of an export (README.md): the model's own card, with instructions to load the export."""

import contextlib
import json
import re
from collections.abc import Sequence

_TITLE, _LIBRARY = "How to load", {"ctranslate2": "ctranslate2"}
"""The hub's name of the library that loads an export; repose by default."""


def card(text: str, target: str, how_to_load: Sequence[str]) -> str:
    """Turn a model's card into that of its export: replace the lines under "How to load", add the target to the tags,
    and remove the list of files, which the description has. Anything that people have added stays."""
    sections = re.split(r"(?m)^(?=## )", text)
    loading = f"## {_TITLE}\n\n```python\n" + "\n".join(how_to_load) + "\n```\n\n"
    kept = [loading if part.startswith(f"## {_TITLE}\n") else part for part in sections if part[:9] != "## Files\n"]
    return "".join([_head(kept[0], target), *kept[1:]])


def _head(text: str, target: str) -> str:
    """Return the part before the first section, as `repose.runs.card` writes it, with the target's name added."""
    lines = text.splitlines(keepends=True)
    for place, line in enumerate(lines):
        name, _, value = line.partition(": ")
        with contextlib.suppress(ValueError):
            if name == "tags" and isinstance(tags := json.loads(value), list):
                lines[place] = f"tags: {json.dumps([*tags, target], ensure_ascii=False)}\n"
            elif name == "library_name" and json.loads(value) == "repose":
                lines[place] = f"library_name: {json.dumps(_LIBRARY.get(target, 'repose'))}\n"
    return "".join(lines)
