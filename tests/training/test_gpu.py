"""Computation on a GPU against the CPU (`pytest -m gpu`). Some tests use the CPU in its place, to try the tests."""

import dataclasses
import warnings
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import pytest
import torch

import repose
from repose.config.experiment import TrainingConfig
from repose.model import positions
from repose.model.architecture import DROPOUTS
from repose.model.audit import audit
from repose.model.presets import PRESETS
from repose.model.transformer import build
from repose.positions_rl.table import default_table
from repose.tasks.translation import TASK, PairBatch
from repose.training import learner, replays
from repose.training.distributed import World
from repose.training.feed import GlobalBatch
from repose.training.replays import Replays
from repose.training.run import train

GPU = pytest.mark.gpu
DEVICES = ["cpu", pytest.param("cuda", marks=GPU)]
CASES = [
    ("cpu", "reinforced"),
    ("cpu", "policy-positions"),
    *(pytest.param("cuda", name, marks=GPU) for name in PRESETS),
]
SIZES = {"d_token": 8, "num_heads": 2, "head_dim": 4, "d_ff": 16, "num_encoder_layers": 1, "num_decoder_layers": 1}


def job_of(lab: Any, name: str, **training: Any) -> Any:
    """A training of that preset, small and without dropout. Its steps do not follow the sign of each gradient."""
    still: dict[str, Any] = {**SIZES, "max_length": 32, **dict.fromkeys(DROPOUTS, 0.0)}
    job = lab.job(dataclasses.replace(PRESETS[name].architecture, **still), adam_eps=0.1, **training)
    if job.architecture.positions != "policy":
        return job
    return dataclasses.replace(job, position_table=tuple(map(tuple, default_table().values.tolist())))


def norms_of(job: Any) -> tuple[str, str]:
    return job.architecture.encoder_token_norm, job.architecture.decoder_token_norm


@pytest.mark.parametrize(("precision", "tolerance"), [("fp32", 1e-3), ("bf16", 0.05)])
@pytest.mark.parametrize(("device", "name"), CASES)
def test_its_training_is_that_of_the_cpu(
    device: str, name: str, precision: str, tolerance: float, lab: Any, tmp_path: Path
) -> None:
    job = job_of(lab, name, epochs=2, precision=precision)
    for folder, its in (("usual", "cpu"), ("its", device)):
        train(job, tmp_path / folder, device=its, workers=1, progress="none")
    for mine, theirs in zip(lab.figures(tmp_path / "its"), lab.figures(tmp_path / "usual"), strict=True):
        assert mine.pop("kind") == theirs.pop("kind")
        if precision == "bf16" and "prefix" in norms_of(job):  # over one token any rounding makes another gradient
            assert mine.pop("grad_norm", 1.0) == pytest.approx(theirs.pop("grad_norm", 1.0), rel=0.5)
        assert mine == pytest.approx(theirs, rel=tolerance, abs=tolerance)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("training", [{}, {"r_drop": 1.0}, {"accumulation": 2, "precision": "bf16"}], ids=str)
def test_a_training_on_it_resumes(device: str, training: dict[str, Any], lab: Any, tmp_path: Path) -> None:
    job = lab.job(epochs=2, **training)
    stopped = train(job, tmp_path, device=device, workers=1, progress="none", stop_after=3)
    assert stopped.status == "stopped"
    assert train(job, tmp_path, device=device, workers=1, progress="none").status == "done"


