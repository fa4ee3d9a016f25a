"""Archives for tests: packed from their members, and a member of what came of one."""

import io
import zipfile
from collections.abc import Mapping
from xml.etree import ElementTree


def packed(members: Mapping[str, str | bytes], compression: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", compression) as file:
        for name, content in members.items():
            file.writestr(name, content)
    return out.getvalue()


def member(data: bytes, name: str) -> str:
    with zipfile.ZipFile(io.BytesIO(data)) as file:
        text = file.read(name).decode()
    ElementTree.fromstring(text)
    return text
