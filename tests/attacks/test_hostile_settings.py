"""Impossible settings and corpora of the other tasks: one sentence, and no run directory."""

import os
from pathlib import Path

import pytest
import torch
from victims import run_cli

from repose.data import phrasebook

SIZES = [
    *(f"architecture.{name}" for name in ("d_token=8", "num_heads=1", "head_dim=8", "d_ff=8")),
    *("architecture.num_encoder_layers=1", "architecture.num_decoder_layers=1", "tokenizer.vocab_size=270"),
    *("training.batch_size=50", "training.epochs=1", "training.label_smoothing=0", "training.long_pairs=drop"),
]
HUGE = 10**9
TREE = "1\tit\t_\t_\t_\t_\t2\tnsubj\t_\t_\n2\tworks\t_\t_\t_\t_\t0\troot\t_\t_\n\n"


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Good and bad ones."""
    torch.set_num_threads(1)
    folder = tmp_path_factory.mktemp("files")
    text = "".join(pair[1] + "\n" for pair in phrasebook.read()["valid"][:20])
    bad = {
        "empty": "",
        "blank": "\n \n",
        "nul": "\0\n",
        "columns": "1\tit\n\n",
        "comments": "# text = it\n\n",
        "loop": TREE.replace("\t0\troot", "\t1\troot"),
        "two roots": TREE.replace("\t2\tnsubj", "\t0\troot"),
        "far head": TREE.replace("\t2\tnsubj", "\t9\tnsubj"),
        "no head": TREE.replace("\t2\tnsubj", "\t_\tnsubj"),
        "long": TREE.strip() + "\n" + "\n".join(f"{i}\tx\t_\t_\t_\t_\t2\tdep\t_\t_" for i in range(3, 10_100)) + "\n",
    }
    for name, content in {"text": text, "trees": TREE * 20, **bad}.items():
        (folder / name).write_text(content)
    (folder / "not UTF-8").write_bytes(b"\xff\n")
    os.mkfifo(folder / "pipe")
    (folder / "folder").mkdir()
    return folder


BOTH = [
    *(f"architecture.{name}={HUGE}" for name in ("d_token", "d_ff", "num_encoder_layers", "num_decoder_layers")),
    *(f"architecture.{name}=0" for name in ("d_token", "num_heads")),
    *(f"training.max_src_tokens={size}" for size in (-1, 0)),
    *("tokenizer.vocab_size=3", f"tokenizer.vocab_size={HUGE}", "training.batch_size=0", f"training.seed={2**64}"),
    *(
        "corpus.train=[]",
        "corpus.valid=[]",
        'corpus.train=["empty"]',
        'corpus.train=["blank"]',
        'corpus.valid=["empty"]',
    ),
    *('corpus.train=["pipe"]', 'corpus.valid=["folder"]', 'corpus.test=["missing"]', 'corpus.train=["not UTF-8"]'),
    *('corpus.train=["text","text"]', "training.init_from=folder", "training.bleu_every_epochs=1", "training.task=x"),
    *("tokenizer.src_file=text", "architecture.positions=policy2"),
]
ATTACKS = {
    "language_modelling": [
        *BOTH,
        f"architecture.max_length={HUGE}",
        "training.max_tgt_tokens=0",
        "corpus.name=phrasebook",
    ],
    "parsing": [
        *(*BOTH, "training.label_smoothing=0.1", "training.long_pairs=truncate"),
        *(f'corpus.train=["{name}"]' for name in ("columns", "comments", "loop", "two roots", "far head", "no head")),
        *('corpus.train=["long"]', 'corpus.valid=["loop"]'),
    ],
}
HARMLESS = {
    ("language_modelling", f"architecture.num_encoder_layers={HUGE}"): "a language model has no encoder",
    ("parsing", f"architecture.num_decoder_layers={HUGE}"): "a parser has no decoder",
}


@pytest.mark.parametrize("task", ATTACKS)
def test_what_cannot_be_is_one_sentence(
    task: str, files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if task == "parsing":
        pytest.importorskip("conllu")
    monkeypatch.chdir(files)
    monkeypatch.setenv("REPOSE_HOME", str(tmp_path / "home"))
    corpus = "trees" if task == "parsing" else "text"
    base = [*SIZES, f'corpus.train=["{corpus}"]', f'corpus.valid=["{corpus}"]', f"training.task={task}"]
    wrong = []
    for attack in ATTACKS[task]:
        settings = [part for setting in (*base, attack) for part in ("--set", setting)]
        try:
            said = run_cli("train", "--out", tmp_path / "run", "--workers", 1, *settings)
        except Exception as error:
            wrong.append(f"{attack}: {error!r}")
            continue
        if not said.is_one_sentence and (task, attack) not in HARMLESS:
            wrong.append(f"{attack}: {said}")
    assert not wrong, "\n".join(wrong)
