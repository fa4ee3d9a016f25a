"""A digest of source files, for cached files that depend on them."""

from pathlib import Path

import pytest

from repose.system import code


def test_every_file_of_the_rooms_counts_and_no_other(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("system/code.py", "model/a.py", "model/kernels/b.py", "training/c.py", "cli/d.py"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(name)
    monkeypatch.setattr(code, "__file__", str(tmp_path / "system" / "code.py"))

    def digest() -> str:
        code.code_digest.cache_clear()
        return code.code_digest("model", "training")

    seen = [digest()]
    assert len(seen[0]) == 12
    (tmp_path / "cli/d.py").write_text("other")
    assert digest() == seen[0]
    for change in (
        lambda: (tmp_path / "model/kernels/b.py").write_text("other"),
        lambda: (tmp_path / "training/c.py").rename(tmp_path / "training/e.py"),
        lambda: (tmp_path / "model/new.py").write_text(""),
    ):
        change()
        seen.append(digest())
    assert len(set(seen)) == 4
    code.code_digest.cache_clear()
