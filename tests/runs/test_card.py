"""The model card: what the hub reads, and what people read."""

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from repose.model.presets import preset
from repose.runs.card import card, waits_for_scores, write_card
from repose.saved_run.folder import RunFolder
from repose.saved_run.records import EndReason, EndRecord, Records, RunStatus
from repose.system.files import sealed

GOLDEN = Path(__file__).parents[1] / "golden"
SIGNATURE = "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0"


@pytest.fixture(params=["old_run"])
def run(tmp_path: Path, request: pytest.FixtureRequest) -> RunFolder:
    """A finished run."""
    shutil.copytree(GOLDEN / request.param, tmp_path / "run")
    return RunFolder(tmp_path / "run")


def written(run: RunFolder) -> str:
    write_card(run.path)
    return (run.model / "README.md").read_text(encoding="utf-8")


def change_scores(run: RunFolder, change: Callable[[dict[str, Any]], object]) -> None:
    scores = run.scores("test")
    assert scores is not None
    change(scores)
    run.scores_file("test").write_text(json.dumps(sealed(scores)))


def test_the_hub_reads_its_head(run: RunFolder) -> None:
    huggingface_hub = pytest.importorskip("huggingface_hub")
    write_card(run.path)
    loaded = huggingface_hub.ModelCard.load(run.model / "README.md")
    data = loaded.data
    assert (data.language, data.library_name, data.pipeline_tag) == (["pt", "en"], "repose", "translation")
    assert data.metrics == ["bleu", "chrf"]
    assert data.model_name == "Portuguese → English, run 3aafd854dfc8"
    results = {result.metric_name: result for result in data.eval_results}
    assert set(results) == {"BLEU, greedy", "chrF, greedy", "BLEU, beam 4", "chrF, beam 4"}
    found = results["BLEU, beam 4"]
    assert (found.task_type, found.metric_type, found.metric_value) == ("translation", "bleu", 1.3078)
    assert (found.dataset_split, found.metric_args) == ("test", {"signature": SIGNATURE})
    assert huggingface_hub.ModelCardData(**data.to_dict()).to_yaml()  # and it can be written again


@pytest.mark.parametrize("run", ["old_language_run"], indirect=True)
def test_a_model_of_another_task_has_its_own_figures(run: RunFolder) -> None:
    huggingface_hub = pytest.importorskip("huggingface_hub")
    text = written(run)
    data = huggingface_hub.ModelCard.load(run.model / "README.md").data
    assert (data.language, data.pipeline_tag) == (None, None)
    assert "perplexity" in {result.metric_type for result in data.eval_results}
    assert not any(result.metric_type.startswith("tf_") for result in data.eval_results)
    assert "| perplexity | 35.17 | `per token` |" in text
    assert "earlier words" not in text


def test_people_read_what_it_is_and_what_it_is_not(run: RunFolder) -> None:
    text = written(run)
    headings = [line for line in text.splitlines() if line.startswith("#")]
    assert headings == [
        "# Portuguese → English, run 3aafd854dfc8",
        "## How to load",
        "## Intended use and limits",
        "## Data",
        "## Training",
        "## Scores",
        "## Differences from Vaswani et al. (2017), base",
        "## Files",
        "## Sources",
    ]
    assert "translates sentences from Portuguese into English" in text
    assert "72 of 72 pairs read" in text
    assert "150 updates, 19 epochs" in text
    assert "| beam 4 | BLEU | 1.31 | `{}` |".format(SIGNATURE.replace("|", "\\|")) in text
    assert "greedy: 4 translations did not end, " in text
    assert "1 + 1 layers, 1 head of 8, d_ff 16" in text
    assert "No licence is stated" in text


def test_files_stand_with_their_digests(run: RunFolder) -> None:
    import hashlib

    text = written(run)
    for path in run.model.iterdir():
        if path.name != "README.md":
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            assert f"| `{path.name}` | {path.stat().st_size:,} | `{digest}` |" in text


def test_a_table_keeps_its_columns(run: RunFolder) -> None:
    rows = [line for line in written(run).splitlines() if line.startswith("| beam 4")]
    assert rows
    assert all(row.replace("\\|", "").count("|") == 5 for row in rows)


def test_before_there_are_scores_it_has_none(run: RunFolder) -> None:
    assert not waits_for_scores(run.model)  # written by somebody else, so it stays
    config = run.config()
    text = card(config)
    assert "## Scores" not in text
    assert "model-index" not in text
    assert "## Files" not in text
    (run.model / "README.md").write_text(text)
    assert waits_for_scores(run.model)
    write_card(run.path)
    assert not waits_for_scores(run.model)


