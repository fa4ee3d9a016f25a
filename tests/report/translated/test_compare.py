"""Two systems compared from Python."""

import json
import zlib
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import repose
from repose.report.significance import significance_tables
from repose.system.errors import ConfigError, DataError


def test_figures_are_those_of_the_report(made: Any) -> None:
    folders = {
        system: [made.add(system, wrong=wrong, seed=seed) for seed in range(3)]
        for system, wrong in (("base", 0.3), ("good", 0.2))
    }
    tables = {table.id: table for table in significance_tables(made.runs("base"))}
    found = repose.compare(folders["good"], list(map(str, folders["base"])))
    (row,) = tables["significance"].rows
    sentences = found.sentences
    assert (sentences.value, sentences.p) == (row[4].value, row[7].value)
    (row,) = tables["seeds"].rows
    assert found.seeds is not None
    assert (found.seeds.value, found.seeds.p) == (row[4].value, row[7].value)
    assert (len(found.scores), len(found.other_scores), found.metric) == (3, 3, "bleu")
    assert found.safe == (max(sentences.p, found.seeds.p) <= 0.05)
    back = repose.compare(folders["base"], folders["good"], metric="chrf")
    assert back.sentences.value < 0
    greedy = repose.compare(folders["good"], folders["base"], decoding="greedy")
    assert greedy.sentences.value == 0.0, "all are the references"
    assert greedy.decoding == "greedy"
    alone = repose.compare(folders["good"][0], folders["base"][0])
    assert (alone.seeds, alone.safe) == (None, False)


def test_what_cannot_be_compared_is_told(made: Any) -> None:
    base, good = made.add("base"), made.add("good")
    other = made.corpus("news").add("base", corpus="news")
    low = made.add("low", lowercase=True)
    for runs, kind, says in (
        ((base, []), ConfigError, "other names no run"),
        ((base, base), ConfigError, "base-s0 is on both sides"),
        ((base, other), DataError, "the runs are of several corpora, .*news"),
        ((base, low), DataError, "low-s0; it was scored with case:lc"),
    ):
        with pytest.raises(kind, match=says):
            repose.compare(*runs)
    with pytest.raises(ConfigError, match="metric 'ter'"):
        repose.compare(base, good, metric="ter")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="decoding is 'beam9': give 'greedy'"):
        repose.compare(base, good, decoding="beam9")
    (good / "state").mkdir()
    state = json.dumps({"done": None})
    head = {"state": state, "state_crc32": f"{zlib.crc32(state.encode()):08x}"}
    save_file({"weight": np.zeros(1, np.float32)}, good / "state" / "last.safetensors", metadata=head)
    with pytest.raises(DataError, match=r"good-s0 is not finished: let it finish first$"):
        repose.compare(base, good)
    (good / "state" / "last.safetensors").unlink()
    (good / "hypotheses" / "test.beam4.txt").unlink()
    with pytest.raises(DataError, match="good-s0; "):
        repose.compare(base, good)
