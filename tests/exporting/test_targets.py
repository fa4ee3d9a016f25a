"""Every target: an export appears whole or not at all, and replaces only files of its own."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import repose
from repose.exporting import base, targets
from repose.exporting.card import card
from repose.saved_model.description import read_description, write_description
from repose.saved_model.directory import read_config
from repose.system.errors import BusyError, CheckpointError, ConfigError, ReposeError, WriteError

pytestmark = pytest.mark.usefixtures("target")
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def target(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """A target `words`, which writes the words it is given, and fails if there are none."""
    module = SimpleNamespace(words=["a", "b"])

    def export(model: Path, out: Path, options: base.Options) -> base.Exported:
        (out / "sub").mkdir()
        for word in module.words:
            (out / "sub" / f"{word}.txt").write_text(word)
        (out / "options.json").write_text(json.dumps([options.precision, options.single_file]))
        if not module.words:
            raise CheckpointError("it computes something other than the model")
        write_description(out, "words", read_config(model), {"words": len(module.words), "how_to_load": ["load"]})
        return base.Exported("words", out, 0.25, parts={"words": 3}, notes=("a note",))

    module.export = export
    monkeypatch.setitem(targets.TARGETS, "words", "repose.words")
    monkeypatch.setattr(targets, "IN_ONE_FILE", ("words",))
    monkeypatch.setattr(targets, "import_module", lambda _: module)
    return module


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "run" / "model"
    folder.mkdir(parents=True)
    config = {"format_version": 1, "sha256": {"model.safetensors": "abc"}, "run_id": "r1", "src_lang": "pt"}
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "model.safetensors").write_text("")
    return tmp_path / "run"


def names(folder: Path) -> set[str]:
    """Of all files in a folder."""
    files = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix() for path in files}


def test_a_folder_that_describes_itself(model: Path, tmp_path: Path) -> None:
    made = repose.export(model, to="words", out=tmp_path / "deep" / "out", precision="int8", single_file=True)
    assert made.folder == tmp_path / "deep" / "out"
    assert set(made.files) == names(made.folder) == {"sub/a.txt", "sub/b.txt", "options.json", "repose-words.json"}
    assert made.files["sub/a.txt"] == 1
    assert json.loads((made.folder / "options.json").read_text()) == ["int8", True]
    described = read_description(made.folder, "words")
    assert (described["run_id"], described["src_lang"], described["tgt_lang"], described["words"]) == (
        "r1",
        "pt",
        "und",
        2,
    )
    assert set(described["sha256"]) == set(made.files) - {"repose-words.json"}
    assert described["sha256"]["sub/a.txt"].startswith("ca978112ca1b")


CARD = """---
language: ["pt", "en"]
library_name: "repose"
tags: ["repose", "reinforced"]
---
# A model

## How to load

As a run.

## Data

Mine, with a line that I have added.

## Files

