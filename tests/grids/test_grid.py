"""Grid files: what they expand to, and which are refused, with the place and advice."""

import dataclasses
import json
import re
import tomllib
from pathlib import Path

import pytest

from repose.config.file import load
from repose.grids.estimate import kind_of
from repose.grids.file import _KEYS, Rule
from repose.grids.grid import Grid, folder_label, read_grid, shipped_grids
from repose.system.errors import ConfigError

HEAD = """
[training]
epochs = 3
[tokenizer]
vocab_size = 500
[grid]
about = "a trial"
"""


def grid(
    tmp_path: Path, text: str, *, head: str = HEAD, seeds: str | None = None, overrides: tuple[str, ...] = ()
) -> Grid:
    path = tmp_path / "mine.toml"
    path.write_text(head + text, encoding="utf-8")
    return read_grid(path, seeds=seeds, overrides=overrides)


def names(found: Grid) -> list[str]:
    return [cell.name for cell in found.cells]


def test_cells_are_the_product_of_all_axes_the_first_seed_first(tmp_path: Path) -> None:
    found = grid(
        tmp_path,
        """
presets = ["baseline", "reinforced"]
seeds = [0, 5]
[grid.corpora]
gl-en = { train = ["gl.tsv"], src_lang = "gl" }
phrases = { name = "phrasebook" }
[grid.vary]
"training.learning_rate" = [0.5, 1.0]
""",
    )
    first = [
        f"{corpus}-{preset}-{rate}-s0"
        for corpus in ("gl-en", "phrases")
        for preset in ("baseline", "reinforced")
        for rate in ("0.5", "1.0")
    ]
    assert names(found) == first + [name.replace("-s0", "-s5") for name in first]
    assert found.axes == {
        "corpus": ("gl-en", "phrases"),
        "system": ("baseline", "reinforced"),
        "learning_rate": ("0.5", "1.0"),
    }
    cell = found.cells[3]
    assert (cell.name, cell.group, cell.seed) == ("gl-en-reinforced-1.0-s0", "gl-en-reinforced-1.0", 0)
    assert cell.labels == {"corpus": "gl-en", "system": "reinforced", "learning_rate": "1.0"}
    experiment = cell.experiment
    assert experiment.corpus.train == (str(tmp_path / "gl.tsv"),)  # relative to the file
    assert experiment.corpus.src_lang == "gl"
    assert experiment.training.learning_rate == 1.0
    assert experiment.architecture == load(None, preset="reinforced").experiment.architecture
    assert found.cells[-1].experiment.training.seed == 5


def test_a_cells_layers_lie_in_order(tmp_path: Path) -> None:
    """Preset, the file's sizes, the system's settings, a rule's, then the command line's."""
    found = grid(
        tmp_path,
        """
presets = ["baseline"]
[[grid.systems]]
name = "small"
preset = "baseline"
set = { "architecture.d_ff" = 32 }
[[grid.for]]
system = "small"
set = { "architecture.d_ff" = 48, "training.epochs" = 2 }
[architecture]
preset = "reinforced"
d_ff = 64
num_heads = 2
""",
        overrides=("architecture.num_heads=4",),
    )
    plain, small = (cell.experiment for cell in found.cells)
    assert (plain.architecture.d_ff, small.architecture.d_ff) == (64, 48)
    assert (plain.architecture.num_heads, small.architecture.num_heads) == (4, 4)
    assert plain.architecture.combine == "add"  # the baseline's, not that of the file's preset
    assert (plain.training.epochs, small.training.epochs) == (3, 2)


def test_a_corpus_replaces_the_files_own_but_not_its_other_settings(tmp_path: Path) -> None:
    head = '[corpus]\nname = "phrasebook"\ntgt_lang = "en"\nheld_out_valid = 7\n[grid]\n'
    found = grid(tmp_path, "[grid.corpora]\nmine = { train = ['a.tsv'] }\nphrases = {}\n", head=head)
    mine, phrases = (cell.experiment.corpus for cell in found.cells)
    assert (mine.name, mine.train, mine.tgt_lang, mine.held_out_valid) == (None, (str(tmp_path / "a.tsv"),), "en", 7)
    assert phrases.name == "phrasebook"


