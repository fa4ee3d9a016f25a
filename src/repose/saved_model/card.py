"""Parts of every model card (README.md): its header, and how to load the model."""

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any

from repose.data.language import base_code

FENCE = "---\n"
"""Line before and after the header."""
TRANSLATE = "echo 'A sentence.' | repose translate FOLDER"
TRANSLATE_IN_PYTHON = 'repose.load("FOLDER").translate(["A sentence."])[0].text'
_CODE = re.compile("[a-z]{2,3}")


def head(languages: Iterable[str], fields: Mapping[str, Any]) -> str:
    """Return the header that a hub reads: languages that are codes, and further non-empty fields."""
    codes = map(base_code, languages)
    shown = {"language": [code for code in dict.fromkeys(codes) if _CODE.fullmatch(code)], "library_name": "repose"}
    lines = (f"{k}: {json.dumps(v, ensure_ascii=False)}\n" for k, v in (shown | dict(fields)).items() if v)
    return f"{FENCE}{''.join(lines)}{FENCE}"


def loading(use: str, in_python: str | None) -> str:
    """Return the section on using the model on the command line and in Python."""
    python = f"```python\nimport repose\n\n{in_python}\n```\n\n" if in_python else ""
    return (
        f"## How to load\n\n```sh\n{use}\n```\n\n{python}"
        "`FOLDER` is this folder, or `hf://owner/name` if it is on a hub (`pip install 'repose-nmt[hub]'`). Loading "
        "executes nothing in it, and checks each file's SHA-256.\n"
    )
