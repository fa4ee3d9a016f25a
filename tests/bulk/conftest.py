"""A translator that needs no model, and jobs for it."""

import hashlib
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest

from repose.bulk.inputs import format_of
from repose.bulk.plan import Job, Plan, UsedModel, make_plan
from repose.bulk.storage import Store
from repose.decoding.translator import Hypothesis, Translation


class Numbering:
    """Says of each sentence its length and a digest, so that any change of order or place would show."""

    config: ClassVar[dict[str, Any]] = {"src_lang": "en", "max_src_tokens": 64}
    max_length = 64
    workers = 1
    tag: str | None = None
    src_tokenizer = SimpleNamespace(encode=lambda text: [2, *map(ord, text), 3], most_tokens=lambda text: 2 + len(text))

    def translate(self, texts: list[str], num_hypotheses: int = 1, **_: object) -> list[Translation]:
        return [self._one(text, num_hypotheses) for text in texts]

    def _one(self, text: str, number: int) -> Translation:
        if not text.strip():
            return Translation("", 0.0, (), (), False)
        said = f"{len(text)} {hashlib.sha256(text.encode()).hexdigest()[:6]}"
        ranked = tuple(Hypothesis(f"{said} {n}", (), -1.0 - n, -1.0, True) for n in range(number))
        return Translation(ranked[0].text, -1.0, ranked, tuple(text), len(text) > 62)


MODEL = UsedModel("model", "0" * 64, "onnx", "fp32", "cpu")


def job_of(files: list[Path], **changes: Any) -> Job:
    kind = format_of([str(file) for file in files])
    given: dict[str, Any] = {"work": "translate", "models": (MODEL,), "format": kind, "search": {}}
    if kind != "text":
        given["fields"] = ("text",)
    return Job(**{**given, **changes})


def plan_of(out: Path, files: list[Path], **changes: Any) -> tuple[Store, Plan]:
    store = Store.at(str(out))
    return store, make_plan(store, job_of(files, **changes), [(str(file),) for file in files])


@pytest.fixture
def planned(tmp_path: Path) -> Callable[..., tuple[Store, Plan]]:
    """A job in `out` for these files."""
    return lambda files, out="out", **changes: plan_of(tmp_path / out, files, **changes)