def test_bundles_settings_and_systems_without_presets(tmp_path: Path) -> None:
    found = grid(
        tmp_path,
        """
[grid.vary.norm]
vocabulary = {}
prefix = { "architecture.encoder_token_norm" = "sentence", architecture = { decoder_token_norm = "prefix" } }
[[grid.systems]]
name = "plain one"
""",
    )
    assert names(found) == ["plain_one-vocabulary-s0", "plain_one-prefix-s0"]
    norms = [
        (c.experiment.architecture.encoder_token_norm, c.experiment.architecture.decoder_token_norm)
        for c in found.cells
    ]
    assert norms == [("vocabulary", "vocabulary"), ("sentence", "prefix")]


def test_a_grid_of_seeds_alone_is_called_by_its_file(tmp_path: Path) -> None:
    found = grid(tmp_path, "seeds = 2")
    assert names(found) == ["mine-s0", "mine-s1"]
    assert names(grid(tmp_path, "")) == ["mine-s0"]
    assert names(grid(tmp_path, "", seeds="4,2")) == ["mine-s4", "mine-s2"]


def test_exclusions_and_seeds_of_the_command_line(tmp_path: Path) -> None:
    text = """
presets = ["baseline", "reinforced"]
seeds = 5
[[grid.exclude]]
preset = "baseline"
seed = [3, 4]
"""
    assert len(names(grid(tmp_path, text))) == 8
    assert names(grid(tmp_path, text, seeds="1")) == ["baseline-s0", "reinforced-s0"]  # the rule still names seeds
    assert names(grid(tmp_path, text, seeds="0,4,9")) == [
        "baseline-s0",
        "reinforced-s0",
        "reinforced-s4",
        "baseline-s9",
        "reinforced-s9",
    ]


