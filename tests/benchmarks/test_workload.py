import gzip
from argparse import ArgumentParser
from pathlib import Path

import numpy as np
import pytest
import torch
from protocol import Options, Workload, sizes_of
from repose_ import Training, make_model

import workload
from repose.data import phrasebook
from repose.data.dataset import PairDataset
from repose.model.presets import PRESETS
from repose.training.distributed import World
from train import architecture, flops_per_token, tokens_per_batch

PAIRS = 300
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("home")


@pytest.fixture(autouse=True)
def _cache(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPOSE_HOME", str(home))


@pytest.fixture
def folder() -> Path:
    """A workload of phrasebook pairs."""
    return workload.make_phrasebook(PAIRS)


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Ten pairs in two packed files."""
    (tmp_path / "greetings").mkdir()
    paths = [tmp_path / "greetings" / f"train.{side}.gz" for side in ("pt", "en")]
    for side, path in enumerate(paths):
        path.write_bytes(gzip.compress("".join(pair[side] + "\n" for pair in phrasebook.read()["test"][:10]).encode()))
    return paths


def options(folder: Path, *, model: str = "reinforced", size: str = "exact", batches: str = "random64") -> Options:
    return Options(folder, "train", model, size, "fp32", batches, 1, 1, 1, "cpu", "torch", 0)


@pytest.mark.parametrize("batches", workload.POLICIES)
def test_contestants_see_what_a_training_sees(folder: Path, batches: str) -> None:
    read = Workload(options(folder, batches=batches))
    data = PairDataset.open(folder / "prepared")
    everything = np.sort(np.concatenate(read.train_batches))
    assert everything.tolist() == list(range(PAIRS))
    assert len(read.train_batches) > 1
    for number, pairs in enumerate(read.train_batches):
        ours, theirs = data.batch(pairs), read.train_batch(number)
        for name in ("src", "tgt", "labels"):
            np.testing.assert_array_equal(getattr(ours, name), getattr(theirs, name))
        assert theirs.tokens == data.tgt_lengths[pairs].sum()


def test_facts(folder: Path) -> None:
    data = PairDataset.open(folder / "prepared")
    facts = workload.facts(folder)
    assert (facts["src_vocab_size"], facts["tgt_vocab_size"]) == (7_765, 7_010)
    assert (facts["corpus"], facts["pairs"]) == ("phrasebook", PAIRS)
    assert (facts["src_tokens"], facts["tgt_tokens"]) == (data.src_lengths.sum(), data.tgt_lengths.sum())
    assert sum(map(len, Workload(options(folder)).decode_batches)) == workload.NUM_DECODED


def test_files_are_named_by_their_folder_and_read_once(files: list[Path], capsys: pytest.CaptureFixture[str]) -> None:
    parser = ArgumentParser()
    workload.add_arguments(parser)
    args = parser.parse_args(["--train", *map(str, files)])
    folder = workload.from_arguments(args)
    assert workload.facts(folder)["corpus"] == "greetings"
    assert "making" in capsys.readouterr().err
    assert workload.from_arguments(args) == folder
    assert "making" not in capsys.readouterr().err


def test_paper_epoch_has_the_lengths_of_the_files_and_random_ids(files: list[Path]) -> None:
    made = PairDataset.open(workload.make_paper_epoch([*files, *files], pairs=500) / "prepared")
    real = PairDataset.open(workload.make(files) / "prepared")
    assert len(made) == 500
    lengths = [set(zip(data.src_lengths.tolist(), data.tgt_lengths.tolist(), strict=True)) for data in (made, real)]
    assert lengths[0] == lengths[1]
    ids = np.concatenate([made.batch(np.arange(500)).labels.ravel(), [0]])
    assert len(np.unique(ids)) > 1000
    assert ids.max() < workload.TGT_VOCAB_SIZE


def test_random_ids_are_their_own_tokens() -> None:
    assert workload.RandomIds(9).encode_batch(["5 8", ""]) == [[2, 5, 8, 3], [2, 3]]


@pytest.mark.parametrize("size", ["exact", "nearest"])
@pytest.mark.parametrize("model", ["baseline", "reinforced"])
def test_this_project_trains_the_published_models(folder: Path, model: str, size: str) -> None:
    asked = options(folder, model=model, size=size)
    made = make_model(asked, Workload(asked))
    assert made.architecture.head_dim == sizes_of(model, size).head_dim
    if size == "exact":
        assert sum(parameter.numel() for parameter in made.parameters()) == PRESETS[model].published_parameters


def test_this_project_trains_on_the_batches_in_order(folder: Path) -> None:
    training = Training(World(0, 1, CPU), options(folder))
    read = Workload(options(folder))
    tokens = [read.train_batch(number).tokens for number in range(read.num_batches)]
    assert training.run([3, 4]) == tokens[3] + tokens[4]  # as in the warm-up
    assert [training.run([number]) for number in (0, 1)] == tokens[:2]
    assert training.run([2, 3, 4, 0]) == sum(tokens[2:]) + tokens[0]
    assert training.position == 1


def test_a_workload_of_other_batches_is_refused(folder: Path, tmp_path: Path) -> None:
    with np.load(folder / "pairs.npz") as arrays:
        changed = dict(arrays)
    changed["random64"] = changed["random64"][::-1]
    for file in ("workload.json", "decode.npz", "prepared"):
        (tmp_path / file).symlink_to(folder / file)
    np.savez(tmp_path / "pairs.npz", **changed)
    with pytest.raises(SystemExit, match="delete"):
        Training(World(0, 1, CPU), options(tmp_path))


def test_cost_of_a_token_counts_true_lengths(folder: Path) -> None:
    data = PairDataset.open(folder / "prepared")
    cost = flops_per_token(architecture("repose", "reinforced"), folder)
    assert cost == pytest.approx(11.6e6, rel=0.1)
    assert flops_per_token(architecture("marian", "baseline"), folder) < cost * 4
    assert tokens_per_batch(folder, "random64") == round(data.tgt_lengths.sum() / 5)