@pytest.mark.parametrize("first", [True, False], ids=["from it", "to it"])
@pytest.mark.parametrize("device", DEVICES)
def test_a_training_moves_to_and_from_it(device: str, first: bool, lab: Any, tmp_path: Path) -> None:
    job = job_of(lab, "reinforced", epochs=2)
    train(job, tmp_path / "usual", device="cpu", workers=1, progress="none")
    order = (device, "cpu") if first else ("cpu", device)
    train(job, tmp_path / "moved", device=order[0], workers=1, progress="none", stop_after=3)
    assert train(job, tmp_path / "moved", device=order[1], workers=1, progress="none").status == "done"
    for mine, theirs in zip(lab.figures(tmp_path / "moved"), lab.figures(tmp_path / "usual"), strict=True):
        assert mine.pop("kind") == theirs.pop("kind")
        assert mine == pytest.approx(theirs, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("name", ["reinforced", "transformer-tiny"])
@pytest.mark.parametrize("device", DEVICES)
def test_a_step_of_a_model_of_usual_size_has_the_gradients_of_the_cpu(device: str, name: str) -> None:
    """Long enough for a mistake in what waits for what to show; several times, since it may not show at once."""
    architecture = dataclasses.replace(PRESETS[name].architecture, **dict.fromkeys(DROPOUTS, 0.0))
    drawn = torch.Generator().manual_seed(0)
    src, tgt = (torch.randint(4, 2000, (32, 48), generator=drawn) for _ in range(2))
    labels = torch.randint(4, 2000, (tgt.numel(),), generator=drawn)
    learners = []
    for its in ("cpu", *[device] * 4):
        model = build(architecture, src_vocab_size=2000, tgt_vocab_size=2000, seed=1)
        ours = learner.Learner(TASK, model, TrainingConfig(r_drop=1.0, clip_norm=None), World(0, 1, torch.device(its)))
        batch = PairBatch(*(x.to(its) for x in (src, tgt, labels)), None, None)
        ours.backward(GlobalBatch((batch,), len(tgt), len(labels), last=True), 0)
        learners.append(ours)
    usual, *others = ({key: p.grad.cpu() for key, p in x.model.named_parameters()} for x in learners)
    for gradients in others:
        for key, wanted in usual.items():
            difference = torch.linalg.vector_norm(gradients[key] - wanted)
            assert difference <= 1e-3 * torch.linalg.vector_norm(wanted) + 1e-6, key


class Watched(Replays):
    """All that are made, for a look at them."""

    made: ClassVar[list[Replays]] = []

    def __init__(self) -> None:
        super().__init__()
        self.made.append(self)


@GPU
@pytest.mark.parametrize(
    "training", [{}, {"r_drop": 1.0, "word_dropout": 0.1}, {"accumulation": 2}, {"precision": "bf16"}], ids=str
)
@pytest.mark.parametrize("name", PRESETS)
def test_replayed_steps_are_those_that_are_not(
    name: str, training: dict[str, Any], lab: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With dropout: the same random numbers are drawn."""
    job = job_of(lab, name, epochs=4, **training)
    a = dataclasses.replace(job.architecture, dropout=0.1, attention_dropout=0.1)
    monkeypatch.setattr(learner, "Replays", Watched)
    for folder, most in (("usual", 0), ("replayed", 256)):
        positions._bucket_of_size.cache_clear()  # as in a new process
        monkeypatch.setattr(replays, "MOST", most)
        train(dataclasses.replace(job, architecture=a), tmp_path / folder, device="cuda", workers=1, progress="none")
    before, after = Watched.made[-2:]
    assert before.number == 0
    assert after.works
    assert after.number > 2
    for mine, theirs in zip(lab.figures(tmp_path / "replayed"), lab.figures(tmp_path / "usual"), strict=True):
        assert mine.pop("kind") == theirs.pop("kind")
        assert mine == pytest.approx(theirs, rel=1e-4, abs=1e-5)


class Numbers(NamedTuple):
    x: torch.Tensor
    y: torch.Tensor | None = None


@GPU
def test_a_function_that_makes_the_cpu_wait_is_not_replayed() -> None:
    def run(micro_batch: Numbers, number: torch.Tensor) -> torch.Tensor:
        return micro_batch.x * micro_batch.x.sum().item() / number

    made = Replays()
    for start in range(5):
        x = torch.arange(start, start + 4, device="cuda")
        assert made(run, Numbers(x), torch.full((), 2, device="cuda")).tolist() == (x * x.sum() / 2).tolist()
    assert not made.works
    assert made.number == 0


@GPU
def test_what_is_replayed_draws_new_numbers_from_the_seed() -> None:
    """In every shape; and its inputs are those that are given."""

    def run(micro_batch: Numbers, number: torch.Tensor) -> torch.Tensor:
        x = micro_batch.x if micro_batch.y is None else micro_batch.x + micro_batch.y
        return torch.dropout(x / number, 0.5, True)

    made = Replays()
    for seed in range(12):
        x = torch.arange(64 * (1 + seed % 3), device="cuda") + seed
        micro_batch, number = Numbers(x, x if seed % 2 else None), torch.full((), 1 + seed, device="cuda")
        torch.manual_seed(seed)
        found = made(run, micro_batch, number).tolist()
        torch.manual_seed(seed)
        assert found == run(micro_batch, number).tolist()
    assert made.number == 6


def triple(micro_batch: Numbers, number: torch.Tensor) -> torch.Tensor:
    return micro_batch.x * number


@GPU
def test_a_wait_for_what_is_made_once_does_not_count() -> None:
    made, kept = Replays(), []

    def run(micro_batch: Numbers, number: torch.Tensor) -> torch.Tensor:
        if not kept:
            kept.append(torch.tensor([1, 2, 3, 4]).to("cuda"))
        return micro_batch.x * kept[0] / number

    for start in range(5):
        x = torch.arange(start, start + 4, device="cuda")
        assert made(run, Numbers(x), torch.full((), 2, device="cuda")).tolist() == (x * kept[0] / 2).tolist()
    assert made.works
    assert made.number == 1


@GPU
def test_other_warnings_of_a_first_pass_are_told() -> None:
    def run(micro_batch: Numbers, number: torch.Tensor) -> torch.Tensor:
        warnings.warn("mind this", stacklevel=1)
        return micro_batch.x * number

    with pytest.warns(UserWarning, match="mind this"):
        Replays()(run, Numbers(torch.arange(3, device="cuda")), torch.full((), 3, device="cuda"))


@GPU
def test_shapes_beyond_the_most_are_computed_step_by_step(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("repose.training.replays.MOST", 2)
    made = Replays()
    for size in (1, 2, 3, 1, 2, 3, 3):
        x = torch.arange(size, device="cuda")
        assert made(triple, Numbers(x), torch.full((), 3, device="cuda")).tolist() == (3 * x).tolist()
    assert made.number == 2


@pytest.mark.parametrize("device", DEVICES)
def test_it_translates_scores_and_audits_as_the_cpu(device: str, lab: Any, tmp_path: Path) -> None:
    train(lab.job(epochs=20), tmp_path, device=device, workers=1, progress="none")
    sources, targets = ["red sun", "one two tree", "", "fish moon blue red"], ["SUN RED", "TREE", "", "RED MOON"]
    found = []
    for its in ("cpu", device):
        with repose.load(tmp_path / "model", device=its, engine="torch", workers=1) as translator:
            made = [translator.translate(sources, beam_size=beam, attention=True) for beam in (1, 4)]
            texts = [[t.text for t in one] for one in made]
            scores = [t.score for one in made for t in one] + translator.score(sources, targets)
            found.append((texts, scores, audit(translator.model).passed))
    (texts, scores, passed), (its_texts, its_scores, its_passed) = found
    assert its_texts == texts
    assert its_scores == pytest.approx(scores, abs=1e-3)
    assert passed
    assert its_passed


@pytest.mark.parametrize("device", DEVICES)
def test_what_was_trained_on_it_is_an_ensemble_and_is_exported(device: str, lab: Any, tmp_path: Path) -> None:
    for seed in (0, 1):
        train(lab.job(epochs=10, seed=seed), tmp_path / str(seed), device=device, workers=1, progress="none")
    members = [tmp_path / str(seed) / "model" for seed in (0, 1)]
    sources, found = ["red sun", "one two tree", "fish moon blue red"], []
    for its in ("cpu", device):
        with repose.load(members, device=its, engine="torch", workers=1) as ensemble:
            made = ensemble.translate(sources, beam_size=4)
        found.append(([t.text for t in made], [t.score for t in made]))
    assert found[0][0] == found[1][0]
    assert found[0][1] == pytest.approx(found[1][1], abs=1e-3)
    repose.export(members[0], to="onnx", out=tmp_path / "onnx")
    texts = []
    for exported, its in ((tmp_path / "onnx", "cpu"), (members[0], device)):
        with repose.load(exported, device=its, workers=1) as translator:
            texts.append([t.text for t in translator.translate(sources, beam_size=4)])
    assert texts[0] == texts[1]