REFUSED = {
    "no grid": ("[decoding]\nbeam_size = 2", "", "no table .grid.: it is one experiment"),
    "unknown key": (None, "preset = ['baseline']", "did you mean 'presets'"),
    "unknown preset": (None, "presets = ['basline']", "did you mean 'baseline'"),
    "preset twice": (None, "presets = ['baseline', 'baseline']", "'baseline' twice"),
    "no values": (None, "presets = []", "expands to nothing: system has no values"),
    "all excluded": (None, "presets = ['baseline']\n[[grid.exclude]]\npreset = 'baseline'", "expands to nothing"),
    "exclusion of nothing": (
        None,
        "presets = ['baseline', 'reinforced']\n[[grid.exclude]]\npreset = 'baseline'\nseed = 0\n"
        "[[grid.exclude]]\npreset = ['baseline']\nseed = 0\n[grid.vary.x]\na = {}\n[[grid.exclude]]\nx = 'b'",
        "entry 3, there is no x 'b'",
    ),
    "rule for nothing": (
        None,
        "presets = ['baseline', 'reinforced']\n[[grid.exclude]]\npreset = 'baseline'\n"
        "[[grid.for]]\npreset = 'baseline'\nset = { 'training.epochs' = 1 }",
        r"\[\[grid.for\]\], entry 1, matches no cell",
    ),
    "rule with a slip": (
        None,
        "presets = ['baseline']\n[[grid.for]]\npreset = 'basline'\nset = { 'training.epochs' = 1 }",
        "there is no system 'basline': did you mean 'baseline'",
    ),
    "rule with an axis twice": (
        None,
        "presets = ['baseline', 'reinforced']\n[[grid.exclude]]\nsystem = 'baseline'\npreset = 'reinforced'",
        "names the axis system twice",
    ),
    "rule without settings": (None, "presets = ['baseline']\n[[grid.for]]\npreset = 'baseline'", "sets nothing"),
    "rule for an unknown axis": (None, "[[grid.exclude]]\nnorn = 'a'\n[grid.vary.norm]\na = {}", "did you mean 'norm'"),
    "too many": (None, "seeds = 11\nmax_cells = 10", "11 cells, more than max_cells = 10"),
    "far too many": (None, "seeds = 100000", "100,000 cells, more than max_cells = 1,000"),
    "too many to count": (None, "seeds = 4000000000", "4,000,000,000 cells, more than max_cells = 1,000"),
    "no number of seeds": (None, "seeds = 99999999999999999999", "should be a number of seeds"),
    "too many before exclusions": (
        None,
        "presets = ['baseline', 'reinforced']\nseeds = 2000000\n[[grid.exclude]]\npreset = 'baseline'",
        "4,000,000 cells, more than max_cells = 1,000",
    ),
    "seeds as an axis": (None, "[grid.vary]\n'training.seed' = [0, 1]", "sets training.seed: use seeds in"),
    "seed in a rule": (
        None,
        "presets = ['baseline']\n[[grid.for]]\npreset = 'baseline'\nset = { training = { seed = 3 } }",
        "sets training.seed: use seeds in",
    ),
    "the same twice": (None, "[grid.vary.x]\na = {}\nb = {}", "cells a-s0 and b-s0 are the same experiment"),
    "one name twice": (
        None,
        "[grid.vary.x]\n'a b' = {}\n'a:b' = { 'training.epochs' = 1 }",
        "two cells are called a_b-s0",
    ),
    "seed twice": (None, "seeds = [1, 1]", "has a seed twice"),
    "no seed": (None, "seeds = 0", "should be a number of seeds"),
    "true seeds": (None, "seeds = true", "should be a number of seeds"),
    "unknown setting": (None, "[grid.vary]\n'training.epoch' = [1]", "cell 1-s0: .*did you mean 'training.epochs'"),
    "contradiction": (
        None,
        "[grid.vary]\n'architecture.combine' = ['add', 'concat']\n'architecture.positions' = ['none']",
        "cell concat-none-s0: .*positions",
    ),
    "two axes, one setting": (
        None,
        "[grid.vary.a]\nlow = { 'training.epochs' = 1 }\n[grid.vary.b]\nhigh = { 'training.epochs' = 9 }",
        "cell low-high-s0: 'low' sets training.epochs = 1 and 'high' sets 9",
    ),
    "two axes of one name": (None, "presets = ['baseline']\n[grid.vary.system]\na = {}", "two axes with the same name"),
    "setting without section": (None, "[grid.vary.a]\nx = { epochs = 1 }", "sets 'epochs': write"),
    "preset as a setting": (None, "[grid.vary]\n'architecture.preset' = ['baseline']", "name architectures in presets"),
    "vary without a section": (None, "[grid.vary]\nepochs = [1, 2]", "section.field"),
    "unknown baseline": (
        None,
        "presets = ['baseline']\n[grid.report]\nbaseline = 'basline'",
        "did you mean 'baseline'",
    ),
    "a list of baselines": (
        None,
        "presets = ['baseline']\n[grid.report]\nbaseline = ['baseline']",
        r"\[grid.report\] baseline should be the name of a group, not \['baseline'\]",
    ),
    "unknown published entry": (
        None,
        "[grid.report]\npublished = ['reinforced/tabel-1']",
        r"published: there is no entry 'reinforced/tabel-1': the nearest are reinforced/table-1, [^,]+, [^,]+$",
    ),
    "sentences of no list": (
        None,
        "[grid.report]\nsentences = { tales = [1] }",
        r"sentences should be lines of the test set, such as \[12, 31\], not ",
    ),
    "line zero": (None, "[grid.report]\nsentences = [1, 0]", "lines of the test set, from 1"),
    "sentences of which corpus": (
        None,
        "corpora = { tales = { name = 'multi30k' } }\n[grid.report]\nsentences = [1]",
        r"should be lines of each corpus, such as \{ tales = \[12, 31\] \}",
    ),
    "sentences of an unknown corpus": (
        None,
        "corpora = { tales = { name = 'multi30k' } }\n[grid.report]\nsentences = { talse = [1] }",
        "sentences: .*tales",
    ),
    "published text": (None, "[grid.report]\npublished = 'moon'", "published should be a list of entries"),
    "settings of no table": ("training = 5\n[grid]\n", "seeds = 2", r"training"),
    "an architecture of no table": ("architecture = 5\n[grid]\n", "presets = ['baseline']", r"architecture"),
    "no text": (None, "budget = 3", "budget should be a sentence"),
    "long name": (None, f"[grid.vary.x]\n{'y' * 250} = {{}}", "too long a name"),
}