| file | bytes |
"""


@pytest.mark.parametrize(("target", "library"), [("onnx", "repose"), ("ctranslate2", "ctranslate2")])
def test_a_card_says_how_the_export_is_loaded(target: str, library: str) -> None:
    made = card(CARD, target, ["import it", "", "load(it)"])
    head = f'library_name: "{library}"\ntags: ["repose", "reinforced", "{target}"]\n---\n# A model\n'
    loading = "## How to load\n\n```python\nimport it\n\nload(it)\n```\n\n"
    data = "## Data\n\nMine, with a line that I have added.\n\n"
    assert made == f'---\nlanguage: ["pt", "en"]\n{head}\n{loading}{data}'
    for tags in ("mine", "null", "5", '"abc"', "[", "{}"):
        text = f"---\ntags: {tags}\n---\n\n## Data\n"
        assert card(text, target, []) == text


def test_a_card_is_replaced_unless_somebody_has_changed_it(
    target: SimpleNamespace, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(targets, "WITH_CARD", ("words",))
    (model / "model" / "README.md").write_text(CARD)
    out = tmp_path / "out"
    assert "README.md" in repose.export(model, to="words", out=out).files
    assert "## Files" not in (out / "README.md").read_text()
    (model / "model" / "README.md").write_text(CARD.replace("# A model", "# Another model"))
    target.words = ["c"]
    assert "README.md" in repose.export(model, to="words", out=out).files
    assert "# Another model" in (out / "README.md").read_text(), "nobody has changed the first"
    (out / "README.md").write_text("mine")
    made = repose.export(model, to="words", out=out)
    assert "README.md" not in made.files
    assert "README.md has been edited since it was exported" in made.notes[-1]
    assert (out / "README.md").read_text() == "mine"
    assert names(out) == {"sub/c.txt", "options.json", "repose-words.json", "README.md"}


def test_an_export_of_a_training_that_goes_on_says_so(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert repose.export(model, to="words", out=tmp_path / "out").notes == ("a note",)
    monkeypatch.setattr(targets, "unfinished", lambda place: f"{place.name} is not over")
    assert repose.export(model, to="words", out=tmp_path / "out").notes == ("a note", "model is not over")


def test_what_fails_leaves_nothing(target: SimpleNamespace, model: Path, tmp_path: Path) -> None:
    target.words = []
    before = names(tmp_path)
    with pytest.raises(CheckpointError, match="something other than the model"):
        repose.export(model, to="words", out=tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert names(tmp_path) == before


def test_what_fails_leaves_the_earlier_export(target: SimpleNamespace, model: Path, tmp_path: Path) -> None:
    repose.export(model, to="words", out=tmp_path / "out")
    before = names(tmp_path)
    target.words = []
    with pytest.raises(CheckpointError):
        repose.export(model, to="words", out=tmp_path / "out")
    assert names(tmp_path) == before


def test_an_earlier_export_is_replaced_and_other_files_stay(
    target: SimpleNamespace, model: Path, tmp_path: Path
) -> None:
    repose.export(model, to="words", out=tmp_path / "out")
    (tmp_path / "out" / "mine.txt").write_text("mine")
    target.words = ["c"]
    repose.export(model, to="words", out=tmp_path / "out")
    assert names(tmp_path / "out") == {"sub/c.txt", "options.json", "repose-words.json", "mine.txt"}


@pytest.mark.parametrize("content", [{"mine.txt": "mine"}, {"repose-words.json": "{"}, {"repose-other.json": "{}"}])
def test_a_folder_of_something_else_is_refused(content: dict[str, str], model: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    out.mkdir()
    for name, text in content.items():
        (out / name).write_text(text)
    with pytest.raises(CheckpointError, match="holds something other than an export to words"):
        repose.export(model, to="words", out=out)
    assert {name: (out / name).read_text() for name in names(out)} == content


def test_an_export_never_replaces_its_model(model: Path, tmp_path: Path) -> None:
    before = names(tmp_path)
    for out in (model, model / "model", tmp_path):
        with pytest.raises(ReposeError, match="choose a new or empty folder"):
            repose.export(model, to="words", out=out)
    assert names(tmp_path) == before


def test_one_process_at_a_time_exports_to_a_folder(target: SimpleNamespace, model: Path, tmp_path: Path) -> None:
    export, said = target.export, []

    def while_another_begins(*how: Any) -> base.Exported:
        target.export = export
        with pytest.raises(BusyError) as caught:
            repose.export(model, to="words", out=tmp_path / "out")
        said.append(str(caught.value))
        return export(*how)

    target.export = while_another_begins
    made = repose.export(model, to="words", out=tmp_path / "out")
    assert re.fullmatch(rf"process \d+ on \S+ exports to {tmp_path}/out: wait for it", said[0])
    assert names(tmp_path / "out") == set(made.files)


def test_a_place_that_cannot_be_is_one_sentence(model: Path, tmp_path: Path) -> None:
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(WriteError, match=r"cannot be written to|cannot be locked"):
        repose.export(model, to="words", out=tmp_path / "loop" / "out")


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="needs /proc")
def test_where_no_file_can_be_made_nobody_else_exports(model: Path) -> None:
    with pytest.raises(WriteError, match=r"/proc/\.x\.lock cannot be locked"):
        repose.export(model, to="words", out="/proc/x")


def test_an_unknown_target_or_precision_is_one_sentence(model: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there is no target 'word': did you mean 'words'"):
        repose.export(model, to="word", out=tmp_path / "out")
    for nothing in (None, []):
        wrong: Any = nothing
        with pytest.raises(ConfigError, match=re.escape(f"there is no target {wrong!r}: known are")):
            repose.export(model, to=wrong, out=tmp_path / "out")
        with pytest.raises(ConfigError, match=re.escape(f"there is no precision {wrong!r}: known are")):
            repose.export(model, to="words", out=tmp_path / "out", precision=wrong)
    with pytest.raises(ConfigError, match="there is no precision 'int4'"):
        repose.export(model, to="words", out=tmp_path / "out", precision="int4")
    config = model / "model" / "config.json"
    config.write_text(config.read_text().replace("{", '{"task": "language_modelling", ', 1))
    with pytest.raises(ConfigError, match="holds a model of 'language modelling', and only models that translate can"):
        repose.export(model, to="words", out=tmp_path / "out")
    with pytest.raises(CheckpointError, match="does not exist"):
        repose.export(tmp_path / "none", to="words", out=tmp_path / "out")


def test_the_verb(model: Path, tmp_path: Path, run_repose: Run) -> None:
    command = ("export", model, "--to", "words", "--out", tmp_path / "out")
    code, out, err = run_repose(*command)
    assert (code, out) == (0, f"{tmp_path / 'out'}\n")
    assert "1 bytes  sub/a.txt" in err
    difference = "largest difference of a log-probability from the model: 2.5e-01 nats"
    assert f"{difference}\n" in err
    assert f"{difference}, since int8 rounds\n" in run_repose(*command, "--precision", "int8")[2]
    assert "a note" in err
    assert "3 bytes of words\n" in err
    assert "3 bytes of words before packing\n" in run_repose(*command, "--single-file")[2], "of what is packed into one"
    code, out, err = run_repose("export", model, "--to", "marian", "--out", tmp_path / "other")
    assert (code, out) == (2, "")
    assert err.startswith("repose: there is no target 'marian'")


@pytest.mark.parametrize("given", [{"run": None}, {"out": None}, {"out": "a\0b"}])
def test_what_is_no_path_is_refused(given: dict[str, Any], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="must be the path of a folder"):
        repose.export(**{"run": tmp_path, "to": "onnx", "out": tmp_path / "out", **given})
