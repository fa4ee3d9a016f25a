"""`repose translate-file` and `translate --paragraphs`: files keep their formatting, and nothing is lost."""

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., tuple[int, str, str]]
MODEL = Path(__file__).parents[1] / "golden" / "old_model"
TEXT = "O gato dorme.\n\n12\n"


@pytest.fixture
def run(run_repose: Run) -> Run:
    def call(*arguments: object, stdin: bytes = b"") -> tuple[int, str, str]:
        return run_repose(*arguments, "--workers", 1, "--beam-size", 1, stdin=stdin)

    return call


def test_a_file_is_translated_and_keeps_its_form(run: Run, tmp_path: Path) -> None:
    source, target = tmp_path / "in.html", tmp_path / "new" / "out.HTML"
    source.write_text("<p>O <b>gato</b> dorme.</p>\n<p>12</p><script>x</script>\n", encoding="utf-8")
    code, out, err = run("translate-file", MODEL, source, target)
    assert (code, out, err) == (0, f"{target}\n", "")
    found = target.read_text(encoding="utf-8")
    assert found.endswith("</p>\n<p>12</p><script>x</script>\n")
    assert found.count("<b>") == found.count("</b>") == 1
    assert "gato" not in found


def test_what_is_there_is_not_overwritten_by_accident(run: Run, tmp_path: Path) -> None:
    source, target = tmp_path / "in.txt", tmp_path / "out.txt"
    source.write_text(TEXT, encoding="utf-8")
    target.write_text("precious", encoding="utf-8")
    code, _, err = run("translate-file", MODEL, source, target)
    assert (code, target.read_text(encoding="utf-8")) == (2, "precious")
    assert "--force" in err
    assert run("translate-file", MODEL, source, target, "--force")[0] == 0
    assert target.read_text(encoding="utf-8").endswith("\n\n12\n")
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_the_file_that_a_link_points_to_is_written(run: Run, tmp_path: Path) -> None:
    source, target = tmp_path / "in.txt", tmp_path / "real.txt"
    source.write_text(TEXT, encoding="utf-8")
    target.write_text("old", encoding="utf-8")
    (tmp_path / "link.txt").symlink_to("real.txt")
    assert run("translate-file", MODEL, source, tmp_path / "link.txt", "--force")[0] == 0
    assert (tmp_path / "link.txt").is_symlink()
    assert target.read_text(encoding="utf-8").endswith("\n\n12\n")
    (tmp_path / "folder.txt").mkdir()
    code, _, err = run("translate-file", MODEL, source, tmp_path / "folder.txt", "--force")
    assert (code, "folder.txt is a folder: name the file to write" in err) == (2, True)


@pytest.mark.parametrize(
    ("name", "target", "content", "says"),
    [
        ("in.txt", "out.docx", b"x", "formats are not converted"),
        ("in.pdf", "out.pdf", b"x", "cannot be translated: a PDF file has no sentences"),
        ("in.xlsx", "out.xlsx", b"x", "cannot be translated: open it in a spreadsheet program and save it as .ods"),
        ("in.xyz", "out.xyz", b"x", "cannot be translated: known are .txt"),
        ("in.docx", "out.docx", b"PK", "in.docx cannot be translated: this is not a document"),
        ("in.srt", "out.srt", b"\xff", "save it in UTF-8"),
        (None, "out.txt", b"", "there is no file"),
    ],
)
def test_what_cannot_be_done_is_one_sentence(
    run: Run, tmp_path: Path, name: str | None, target: str, content: bytes, says: str
) -> None:
    if name is not None:
        (tmp_path / name).write_bytes(content)
    code, out, err = run("translate-file", MODEL, tmp_path / (name or "in.txt"), tmp_path / target)
    assert code in (1, 2)
    assert out == ""
    assert says in err
    assert err.count("\n") == 1
    assert not (tmp_path / target).exists()


def test_paragraphs(run: Run, tmp_path: Path) -> None:
    code, out, _ = run("translate", MODEL, "--paragraphs", stdin=b"O gato\ndorme.\n\n12\n")
    assert code == 0
    assert out.endswith("\n\n12\n")
    assert out.count("\n") == 3
    (tmp_path / "text").write_text(TEXT, encoding="utf-8")
    assert run("translate", MODEL, tmp_path / "text", "--paragraphs")[1] == out
    (tmp_path / "text.gz").write_bytes(packed := gzip.compress(TEXT.encode()))
    assert run("translate", MODEL, tmp_path / "text.gz", "--paragraphs")[:2] == (0, out)
    (tmp_path / "cut.gz").write_bytes(packed[:-12])
    assert run("translate", MODEL, tmp_path / "cut.gz", "--paragraphs")[:2] == (1, "")
    (tmp_path / "wide").write_bytes(b"\xff\xfe" + TEXT.encode("utf-16-le"))
    assert run("translate", MODEL, tmp_path / "wide", "--paragraphs")[:2] == (0, out)
    code, found, err = run("translate", MODEL, "--paragraphs", stdin=b"O gato\ndorme.\n\n12 \xff\n")
    assert (code, found) == (0, out.replace("12\n", "12 \ufffd\n"))
    assert "1 line not in UTF-8: invalid bytes were replaced" in err
    assert run("translate", MODEL, "--paragraphs", stdin=b"\xff\xfea")[0] == 1, "half a character of UTF-16"
    code, _, err = run("translate", MODEL, "--paragraphs", "--scores", stdin=b"x")
    assert code == 2
    assert "leave" in err


def test_text_of_another_language_is_warned_of(run: Run, tmp_path: Path) -> None:
    (tmp_path / "in.txt").write_text("Привет, мир! Ещё предложение.", encoding="utf-8")
    model = tmp_path / "model"
    model.mkdir()
    for path in MODEL.iterdir():
        (model / path.name).write_bytes(path.read_bytes())
    config = (model / "config.json").read_text(encoding="utf-8")
    (model / "config.json").write_text(config.replace("{", '{"src_scripts": ["Latin"],', 1), encoding="utf-8")
    _, _, err = run("translate-file", model, tmp_path / "in.txt", tmp_path / "out.txt")
    assert "Cyrillic script" in err