def test_cells_that_take_other_times_are_of_other_kinds(tmp_path: Path) -> None:
    vary = {
        "r_drop": "[0.0, 1.0]",
        "best_by": "['loss', 'chrf']",
        "bpe_dropout": "[0.0, 0.1]",
        "keep": "['best', 'last']",
    }
    text = "".join(f"'training.{name}' = {values}\n" for name, values in vary.items())
    found = grid(tmp_path, f"[grid.vary]\n{text}")
    assert len({kind_of(cell.experiment) for cell in found.cells}) == len(found.cells) == 16


@pytest.mark.parametrize(("head", "text", "sentence"), REFUSED.values(), ids=REFUSED.keys())
def test_what_cannot_be_meant_is_one_sentence(head: str | None, text: str, sentence: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=sentence) as refusal:
        grid(tmp_path, text, head=HEAD if head is None else head)
    assert "\n" not in str(refusal.value)


def test_a_grid_too_large_is_refused_before_any_cell_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def applies(*_: object) -> bool:
        raise AssertionError("a combination was looked at")

    monkeypatch.setattr(Rule, "applies", applies)
    rule = "[[grid.for]]\nseed = 0\nset = { 'training.epochs' = 1 }"
    for text, seeds in ((f"seeds = 100000\n{rule}", None), (rule, "100000")):
        with pytest.raises(ConfigError, match="100,000 cells, more than max_cells"):
            grid(tmp_path, text, seeds=seeds)


def test_settings_and_seeds_of_the_command_line_are_checked(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="use --seeds"):
        grid(tmp_path, "", overrides=("training.seed=3",))
    for wrong in ("", "a", "1,,b", "-1", "0"):
        with pytest.raises(ConfigError, match="--seeds should be a number of seeds or a list"):
            grid(tmp_path, "", seeds=wrong)
    with pytest.raises(ConfigError, match=r"--seeds = \[5, 5\] has a seed twice"):
        grid(tmp_path, "", seeds="5,5")
    assert [cell.seed for cell in grid(tmp_path, "", seeds="0,").cells] == [0], "as the message says"


@pytest.mark.parametrize("baseline", ["baseline-4 of 8/2", "baseline-4_of_8_2", "baseline"])
def test_a_baseline_is_called_as_its_labels_or_its_folder(tmp_path: Path, baseline: str) -> None:
    systems = "presets = ['baseline', 'reinforced']"
    report = f"[grid.report]\nbaseline = {baseline!r}\n[grid.vary.batch]\n'4 of 8/2' = {{ 'training.batch_size' = 4 }}"
    assert grid(tmp_path, f"{systems}\n{report}").report.baseline == baseline
    with pytest.raises(ConfigError, match="did you mean 'baseline-4 of 8/2'"):
        grid(tmp_path, f"{systems}\n{report}".replace(f"= {baseline!r}", "= 'baseline-4 of 8'"))