def test_what_looks_ahead_says_so_first(run: RunFolder) -> None:
    config = run.config()
    ahead = replace(config.experiment, architecture=preset("reinforced-lookahead"))
    text = card(replace(config, experiment=ahead))
    assert text.split("---\n")[2].splitlines()[3].startswith("> **Warning.** This model's decoder")
    assert 'tags: ["repose", "reinforced-lookahead"]' in text
    assert "arXiv 2410.04731" in text


def test_what_inflates_scores_stands_below_them(run: RunFolder) -> None:
    def inflate(scores: dict[str, Any]) -> None:
        greedy = scores["decoded"]["greedy"]
        greedy["bleu_detokenised"] = {"value": 0.5, "signature": SIGNATURE}
        scores["references"] = {"tokenised": 12, "entities": 0}

    change_scores(run, inflate)
    assert "> **Warning.** 12 of the 12 references look tokenised" in written(run)


def test_translations_that_loop_stand_below_the_scores(run: RunFolder) -> None:
    change_scores(run, lambda scores: scores["decoded"]["beam4"].update(looping=2))
    notes = [line for line in written(run).splitlines() if line.endswith(" looping")]
    assert notes == [
        "- greedy: 4 translations did not end, 0 looping",
        "- beam 4: 0 translations did not end, 2 looping",
    ]


def test_scores_on_what_it_was_trained_on_are_told(run: RunFolder) -> None:
    change_scores(run, lambda scores: scores.update(trained_on=7))
    assert "> **Warning.** The model was trained on 7 of these sources, so its scores may be too high" in written(run)


@pytest.mark.parametrize(
    ("codes", "line", "title"),
    [
        (("no", "pt-BR"), 'language: ["no", "pt"]', "# Norwegian → Portuguese, run"),
        (("quy", "xx"), 'language: ["quy", "xx"]', "# Ayacucho Quechua → xx, run"),
        (("zh_Hant", "zh_Hans"), 'language: ["zh"]', "# Chinese (zh_Hant) → Chinese (zh_Hans), run"),
        (("en", "en"), 'language: ["en"]', "# English → English, run"),
        (("aztr", "en"), 'language: ["en"]', "# aztr → English, run"),
        (("und", "en"), 'language: ["en"]', "# Translation between languages that are not stated, run"),
    ],
)
def test_languages_are_codes_for_the_hub_and_names_for_people(
    run: RunFolder, codes: tuple[str, str], line: str, title: str
) -> None:
    huggingface_hub = pytest.importorskip("huggingface_hub")
    config = run.config()
    files = ("a.src", "a.tgt")  # whose names do not say it
    corpus = replace(config.experiment.corpus, train=files, src_lang=codes[0], tgt_lang=codes[1])
    text = card(replace(config, experiment=replace(config.experiment, corpus=corpus)))
    assert line in text.splitlines()
    assert title in text
    assert huggingface_hub.ModelCard(text).data.language == json.loads(line.partition(": ")[2])


def test_it_names_the_preset_that_the_model_computes(run: RunFolder) -> None:
    config = run.config()
    for changes, name in (
        ({}, "reinforced"),
        ({"dropout": 0.4, "max_length": 99}, "reinforced"),
        ({"norm": "pre"}, None),
    ):
        architecture = replace(preset("reinforced"), **changes)
        experiment = replace(config.experiment, architecture=architecture)
        assert ("`reinforced`" in card(replace(config, experiment=experiment))) == (name is not None)


def test_it_says_how_it_was_trained_and_what_is_wrong_with_it(run: RunFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    config = run.config()
    training = replace(config.experiment.training, r_drop=1.0, seed=3)
    config = replace(config, experiment=replace(config.experiment, training=training))
    end = EndRecord(status=RunStatus.DONE, reason=EndReason.HOURS, update=71, epoch=1, total=4200, seconds=240.0, at="")
    for gain, is_told in ((0.03, True), (0.9, False)):
        monkeypatch.setattr(RunFolder, "records", lambda _: Records((), end=end))
        monkeypatch.setattr(RunFolder, "figures_of_model", lambda _, gain=gain: {"source_gain": gain})
        text = card(config, run)
        assert "- Seed 3; the best weights are kept. Settings that differ from the defaults: " in text
        assert ", r_drop 1.0" in text
        assert "- 71 updates of 4,200, when its time was up, 1 epoch, 4 min." in text
        assert ("> **Warning.** The model hardly reads its source" in text) == is_told
    monkeypatch.setattr(RunFolder, "records", lambda _: Records((), end=replace(end, reason=EndReason.PATIENCE)))
    assert "- 71 updates, 1 epoch, 4 min." in card(config, run)
