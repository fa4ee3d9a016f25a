"""Readers turn any bytes into a value or one of our errors."""

import json
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from repose.config import file as config_file
from repose.config.experiment import Experiment
from repose.data.columns import Columns
from repose.data.pairs import TextPairs
from repose.data.readers import PairReader
from repose.data.text_blocks import Documents
from repose.data.tokenizer import Tokenizer
from repose.data.treebank import Trees
from repose.grids import manifest
from repose.grids.grid import read_grid
from repose.grids.view import progress
from repose.positions_rl import table
from repose.saved_model import directory
from repose.saved_run.folder import RunFolder, read_object
from repose.system.errors import ReposeError
from repose.training import checkpoint

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.sampled_from(["\0", "\ud800"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
LINES = st.lists(
    st.sampled_from([b"a", b"\t", b"\n", b"\r", b"\0", b"\xff", b"\xef\xbb\xbf", "\u2028".encode(), b"[]"])
)


def replaced(whole: Any) -> st.SearchStrategy[bytes]:
    """A JSON value of which one part is another."""
    places: list[tuple[Any, ...]] = []

    def visit(value: Any, place: tuple[Any, ...]) -> None:
        places.append(place)
        items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
        for key, inner in items:
            visit(inner, (*place, key))

    visit(whole, ())

    def put(place: tuple[Any, ...], new: Any) -> bytes:
        changed = [json.loads(json.dumps(whole))]
        at: Any = changed
        for key in (0, *place)[:-1]:
            at = at[key]
        at[(0, *place)[-1]] = new
        return json.dumps(changed[0]).encode()

    return st.builds(put, st.sampled_from(places), JSON)


RECORDS: list[dict[str, Any]] = [
    {"kind": "data", "examples": {"train": 3}, "tokens": {"train": {"src": 3}}, "dropped": {"train": {"long": 1}}},
    {"kind": "epoch", "update": 3, "epoch": 1, "loss": 2.5, "wall": {"seconds": 1.0}},
    {"kind": "end", "status": "done", "reason": "epochs", "update": 3, "epoch": 1, "wall": {"seconds": 1, "at": ""}},
]
CELL = {
    "name": "a-s0",
    "group": "a",
    "labels": {"x": "a"},
    "seed": 0,
    "run_id": "0",
    "folder": "a-s0",
    "status": "done",
}
GRID = {"format": 1, "name": "g", "about": "", "axes": {"x": ["a"]}, "report": {}, "cells": [CELL]}
META = {"format_version": 2, "columns": {"src": "<u2"}, "num_examples": 1, "digest": "d", "info": {}}
SCORES = {
    "run_id": "0",
    "num_sentences": 1,
    "decoded": {"greedy": {"bleu": {"value": 1.0}}},
    "sha256": {"hypotheses": {}},
}
STATE = {"format": checkpoint.FORMAT, "state": "{}", "state_crc32": f"{zlib.crc32(b'{}'):08x}"}
TABLE = {"format_version": 1, "shape": [1, 1], "reward": "x", "score": 0.5, "provenance": {}, "values": [[0.5]]}
TREE = b"1\ta\t_\t_\t_\t_\t0\troot\t_\t_\n\n"
TMX = (
    b'<?xml version="1.0"?><tmx version="1.4"><header srclang="a"/><body><tu><tuv xml:lang="a"><seg>x</seg></tuv>'
    b'<tuv xml:lang="b"><seg>y<ph>z</ph></seg></tuv></tu></body></tmx>'
)
TOML = b'about = "x"\n[grid]\npresets = ["baseline"]\nseeds = 2\n[training]\nepochs = 1\n'


def edited(text: bytes) -> st.SearchStrategy[bytes]:
    """A text of which a few bytes are others."""
    place, number = st.integers(0, len(text)), st.integers(0, 3)
    return st.builds(lambda at, new, old: text[:at] + new + text[at + old :], place, st.binary(max_size=3), number)


def run_with(name: str, content: bytes, folder: Path) -> RunFolder:
    path = folder / "run" / name
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(content)
    return RunFolder(folder / "run")


def read_columns(content: bytes, folder: Path) -> None:
    (folder / "meta.json").write_bytes(content)
    (folder / "src.ids").write_bytes(b"\1\0")
    (folder / "src.offsets").write_bytes(bytes(8) + b"\1" + bytes(7))
    Columns.open(folder)


def read_text(content: bytes, folder: Path) -> None:
    for side in ("src", "tgt"):
        (folder / f"train.{side}").write_bytes(content)
    list(TextPairs(folder, "train"))


def read_model(content: bytes, folder: Path) -> None:
    (folder / directory.CONFIG).write_bytes(content)
    directory.task_of(directory.read_config(folder))


def in_file(name: str, read: Callable[[Path], object]) -> Callable[[bytes, Path], object]:
    def reader(content: bytes, folder: Path) -> object:
        (folder / name).write_bytes(content)
        return read(folder / name)

    return reader


def safetensors(header: bytes) -> bytes:
    return len(header).to_bytes(8, "little") + header


READERS: dict[str, tuple[st.SearchStrategy[bytes], Callable[[bytes, Path], object]]] = {
    "lines": (LINES.map(b"".join), in_file("a.tsv", lambda path: list(PairReader([path])))),
    "CSV": (
        st.lists(st.sampled_from([b"a", b",", b'"', b";", b"\n", b"\r", b"\0", b"\xff", b"\xef\xbb\xbf"])).map(
            b"".join
        ),
        in_file("a.csv", lambda path: list(PairReader([path]))),
    ),
    "translation memories": (edited(TMX), in_file("a.tmx", lambda path: list(PairReader([path])))),
    "aligned lines": (LINES.map(b"".join), in_file("a", lambda path: list(PairReader([path, path])))),
    "JSONL": (replaced({"src": "a", "tgt": "b"}), in_file("a.jsonl", lambda path: list(PairReader([path])))),
    "packed": (LINES.map(b"".join), in_file("a.tsv.gz", lambda path: list(PairReader([path])))),
    "xz": (LINES.map(b"".join), in_file("a.tsv.xz", lambda path: list(PairReader([path])))),
    "prepared text": (LINES.map(b"".join), read_text),
    "documents": (LINES.map(b"".join), in_file("a.txt", lambda path: list(Documents(path)))),
    "columns": (replaced(META), read_columns),
    "tokenizer.json": (st.one_of(JSON.map(json.dumps).map(str.encode), st.binary()), in_file("t.json", Tokenizer.load)),
    "metrics.jsonl": (
        st.sampled_from(RECORDS).flatmap(replaced).map(lambda line: line + b"\n"),
        lambda content, folder: run_with("metrics.jsonl", content, folder).records(may_be_empty=True),
    ),
    "the end of metrics.jsonl": (
        st.sampled_from(RECORDS).flatmap(replaced).map(lambda line: line + b"\n"),
        lambda content, folder: progress(run_with("metrics.jsonl", content, folder).path, Experiment()),
    ),
    "scores": (replaced(SCORES), lambda content, folder: run_with("scores.test.json", content, folder).main_scores()),
    "translations of scores": (
        replaced(SCORES),
        lambda content, folder: run_with("scores.test.json", content, folder).has_all_hypotheses("test"),
    ),
    "objects": (st.binary(), in_file("x.json", lambda path: read_object(path, "restore it"))),
    "grid.json": (replaced(GRID), in_file(manifest.NAME, lambda path: manifest.read(path.parent))),
    "config.json of a model": (replaced({"format_version": 1, "run_id": "0", "task": "parsing"}), read_model),
    "checkpoints": (
        replaced({"__metadata__": STATE}).map(safetensors) | st.binary(),
        in_file("last.safetensors", lambda path: checkpoint.read_state(path, "0")),
    ),
    "position tables": (replaced(TABLE), in_file("t.json", table.read)),
    "experiment files": (
        edited(TOML),
        in_file("x.toml", lambda path: config_file.load(path)),
    ),
    "grid files": (
        edited(TOML),
        in_file("x.toml", lambda path: read_grid(path)),
    ),
    "trees": (
        edited(TREE),
        in_file("a.conllu", lambda path: list(Trees(path))),
    ),
}


@pytest.mark.parametrize("reader", READERS)
def test_any_bytes_are_a_value_or_one_sentence(reader: str, tmp_path: Path) -> None:
    if reader == "trees":
        pytest.importorskip("conllu")
    strategy, read = READERS[reader]

    @settings(max_examples=60, derandomize=True, suppress_health_check=list(HealthCheck), database=None)
    @given(strategy)
    def any_bytes(content: bytes) -> None:
        error = ReposeError("")
        try:
            read(content, tmp_path)
        except ReposeError as said:
            error = said
        assert "\n" not in str(error)

    any_bytes()