def test_a_grid_file_is_an_experiment_too(tmp_path: Path) -> None:
    grid(tmp_path, "presets = ['baseline']")
    experiment = load(tmp_path / "mine.toml").experiment
    assert experiment.training.epochs == 3
    assert experiment.tokenizer.vocab_size == 500


def test_every_shipped_grid_expands_and_says_what_it_answers_and_takes() -> None:
    found = shipped_grids()
    assert {"reinforced-table1", "reinforced-ablation-small", "token-norm", "enhanced-weights"} <= {g[0] for g in found}
    for name, about, budget in found:
        assert about, name
        assert budget, name
        cells = read_grid(name).cells
        assert len({cell.name for cell in cells}) == len(cells), name
        assert load(name).experiment.tokenizer == cells[0].experiment.tokenizer


def test_the_anchor_trains_the_recipe() -> None:
    plain = next(cell.experiment for cell in read_grid("anchor").cells if cell.name == "plain-s0")
    recipe = load("transformer-tiny").experiment
    assert dataclasses.replace(plain, corpus=recipe.corpus) == recipe
    assert plain.corpus.pretokenized == recipe.corpus.pretokenized


def test_axes_and_cells_go_through_json(tmp_path: Path) -> None:
    found = grid(tmp_path, "[grid.vary]\n'training.clip_norm' = ['none', 1.0]\n'architecture.norm' = ['pre', 'post']")
    assert json.loads(json.dumps(found.axes)) == {"clip_norm": ["none", "1.0"], "norm": ["pre", "post"]}
    assert [cell.experiment.training.clip_norm for cell in found.cells] == [None, None, 1.0, 1.0]


def test_the_documented_example_has_every_key_and_expands_as_it_says(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "grids.md").read_text(encoding="utf-8")
    (example,) = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    assert set(tomllib.loads(example)["grid"]) == set(_KEYS)
    found = grid(tmp_path, example, head="")
    assert len(found.cells) == 48
    assert found.budget.startswith("48 cells")
    assert f"The first cell is `{found.cells[0].name}`." in page
    assert list(found.axes) == ["corpus", "system", "d_ff", "norm"]
    assert found.axes["system"] == ("baseline", "reinforced", "original-scaled")
    for cell in found.cells:
        labels, experiment = cell.labels, cell.experiment
        wide = labels["corpus"] == "gl-en" and labels["d_ff"] == "256"
        assert experiment.training.learning_rate == (0.002 if wide else 0.004)
        assert labels["norm"] == "vocabulary" or labels["system"] == "reinforced"
        assert experiment.architecture.num_encoder_layers == 2
    assert [cell.seed for cell in found.cells[::16]] == [0, 1, 2]


def test_an_axis_may_be_called_as_another_word_for_systems(tmp_path: Path) -> None:
    found = grid(
        tmp_path,
        """
presets = ["baseline", "reinforced"]
seeds = 1
[grid.vary.preset]
a = {}
b = { "training.epochs" = 5 }
[[grid.exclude]]
preset = "b"
system = "baseline"
""",
    )
    assert names(found) == ["baseline-a-s0", "reinforced-a-s0", "reinforced-b-s0"]


def test_vowel_signs_stay_in_names_of_folders() -> None:
    assert folder_label("हिन्दी") != folder_label("हिन्दू")
    assert folder_label("a b/c: d") == "a_b_c_d"


@pytest.mark.parametrize("values", ["[1e-3]", "[1e-3, 2e-3]"])
def test_what_a_grid_varies_is_not_set_for_all_cells(values: str, tmp_path: Path) -> None:
    text = f'presets = ["reinforced"]\n[grid.vary]\n"training.learning_rate" = {values}\n'
    wanted = r"varies training\.learning_rate, which --set makes the same for all cells: leave one of them out"
    with pytest.raises(ConfigError, match=wanted):
        grid(tmp_path, text, overrides=("training.learning_rate=5e-3",))
    assert grid(tmp_path, text, overrides=("training.epochs=2",)).cells
