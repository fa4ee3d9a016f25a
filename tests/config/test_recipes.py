"""Settings by corpus size: chosen, reported, overridden, and not applied to a run that started without them."""

from dataclasses import asdict
from pathlib import Path

import pytest
import torch

from repose.config.experiment import SECTIONS
from repose.config.file import Origin, format_config, load, to_json
from repose.model.presets import preset_name
from repose.runs.arguments import RECIPES, loaded_experiment, tell_of_bf16
from repose.saved_run.folder import RunFolder
from repose.system.device import multiplies_in_bf16
from repose.tasks.corpus_files import num_training_pairs


@pytest.fixture
def few(tmp_path: Path) -> list[Path]:
    """A corpus that there is a recipe for."""
    (tmp_path / "few.tsv").write_text("um\tone\ndois\ttwo\n\tthree\n" * 40, encoding="utf-8")
    return [tmp_path / "few.tsv"]


@pytest.fixture
def many(tmp_path: Path) -> list[Path]:
    """One that is too large for every recipe."""
    (tmp_path / "many.tsv").write_text("um\tone\n" * (max(RECIPES) + 1), encoding="utf-8")
    return [tmp_path / "many.tsv"]


def test_a_small_corpus_has_its_recipe_and_is_told_so(few: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    loaded = loaded_experiment(few, None, None, None)
    said = capsys.readouterr().err
    assert said.startswith("80 pairs: too few to learn from: the result will not be a translator")
    assert "\n80 pairs: the recipe little-data (for at most 12,000" in said
    assert "\n    architecture  dropout 0.3" in said
    assert max(map(len, said.splitlines())) <= 160
    assert "vocab_size 2000" in said
    assert loaded.experiment.tokenizer.vocab_size == 2000
    assert loaded.sources["tokenizer.vocab_size"] == Origin("file", "little-data.toml (shipped)")
    assert "# file little-data.toml (shipped)" in format_config(loaded)


def test_a_recipe_of_another_preset_names_it(few: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    many = [path.rename(path.with_stem("many")) for path in few]
    for path in many:
        path.write_text(path.read_text(encoding="utf-8") * 160, encoding="utf-8")
    loaded = loaded_experiment(many, None, None, None)
    assert preset_name(loaded.experiment.architecture) == "small-rotary"
    said = capsys.readouterr().err
    assert "\n12,800 pairs: the recipe medium-data" in "\n" + said
    assert "\n    architecture  preset small-rotary, dropout 0.2\n" in said


def test_that_bf16_is_faster_is_said_once_and_to_who_has_not_chosen(
    few: list[Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def said(*overrides: str, out: Path = tmp_path / "run", has_bf16: bool = True, device: str = "cpu") -> list[str]:
        monkeypatch.setattr("repose.runs.arguments.multiplies_in_bf16", lambda: has_bf16)
        lines: list[str] = []
        tell_of_bf16(loaded_experiment(few, None, None, overrides, say=lambda _: None), out, device, lines.append)
        return lines

    hint = "training is faster in bf16 on this processor: --set training.precision=bf16"
    assert said() == [hint]
    assert said(has_bf16=False) == []
    monkeypatch.setattr("repose.training.distributed.choose_device", torch.device)
    assert said(device="cuda") == [], "where long trainings have diverged in it"
    assert said("training.precision=fp32") == said("training.precision=bf16") == []
    trees = '[corpus]\ntrain = ["a.conllu"]\nvalid = ["b.conllu"]\n[training]\ntask = "parsing"\nupdates = 1\n'
    (tmp_path / "trees.toml").write_text(trees)
    lines: list[str] = []
    tell_of_bf16(load(tmp_path / "trees.toml"), tmp_path / "run", "cpu", lines.append)
    assert lines == [], "measured for translators alone"
    RunFolder(tmp_path / "run").config_file.parent.mkdir()
    RunFolder(tmp_path / "run").config_file.write_text("{}")
    assert said() == [], "a run keeps the precision that it has"


def test_what_multiplies_in_bf16(monkeypatch: pytest.MonkeyPatch) -> None:
    for found, expected in (({"avx512_bf16": True}, True), ({"amx_bf16": True}, True), ({"avx512_f": True}, False)):
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda found=found: found, raising=False)
        assert multiplies_in_bf16() is expected
    monkeypatch.delattr(torch.cpu, "get_capabilities")
    assert not multiplies_in_bf16(), "an earlier torch cannot tell"


def test_more_pairs_have_the_next_recipe(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (little, _), (medium, name) = sorted(RECIPES.items())
    (tmp_path / "some.tsv").write_text("um\tone\n" * (little + 1), encoding="utf-8")
    files = [tmp_path / "some.tsv"]
    loaded = loaded_experiment(files, None, None, None)
    said = capsys.readouterr().err
    assert f"{little + 1:,} pairs: the recipe {name} (for at most {medium:,}" in said
    assert loaded == loaded_experiment(files, name, None, None) == load(name, train=files)
    with files[0].open("a", encoding="utf-8") as file:
        file.write("um\tone\n" * (medium - little - 1))
    assert loaded_experiment(files, None, None, None) == loaded, "as many as it is for"


def test_what_differs_from_the_default_is_said(few: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    recipe, default = loaded_experiment(few, None, None, None).experiment, load("default", train=few).experiment
    said = capsys.readouterr().err
    for section in SECTIONS:
        theirs, plain = asdict(getattr(recipe, section)), asdict(getattr(default, section))
        told = next((line for line in said.splitlines() if line.startswith(f"    {section} ")), "")
        expected = [
            f"{field} {'none' if value is None else value}" for field, value in theirs.items() if value != plain[field]
        ]
        assert told.removeprefix(f"    {section}").strip() == ", ".join(expected)


def test_what_is_named_goes_over_the_recipe(few: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    named = loaded_experiment(few, None, "baseline", ["tokenizer.vocab_size=500"]).experiment
    lost = "--set architecture.dropout=0.3 --set architecture.attention_output_dropout=0.3 restores these"
    assert f"the preset baseline has values of its own instead of the recipe's: {lost}" in capsys.readouterr().err
    loaded_experiment(few, None, "reinforced", [])
    assert "values of its own" not in capsys.readouterr().err
    assert named.tokenizer.vocab_size == 500
    assert named.architecture.dropout == load(None, preset="baseline").experiment.architecture.dropout
    assert named.training.batch_size == 1024


@pytest.mark.parametrize("config", ["default", "demo"])
def test_a_named_experiment_is_as_it_was(few: list[Path], config: str) -> None:
    loaded = loaded_experiment([] if config == "demo" else few, config, None, None)
    assert {source.name for source in loaded.sources.values() if source.kind == "file"} == {f"{config}.toml (shipped)"}


def test_a_large_corpus_has_the_default(many: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    assert loaded_experiment(many, None, None, None) == load("default", train=many)
    assert capsys.readouterr().err == ""


def test_synthetic_pairs_count(few: list[Path], many: list[Path]) -> None:
    loaded = loaded_experiment(few, None, None, None, synthetic=(many[0],))
    assert loaded.experiment.training.batch_size == 4096
    assert num_training_pairs(loaded.experiment.corpus, at_most=100_000) == 80 + max(RECIPES) + 1


def test_a_run_begun_without_the_recipe_goes_on_without_it(few: list[Path], tmp_path: Path) -> None:
    before = load("default", train=few).experiment
    out = tmp_path / "run"
    out.mkdir()
    config = f'{{"run_id": "0", "experiment": {to_json(before)}, "digests": {{}}, "report": [], "versions": {{}}}}'
    (out / "config.json").write_text(config, encoding="utf-8")
    assert loaded_experiment(few, None, None, None, out=out).experiment == before
    assert loaded_experiment(few, None, None, ["training.seed=1"], out=out).experiment.training.batch_size == 1024


def test_files_that_cannot_be_read_are_for_the_training_to_refuse(tmp_path: Path) -> None:
    assert loaded_experiment([tmp_path / "none.tsv"], None, None, None).experiment.training.batch_size == 4096
