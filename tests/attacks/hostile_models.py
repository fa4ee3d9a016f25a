"""Loads variants of a model directory, each hostile in one place, and prints what came of each as JSON.

python hostile_models.py MODEL BYTES_OF_MEMORY SCRATCH
"""

import hashlib
import json
import pickle
import resource
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

from repose.decoding.load import load
from repose.system.errors import ReposeError

resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[2]), int(sys.argv[2])))
HUGE = json.dumps({"x": {"dtype": "F32", "shape": [2**40], "data_offsets": [0, 2**42]}}).encode()
Attack = Callable[[Path], object]

whole, scratch = Path(sys.argv[1]), Path(sys.argv[3])


class Bomb:
    def __reduce__(self) -> tuple[Any, ...]:
        return open, (str(scratch / "executed"), "w")


def config(section: str | None = None, **changes: object) -> Attack:
    def change(folder: Path) -> None:
        content = json.loads((folder / "config.json").read_text())
        content.pop("own_crc32")
        (content if section is None else content[section]).update(changes)
        (folder / "config.json").write_text(json.dumps(content))

    return change


def file(name: str, data: bytes) -> Attack:
    def change(folder: Path) -> None:
        content = json.loads((folder / "config.json").read_text())
        content.pop("own_crc32")
        content["sha256"][name] = hashlib.sha256(data).hexdigest()
        (folder / "config.json").write_text(json.dumps(content))
        (folder / name).write_bytes(data)

    return change


def tokenizer(**ids: int) -> Attack:
    content = json.loads((whole / "tokenizer.src.json").read_text())
    content["model"]["vocab"].update(ids)
    return file("tokenizer.src.json", json.dumps(content).encode())


def sparse(folder: Path) -> None:
    with (folder / "model.safetensors").open("r+b") as opened:
        opened.truncate(1 << 40)


def link(folder: Path) -> None:
    (folder / "tokenizer.src.json").unlink()
    (folder / "tokenizer.src.json").symlink_to("/etc/passwd")


def header(text: bytes) -> Attack:
    return file("model.safetensors", len(text).to_bytes(8, "little") + text)


attacks = {
    **{
        f"{name} = {size}": config("architecture", **{name: size})
        for size in (10**9, 10**18, -1, "x", None, 1e99)
        for name in ("d_token", "d_ff", "head_dim", "num_heads", "num_encoder_layers", "max_length")
    },
    **{
        f"{name} = {size}": config(**{name: size})
        for size in (10**9, 10**18, -1, "x", None, True)
        for name in ("src_vocab_size", "tgt_vocab_size")
    },
    **{
        f"{name} = {value}": config("decoding", **{name: value})
        for name, value in [
            ("beam_size", 10**9),
            ("beam_size", "x"),
            ("beam_size", [1]),
            ("batch_size", 0),
            ("batch_size", 10**9),
            ("max_extra_tokens", 10**9),
            ("length_penalty", 1e99),
        ]
    },
    **{f"decoding = {value}": config(decoding=value) for value in (["beam_size"], "beam_size", 4, None)},
    "another task": config(task="evil"),
    "no digests": config(sha256={}),
    "digests of other files": config(sha256={"../../etc/passwd": "0"}),
    "a newer format": config(format_version=10**9),
    "control characters": config(run_id="\x1b[2J"),
    "a pickle as weights": file("model.safetensors", pickle.dumps(Bomb())),
    "a pickle as config": lambda folder: (folder / "config.json").write_bytes(pickle.dumps(Bomb())),
    "a header without end": header(b"{" * 1000),
    "a long header": file("model.safetensors", (2**62).to_bytes(8, "little") + b"{}"),
    "a tensor beyond the file": header(HUGE),
    "deep JSON": lambda folder: (folder / "config.json").write_text("[" * 10**6),
    "an id of 2^31": tokenizer(zzz=2**31),
    "an id of 2^60": tokenizer(zzz=2**60),
    "no tokenizer": file("tokenizer.src.json", b"{}"),
    "deep tokenizer": file("tokenizer.src.json", b"[" * 10**6),
    "a file of a terabyte": sparse,
    "a link out of the folder": link,
}
outcomes = {}
for name, attack in attacks.items():
    folder = scratch / "model"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(whole, folder)
    attack(folder)
    try:
        load(folder, "cpu", 1).close()
        outcomes[name] = "loaded"
    except ReposeError as error:
        outcomes[name] = str(error)
    except BaseException as error:
        outcomes[name] = f"unexpected {error!r}"
print(json.dumps(outcomes))
