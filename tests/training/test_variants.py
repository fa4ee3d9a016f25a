"""Every part of the model that a paper changes, through a whole training."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import torch

from repose.model.positions import upscale
from repose.model.presets import preset
from repose.tasks.translation import TASK

ROWS = ((-1.0, 0.5, 0.25), (0.0, 1.0, -0.5), (1.0, -1.0, 0.125))


def tiny(lab: Any, name: str, **changes: Any) -> Any:
    """The preset at the size of the tests, and a table where it needs one."""
    sizes = {f: getattr(lab.tiny, f) for f in ("d_token", "num_heads", "head_dim", "d_ff", "max_length")}
    a = dataclasses.replace(preset(name), **sizes, num_encoder_layers=2, num_decoder_layers=2, **changes)
    job = lab.job(a, average_checkpoints=2, epochs=2)
    return dataclasses.replace(job, position_table=ROWS if a.positions == "policy" else None)


RUNNING = {"encoder_token_norm": "running", "decoder_token_norm": "running"}
VARIANTS: list[tuple[str, dict[str, Any]]] = [
    ("enhanced", {}),
    ("pre-ln", {}),
    ("original", {"norm": "both", "self_score": "zero_weights"}),
    ("realformer", {}),
    ("tupe-r", {"self_score": "exclude"}),
    ("reinforced", RUNNING),
    ("vaswani-base", {"attention_window": 4, "tie_embeddings": "none", "positions": "learned"}),
]


@pytest.mark.parametrize(("name", "changes"), VARIANTS, ids=[name for name, _ in VARIANTS])
def test_trains_stops_and_goes_on_to_the_same_bits(
    lab: Any, tmp_path: Path, name: str, changes: dict[str, Any]
) -> None:
    job = tiny(lab, name, **changes)
    assert lab.go(job, tmp_path / "whole").status == "done"
    assert lab.go(job, tmp_path / "parts", stop_after=3).status == "stopped"
    assert lab.go(job, tmp_path / "parts").status == "done"
    lab.assert_same_run(tmp_path / "whole", tmp_path / "parts")
    first, *_, last = lab.records(tmp_path / "whole", "epoch")
    assert last["loss"] < first["loss"]


def test_a_policys_positions_stay_what_they_were(lab: Any, tmp_path: Path) -> None:
    """In the checkpoint, in the average of checkpoints and in the model that is handed on."""
    job = tiny(lab, "enhanced")
    lab.go(job, tmp_path)
    wanted = upscale(torch.tensor(ROWS), job.architecture.max_length, job.architecture.d_token)
    model = TASK.load(tmp_path).model
    for stack in (model.encoder, model.decoder):
        assert torch.equal(stack.embedding.positions.table, wanted)


@pytest.mark.parametrize("changes", [{}, RUNNING], ids=["no norm of tokens", "running"])
def test_two_workers_make_the_same_steps(lab: Any, tmp_path: Path, changes: dict[str, Any]) -> None:
    job = tiny(lab, "enhanced", dropout=0.0, attention_output_dropout=0.0, **changes)
    for workers in (1, 2):
        lab.go(job, tmp_path / str(workers), workers=workers)
    one, two = (lab.model(tmp_path / str(workers)) for workers in (1, 2))
    for key in one:
        if key.endswith("cross_attention.key.bias"):
            continue  # moves all scores of a query alike: its gradient is rounding, which Adam blows up
        torch.testing.assert_close(one[key], two[key], atol=1e-4, rtol=1e-4)
        if key.endswith("token_norm.mean"):
            assert one[key].abs().min() > 0, "moved with the training"
