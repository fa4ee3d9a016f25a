"""Today's code behaves like the code that wrote the golden files (`record.py`)."""

import difflib
from pathlib import Path
from typing import Any

import pytest
import record

SAME_MACHINE = record.environment() == record.read("environment")
"""Whether the last bits of floats are to be the same; otherwise they may differ by rounding."""
TOLERANCE = {"fp32": 1e-4, "bf16": 2e-2}


@pytest.fixture(scope="session")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cache of its own."""
    return tmp_path_factory.mktemp("golden") / "home"


def close(ours: list[str], golden: list[str], tolerance: float) -> None:
    """Floats in hexadecimal are equal, or nearly so on another machine."""
    assert len(ours) == len(golden)
    if SAME_MACHINE:
        assert ours == golden
    assert [*map(float.fromhex, ours)] == pytest.approx([*map(float.fromhex, golden)], rel=tolerance)


def same_translations(ours: dict[str, Any], golden: dict[str, Any]) -> None:
    """The same sentences; on another machine, where nearly equal ones may change places, the same scores nearly."""
    if SAME_MACHINE:
        assert ours == golden
    for name in golden:
        ours_scores, scores = ([t["score"] for t in side[name]] for side in (ours, golden))
        close(ours_scores, scores, 1e-2)


def test_models() -> None:
    ours, golden = record.models(), record.read("models")  # presets may be added
    for name, content in golden.items():
        about = {key: value for key, value in content.items() if key not in ("values", "sum", "loss")}
        assert {key: ours[name][key] for key in about} == about, name
        assert list(ours[name]["shapes"]) == list(content["shapes"]), name  # in order, too
        assert ours[name]["sum"] == pytest.approx(content["sum"], rel=1e-6), name
        close([ours[name]["loss"]], [content["loss"]], 1e-5)
        if SAME_MACHINE:
            assert ours[name]["values"] == content["values"], name


def test_decoding() -> None:
    ours, golden = record.decoded(), record.read("decoded")
    for name in golden:
        same_translations(ours[name], golden[name])


@pytest.mark.parametrize(("preset", "task", "precision"), record.TRAININGS)
def test_training(preset: str, task: str, precision: str, home: Path, tmp_path: Path) -> None:
    golden = record.read("training")[record.training_name(preset, task, precision)]
    ours = record.training(preset, task, precision, home, tmp_path / "run")
    assert (ours["run_id"], ours["digests"]) == (golden["run_id"], golden["digests"])
    assert len(golden["losses"]) == record.UPDATES
    close(ours["losses"], golden["losses"], TOLERANCE[precision])
    close(ours["norms"], golden["norms"], 100 * TOLERANCE[precision])
    close(ours["valid"], golden["valid"], TOLERANCE[precision])
    if SAME_MACHINE:
        assert ours["figures"] == golden["figures"]
    if "translations" in golden:
        same_translations(ours["translations"], golden["translations"])


def test_run_ids() -> None:
    ours, golden = record.run_ids(), record.read("run_ids")
    assert ours["experiments"] == golden["experiments"]
    assert ours["grids"] == golden["grids"]
    assert {name: ours["runs"][name] for name in golden["runs"]} == golden["runs"]  # results may be added


@pytest.mark.parametrize("source", record.REPORTS)
def test_reports(source: str, home: Path, tmp_path: Path) -> None:
    golden = record.read("reports")[source]
    ours = record.report(record.RESULTS / source, home, tmp_path / "report")
    if source == record.MARKDOWN:
        texts = [
            path.read_text(encoding="utf-8") for path in (record.HERE / "report.md", tmp_path / "report/report.md")
        ]
        assert "\n".join(difflib.unified_diff(*(text.splitlines() for text in texts), "golden", "ours", n=0)) == ""
    assert ours["texts"] == golden["texts"]
    assert ours["json"] == golden["json"]
    assert ours["html_without_pictures"] == golden["html_without_pictures"]
    if SAME_MACHINE:  # drawn by the same matplotlib
        assert ours["html"] == golden["html"]
    if source == record.EXAMPLE:
        kept = record.files_of(record.RESULTS / source / "report")
        assert kept.pop("report.html") == golden["html"]
        assert kept.pop("report.json") == golden["json"]
        assert kept.items() <= golden["texts"].items()


@pytest.fixture(scope="module")
def old(home: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What is made today of directories of earlier versions."""
    return record.old(home, tmp_path_factory.mktemp("old"))


def test_an_old_model_translates(old: dict[str, Any]) -> None:
    same_translations(old["translations"], record.read("old")["translations"])


@pytest.mark.parametrize("name", ["old_run", "old_language_run"])
def test_an_old_run_is_finished(old: dict[str, Any], name: str) -> None:
    golden = record.read("old")[name]
    assert old[name]["exit_code"] == golden["exit_code"] == 0
    assert old[name]["files"] == golden["files"] == record.files_of(record.HERE / name)


def of_then(ours: Any, golden: Any) -> Any:
    """What was recorded, of scores to which later versions have added what they count."""
    if not isinstance(golden, dict):
        return ours
    return {name: of_then(ours[name], value) for name, value in golden.items() if name in ours}


@pytest.mark.parametrize("name", ["old_run", "old_language_run"])
def test_an_old_run_is_measured_and_reported_as_before(old: dict[str, Any], name: str) -> None:
    ours, golden = old[name], record.read("old")[name]
    assert ours["report"] == golden["report"]
    if SAME_MACHINE:
        assert (of_then(ours["scores"], golden["scores"]), ours["hypotheses"]) == (
            golden["scores"],
            golden["hypotheses"],
        )
    else:
        assert set(ours["scores"]) >= set(golden["scores"])


def test_no_path_of_a_machine_is_in_the_fixtures() -> None:
    roots = [f"/{name}/".encode() for name in ("tmp", "work", "root", "home")]
    for folder in (record.OLD_RUN, record.OLD_MODEL, record.OLD_LANGUAGE_RUN):
        for path in folder.rglob("*"):
            if path.is_file():
                assert not any(root in path.read_bytes() for root in roots), path
