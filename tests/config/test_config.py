"""Experiments: layers of settings and their origins, messages for mistakes, run ids, round trips to TOML and JSON."""

import contextlib
import dataclasses
import json
import os
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
from tests.axes import AXES

from repose.config import file as config_file
from repose.config import run_id as config_id
from repose.config.experiment import SECTIONS, Experiment, TrainingConfig
from repose.config.file import (
    COMMAND_LINE,
    Origin,
    commented_toml,
    format_config,
    from_json,
    load,
    shipped,
    to_json,
)
from repose.config.run_id import NOT_IN_RUN_ID, id_of_numbers, id_of_settings, run_id
from repose.grids import published
from repose.model.architecture import Architecture
from repose.model.presets import PRESETS, preset
from repose.runs.arguments import RECIPES
from repose.system.errors import ConfigError
from repose.training.schedule import make_schedule

FIELDS = [f"{section}.{field.name}" for section, cls in SECTIONS.items() for field in dataclasses.fields(cls)]

# What must change beside a field so that its other value makes sense.
BESIDE = {
    "architecture.token_norm_site": [
        "architecture.encoder_token_norm=sentence",
        "architecture.decoder_token_norm=prefix",
    ],
    "architecture.tie_embeddings": ["architecture.combine=add"],
    "tokenizer.src_file": ["tokenizer.tgt_file=s.json"],
    "tokenizer.tgt_file": ["tokenizer.src_file=s.json"],
    "training.schedule": ["training.learning_rate=0.5"],
    "training.corpus_temperature": ["corpus.also={train = ['a.tsv'], tag = 'pt'}"],
    "training.upsample": ["corpus.synthetic=d.tsv"],
}


def other_value(field: str) -> str:
    """Of a field of the architecture, as for `MOVES`."""
    now, name = getattr(preset("reinforced"), field), f"architecture.{field}"
    assert field in AXES or now is not None, f"add two values of {field} to AXES in tests/axes.py"
    others = AXES[field] if field in AXES else [2 * now if isinstance(now, int) else now + 0.25]
    for text in (str(value).lower() for value in others if value != now):
        with contextlib.suppress(ConfigError):
            load(None, overrides=[f"{name}={text}", *BESIDE.get(name, [])])
            return text
    raise AssertionError(f"add to BESIDE what must change beside {name}")


# Another value than the default recipe's for every field, as --set takes it, and whether it moves a training's numbers.
# A field that is missing here fails `test_every_field_is_classified`.
MOVES = {
    **{f"architecture.{field.name}": other_value(field.name) for field in dataclasses.fields(Architecture)},
    "training.task": "parsing",
    "training.batching": "sentences",
    "training.batch_size": "100",
    "training.accumulation": "2",
    "training.max_src_tokens": "100",
    "training.max_tgt_tokens": "100",
    "training.long_pairs": "truncate",
    "training.epochs": "11",
    "training.updates": "1000",
    "training.max_hours": "1.5",
    "training.seed": "1",
    "training.schedule": "plateau",
    "training.learning_rate": "0.5",
    "training.warmup_updates": "100",
    "training.warmup_share": "0.1",
    "training.schedule_width": "128",
    "training.plateau_factor": "0.5",
    "training.plateau_patience": "5",
    "training.plateau_threshold": "0.0001",
    "training.plateau_after_epochs": "100",
    "training.adam_beta1": "0.8",
    "training.adam_beta2": "0.9",
    "training.adam_eps": "1e-8",
    "training.weight_decay": "0.1",
    "training.weight_decay_kind": "l2",
    "training.label_smoothing": "0.1",
    "training.r_drop": "5.0",
    "training.bpe_dropout": "0.1",
    "training.word_dropout": "0.1",
    "training.corpus_temperature": "5",
    "training.upsample": "2",
    "training.clip_norm": "1.0",
    "training.precision": "bf16",
    "training.patience": "3",
    "training.keep": "best",
    "training.best_by": "chrf",
    "training.average_checkpoints": "5",
    "training.validate_every_updates": "50",
}
# These act through files whose digests are given, or not on a training's numbers at all.
STAYS = {
    "corpus.name": "phrasebook",
    "corpus.train": "a.tsv",
    "corpus.valid": "b.tsv",
    "corpus.test": "c.tsv",
    "corpus.src_lang": "pt",
    "corpus.tgt_lang": "en",
    "corpus.src_field": "a",
    "corpus.tgt_field": "b",
    "corpus.splits": "merged",
    "corpus.held_out_valid": "10",
    "corpus.held_out_test": "10",
    "corpus.split_seed": "1",
    "corpus.pretokenized": "true",
    "corpus.tag": "gl",
    "corpus.also": "[{train = ['a.tsv'], tag = 'pt'}]",
    "corpus.synthetic": "d.tsv",
    "corpus.synthetic_tag": "none",
    "tokenizer.kind": "unigram",
    "tokenizer.vocab_size": "1000",
    "tokenizer.sharing": "shared",
    "tokenizer.lowercase": "true",
    "tokenizer.strip_accents": "true",
    "tokenizer.single_digits": "true",
    "tokenizer.min_frequency": "2",
    "tokenizer.src_file": "s.json",
    "tokenizer.tgt_file": "s.json",
    "training.save_every_minutes": "1",
    "training.bleu_every_epochs": "2",
    "training.bleu_sentences": "none",
    "training.bleu_mean_over": "5",
    "training.init_from": "m",
    "training.position_table": "t",
    "decoding.beam_size": "1",
    "decoding.length_penalty": "1.0",
    "decoding.no_repeat_ngram_size": "3",
    "decoding.max_extra_tokens": "10",
    "decoding.batch_size": "8",
}
DIGESTS = {"train": "1", "src": "2", "tgt": "3", "init_from": "4"}


def overrides_of(name: str) -> list[str]:
    """--set strings that change the field, with what must change beside it."""
    return [f"{name}={ {**MOVES, **STAYS}[name] }", *BESIDE.get(name, [])]


def value_of(experiment: Experiment, name: str) -> object:
    section, field = name.split(".")
    return getattr(getattr(experiment, section), field)


def sentence(*overrides: str, path: Path | None = None, preset: str | None = None) -> str:
    """What a user reads."""
    with pytest.raises(ConfigError) as caught:
        load(path, preset=preset, overrides=overrides)
    text = str(caught.value)
    assert "\n" not in text
    return text


def written(folder: Path, text: str, name: str = "my.toml") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


# Defaults and documentation


def test_importing_loads_no_torch() -> None:
    modules = "repose.config.experiment, repose.config.file"
    code = f"import {modules}, sys; assert 'torch' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_defaults() -> None:
    loaded = load(None, preset=None, overrides=[])
    assert loaded.experiment == Experiment()
    assert loaded.experiment.architecture == preset("reinforced")
    assert set(loaded.sources) == set(FIELDS)
    assert loaded.sources["training.epochs"] == Origin("default")
    assert loaded.sources["architecture.d_token"] == Origin("preset", "reinforced")


def test_every_field_says_what_it_is() -> None:
    missing = [f"{s}.{n}" for s in SECTIONS for n, i in config_file.field_infos(s).items() if not i.description]
    assert not missing


def test_experiments_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Experiment().training.seed = 1  # type: ignore[misc]


# Layers


def test_layers_and_their_sources(tmp_path: Path) -> None:
    path = written(tmp_path, '[architecture]\npreset = "baseline"\nd_ff = 100\n[training]\nseed = 7\nepochs = 3\n')
    loaded = load(path, overrides=["training.seed=8"])
    assert loaded.experiment.architecture == dataclasses.replace(preset("baseline"), d_ff=100)
    assert (loaded.experiment.training.seed, loaded.experiment.training.epochs) == (8, 3)
    assert loaded.sources["training.seed"] == COMMAND_LINE
    assert loaded.sources["training.epochs"] == loaded.sources["architecture.d_ff"] == Origin("file", str(path))
    assert loaded.sources["architecture.d_token"] == Origin("preset", "baseline")
    assert loaded.sources["training.batch_size"] == Origin("default")
    assert loaded.preset == "baseline"


def test_a_preset_replaces_the_architecture_of_the_layers_below(tmp_path: Path) -> None:
    path = written(tmp_path, '[architecture]\npreset = "baseline"\nd_ff = 100\n')
    loaded = load(path, preset="ablation-none", overrides=["architecture.num_heads=2"])
    assert loaded.experiment.architecture == dataclasses.replace(preset("ablation-none"), num_heads=2)
    assert loaded.sources["architecture.d_ff"] == Origin("preset", "ablation-none")
    assert load(path, overrides=["architecture.preset=ablation-none"]).experiment.architecture == preset(
        "ablation-none"
    )


ONE_TABLE = ["vaswani-base", "vaswani-big", "transformer-tiny"]


@pytest.mark.parametrize("name", [n for n in PRESETS if n not in ONE_TABLE])
def test_every_preset_can_be_named(name: str) -> None:
    assert load(None, preset=name).experiment.architecture == preset(name)


@pytest.mark.parametrize("name", ONE_TABLE)
def test_presets_with_one_table_need_one_vocabulary(name: str) -> None:
    assert "set tokenizer.sharing = 'shared'" in sentence(preset=name)
    loaded = load(None, preset=name, overrides=["tokenizer.sharing=shared"])
    assert loaded.experiment.architecture == preset(name)


def test_a_preset_that_is_named_again_takes_nothing_back() -> None:
    recipe = load("medium-data")
    assert load("medium-data", preset=recipe.preset).experiment == recipe.experiment
    assert load("medium-data", preset="reinforced").experiment.architecture == preset("reinforced")


def test_paths_are_relative_to_their_file_or_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    written(tmp_path / "a", '[corpus]\ntrain = ["x.src", "../x.tgt"]\nvalid = "v.tsv"\ntest = "/t.tsv"\n')
    monkeypatch.chdir(tmp_path / "b")
    experiment = load("../a/my.toml", overrides=["training.init_from=run"]).experiment
    assert [Path(path).resolve() for path in experiment.corpus.train] == [tmp_path / "a/x.src", tmp_path / "x.tgt"]
    assert [Path(path).resolve() for path in experiment.corpus.valid] == [tmp_path / "a/v.tsv"]
    assert experiment.corpus.test == ("/t.tsv",)
    assert experiment.training.init_from == str(tmp_path / "b" / "run")


@pytest.mark.parametrize(
    ("override", "value"),
    [
        ("training.batch_size=100", 100),
        ("training.batch_size = 100", 100),
        ("training.batch_size=1_000", 1000),
        ("training.batch_size=10.0", 10),
        ("training.learning_rate=1", 1.0),
        ("training.max_hours=2", 2.0),
        ("training.epochs=none", None),
        ('training.epochs="none"', None),
        ("training.keep=best", "best"),
        ('training.keep="best"', "best"),
        ("corpus.pretokenized=true", True),
        ("corpus.held_out_valid=500", 500),
        ("corpus.held_out_valid=500.0", 500),
        ("corpus.held_out_valid=0.2", 0.2),
        ("corpus.held_out_valid=none", None),
        ("corpus.held_out_test=0", 0),
        ("corpus.src_field=2024", "2024"),
        ("corpus.src_field=a=b", "a=b"),
        ("corpus.src_lang=none", "none"),
        *(
            (f"corpus.src_lang={code}", code)
            for code in ("und", "pt-BR", "zh-Hant-TW", "por_Latn", "xx", "aztr", "lao")
        ),
        ("corpus.src_lang=Korean", "ko"),
        ("corpus.tgt_lang=church slavonic", "cu"),
        ("corpus.tgt_lang=Thai", "th"),
    ],
)
def test_values_on_the_command_line(override: str, value: object) -> None:
    overrides = [override, "training.updates=5"]
    name = override.partition("=")[0].strip()
    found = value_of(load(None, overrides=overrides).experiment, name)
    assert found == value
    assert type(found) is type(value)


def test_paths_on_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    def train(value: str) -> list[str]:
        paths = load(None, overrides=[f"corpus.train={value}"]).experiment.corpus.train
        return [str(Path(path).relative_to(tmp_path)) for path in paths]

    assert train('["a.pt", "a.en"]') == ["a.pt", "a.en"]
    assert train("a b.tsv") == ["a b.tsv"]
    assert train("2024") == ["2024"]
    assert train("[]") == []


def test_the_last_of_two_settings_wins() -> None:
    assert load(None, overrides=["training.seed=1", "training.seed=2"]).experiment.training.seed == 2


def test_warmup_in_updates_takes_the_place_of_a_share_of_lower_layers(tmp_path: Path) -> None:
    loaded = load("default", overrides=["training.warmup_updates=12"])
    training = loaded.experiment.training
    assert (training.warmup_updates, training.warmup_share) == (12, None)
    assert loaded.sources["training.warmup_share"] == Origin("default")
    assert loaded.sources["training.warmup_updates"] == COMMAND_LINE
    assert make_schedule(training, d_token=16, total_updates=1000).warmup == 12
    both = written(tmp_path, "[training]\nwarmup_share = 0.2\nwarmup_updates = 12\n")
    assert load(both).experiment.training.warmup_share == 0.2
    assert load(both, overrides=["training.warmup_share=0.3"]).experiment.training.warmup_share == 0.3
    assert load(both, overrides=["training.warmup_updates=9"]).experiment.training.warmup_share is None


def test_ready_tokenizers_take_back_the_settings_of_lower_layers(tmp_path: Path) -> None:
    ready = ["tokenizer.src_file=s.json", "tokenizer.tgt_file=t.json"]
    loaded = load("reinforced-paper", overrides=ready)
    assert loaded.experiment.tokenizer.kind == "bpe"
    assert loaded.sources["tokenizer.kind"] == Origin("default")
    path = written(tmp_path, '[tokenizer]\nvocab_size = 100\nsrc_file = "s.json"\ntgt_file = "t.json"\n')
    assert "tokenizer.vocab_size = 100 has no effect" in sentence(path=path)
    assert load(written(tmp_path, '[tokenizer]\nsrc_file = "none"\nvocab_size = 100\n')).experiment


# Mistakes


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("training.bacth_size=3", "there is no setting 'training.bacth_size': did you mean 'training.batch_size'?"),
        ("training.lr=3", "there is no setting 'training.lr': did you mean 'training.learning_rate'?"),
        ("training.sed=3", "there is no setting 'training.sed': did you mean 'training.seed'?"),
        ("trainng.seed=1", "there is no section 'trainng': did you mean 'training'?"),
        ("training.dropout=0.1", "did you mean 'architecture.dropout'?"),
        ("architecture.preset=reinfroced", "there is no preset 'reinfroced': did you mean 'reinforced'?"),
        ("training", "write section.field=value"),
        ("seed=1", "write training.seed=1"),
        ("training.=1", "write section.field=value"),
        ("training.batch_size=many", "training.batch_size should be a whole number, not 'many'"),
        ("training.batch_size=0", "training.batch_size should be at least 1, not 0"),
        (f"training.batch_size={10**400}", "training.batch_size should be at most 10000000, not 1000"),
        ("training.batch_size=10000001", "training.batch_size should be at most 10000000, not 10000001"),
        ("training.accumulation=1000000000", "training.accumulation should be at most 1000, not 1000000000"),
        (f"training.schedule_width={10**400}", "training.schedule_width should be at most 9007199254740992"),
        ("training.batch_size=2.5", "training.batch_size should be a whole number, not 2.5"),
        ("training.batch_size=true", "training.batch_size should be a whole number, not 'true'"),
        ("training.batch_size=[1]", "training.batch_size should be a whole number, not [1]"),
        ("training.epochs=x", """training.epochs should be a whole number or "none", not 'x'"""),
        ("training.keep=first", "training.keep should be 'last' or 'best', not 'first'"),
        ("training.warmup_share=1.5", "training.warmup_share should be at most 1"),
        ("training.warmup_share=-0.5", "training.warmup_share should be at least 0"),
        ("training.average_checkpoints=0", "training.average_checkpoints should be at least 1"),
        ("training.learning_rate=nan", "training.learning_rate should be a finite number, not nan"),
        ("training.max_hours=inf", "training.max_hours should be a finite number, not inf"),
        ("training.weight_decay=Infinity", "training.weight_decay should be a finite number, not Infinity"),
        ("training.adam_eps='-inf'", "training.adam_eps should be a finite number, not -inf"),
        ("training.label_smoothing=1", "training.label_smoothing should be less than 1"),
        ("training.epochs=none", "training would never stop"),
        ("training.schedule=constant", "set a peak such as 5e-4 for schedule = 'constant'"),
        ("training.max_src_tokens=4000", "raise architecture.max_length (2048) or lower training.max_src_tokens"),
        ("corpus.train=", "corpus.train should be a path, not ''"),
        ("corpus.train=[1]", "corpus.train should be a path, not [1]"),
        (
            "corpus.held_out_valid=x",
            "corpus.held_out_valid should be a number of pairs (500) or a share (0.05), not 'x'",
        ),
        ("corpus.src_lang=pt\n---", "corpus.src_lang should be a code such as 'pt', not 'pt\\n---'"),
        ("corpus.src_lang=Korea", "corpus.src_lang should be a code such as 'pt', not 'Korea': did you mean 'Korean'?"),
        ("corpus.tgt_lang=", "corpus.tgt_lang should be a code such as 'pt', not ''"),
        ("corpus.held_out_valid=0", "corpus.held_out_valid should be a number of pairs (500) or a share (0.05), not 0"),
        ("corpus.held_out_test=1.5", "corpus.held_out_test should be a number of pairs"),
        ("corpus.held_out_test=-1", "corpus.held_out_test should be a number of pairs"),
        ("corpus.held_out_test=true", "corpus.held_out_test should be a number of pairs"),
        ("tokenizer.src_file=a", "tokenizer.src_file and tokenizer.tgt_file go together"),
        ("tokenizer.vocab_size=4", "tokenizer.vocab_size should be at least 5"),
        ("architecture.positions=halvs", "architecture.positions should be 'interleaved', 'halves'"),
        ("architecture.d_token=7", "needs an even d_token, not 7"),
        ("tokenizer.vocab_size=1000000000000", "tokenizer.vocab_size should be at most 1000000, not 1000000000000"),
        ("training.seed=18446744073709551616", "training.seed should be at most 18446744073709551615"),
        ("architecture.d_token=1000000000", "this architecture has about"),
        ("architecture.d_ff=1000000000", "this architecture has about"),
        ("architecture.num_encoder_layers=1000000000", "architecture.num_encoder_layers should be at most 1000"),
        ("architecture.max_length=1000000000", "architecture.max_length should be at most 1048576"),
        ("decoding.beam_size=1000000000", "decoding.beam_size should be at most 1000"),
        ("decoding.batch_size=1000000000", "decoding.batch_size should be at most 100000, not 1000000000"),
        ("decoding.max_extra_tokens=1000000000", "decoding.max_extra_tokens should be at most 100000"),
        ("decoding.beam_size=0", "decoding.beam_size should be at least 1, not 0"),
    ],
)
def test_mistakes_are_answered_in_one_sentence(override: str, expected: str) -> None:
    assert expected in sentence(override)


def test_two_settings_that_contradict_each_other() -> None:
    assert "keep one of them" in sentence("corpus.name=phrasebook", "corpus.train=a.tsv")
    assert "unknown number of updates" in sentence(
        "training.warmup_share=0.1", "training.epochs=none", "training.max_hours=1"
    )
    assert "needs one file as both" in sentence(
        "tokenizer.sharing=shared", "tokenizer.src_file=a", "tokenizer.tgt_file=b"
    )


def test_the_number_of_other_mistakes_is_told() -> None:
    assert sentence("training.seed=x", "training.epochs=y", "training.updates=z").endswith("(and 2 more)")


def test_the_sentence_of_an_architecture_passes_as_it_is() -> None:
    assert sentence("architecture.tie_embeddings=output").startswith("tie_embeddings = 'output' needs d_token")


def test_a_mistake_in_a_file_names_the_file(tmp_path: Path) -> None:
    path = written(tmp_path, "[training]\nepochs = true\n")
    assert sentence(path=path) == f"{path}: training.epochs should be a whole number or \"none\", not 'true'"
    path = written(tmp_path, "training = 3\n")
    assert sentence(path=path) == f"{path}: training is a section of settings, not the value 3"


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"[training]\nepochs = = 3\n", "is not TOML: invalid value (at line 2"),
        (b"[training]\n\nkeep = '\xff'\n", "is not UTF-8 at line 3"),
        (b"x = " + b"[" * 5000, "is not TOML"),
        (b"x = " + b"1" * 5000, "is not TOML"),
        (b"[training]\n" + b"a." * 20_000 + b"a = 1", "has a key of more than 50 parts at line 2"),
    ],
)
def test_files_that_cannot_be_read(tmp_path: Path, data: bytes, expected: str) -> None:
    path = tmp_path / "bad.toml"
    path.write_bytes(data)
    assert f"{path} {expected}" in sentence(path=path)


def test_what_is_no_experiment_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.toml")
    with (tmp_path / "large.toml").open("wb") as file:
        file.truncate(3 << 30)
    for path in (tmp_path / "pipe.toml", tmp_path / "large.toml", Path("/dev/zero")):
        assert f"{path} is not a file of at most 1,048,576 bytes" in sentence(path=path)
    (tmp_path / "my pairs.csv").write_text("um,one\n", encoding="utf-8")
    found = sentence(path=tmp_path / "my pairs.csv")
    assert f"not an experiment file: write one with `repose init '{tmp_path / 'my pairs.csv'}' --out" in found


def test_a_file_name_that_is_not_utf_8() -> None:
    with pytest.raises(ConfigError, match=r"^the file name 'caf\\udce9\.de' is not UTF-8: rename"):
        load(None, train=[Path(os.fsdecode(b"caf\xe9.de")), Path("b.en")])


def test_settings_that_would_do_nothing() -> None:
    nothing = [f"architecture.{name}=0" for name in ("dropout", "attention_dropout", "attention_output_dropout")]
    assert "which are the same without dropout" in sentence("training.r_drop=1", *nothing)
    load(None, overrides=["training.r_drop=1", *nothing, "training.word_dropout=0.1"])
    task = ("training.task=language_modelling", "training.long_pairs=truncate")
    assert "has no use for training.long_pairs = 'truncate'" in sentence(*task)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    assert "there is no experiment file" in sentence(path=tmp_path / "none.toml")
    assert "cannot be read: Is a directory" in sentence(path=tmp_path)
    with pytest.raises(ConfigError, match="did you mean 'reinforced-paper'"):
        load("reinforced-papr")


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    path = tmp_path / "bom.toml"
    path.write_bytes(b"\xef\xbb\xbf[training]\nseed = 3\n")
    assert load(path).experiment.training.seed == 3


# Shipped experiments


def test_shipped_experiments_load() -> None:
    assert {"default", "reinforced-paper"} <= set(shipped())
    for name in shipped():
        found = load(name).experiment.architecture
        if name.startswith("enhanced") and name.endswith("-small"):
            sizes = {f: getattr(found, f) for f in ("d_token", "num_heads", "head_dim", "d_ff", "dropout")}
            sizes |= {"num_encoder_layers": 2, "num_decoder_layers": 2, "attention_output_dropout": found.dropout}
            assert found == dataclasses.replace(preset("original"), **sizes)
        elif name == "transformer-tiny":
            assert found == dataclasses.replace(preset(name), initialisation="keras")
        elif name == "medium-data":
            assert found == dataclasses.replace(preset("small-rotary"), dropout=0.2)
        elif name in {*RECIPES.values(), "modern-layers", "shallow-decoder", "smaller-updates"}:
            drops = {field: getattr(found, field) for field in ("dropout", "attention_output_dropout")}
            assert found == dataclasses.replace(preset("reinforced"), **drops)
        else:
            assert found == preset("original" if name.startswith("enhanced") else "reinforced")


def test_the_papers_recipe() -> None:
    loaded = load("reinforced-paper")
    training = loaded.experiment.training
    assert loaded.sources["training.batch_size"] == Origin("file", "reinforced-paper.toml (shipped)")
    assert (training.batching, training.batch_size, training.epochs, training.max_hours) == ("sentences", 64, 10, 12.0)
    assert (training.schedule, training.learning_rate, training.warmup_updates) == ("noam", 1.0, 4000)
    assert training.schedule_width is None
    assert (training.adam_beta1, training.adam_beta2, training.adam_eps) == (0.9, 0.98, 1e-9)
    assert (training.label_smoothing, training.clip_norm, training.keep) == (0.0, None, "last")
    assert (training.max_src_tokens, training.long_pairs) == (128, "truncate")
    tokenizer = loaded.experiment.tokenizer
    assert (tokenizer.kind, tokenizer.vocab_size) == ("wordpiece", 8000)
    assert tokenizer.lowercase
    assert tokenizer.strip_accents


def test_the_enhanced_papers_recipe_is_what_the_paper_states() -> None:
    experiment, sources, _ = load("enhanced-table1-printed")
    training = experiment.training
    stated = {row[0]: row[1] for row in published.load().find(published.PrintedTable, "enhanced/setup").rows}
    for field in ("learning_rate", "batch_size", "epochs"):
        assert getattr(training, field) == stated[field]
    assert training.max_src_tokens == training.max_tgt_tokens == stated["max_length"]
    assert (training.bleu_every_epochs, training.bleu_mean_over) == (1, 100)
    # Everything that could move its numbers is written down, not left to this project's defaults.
    unset = {name for name, source in sources.items() if name.startswith("training.") and source == Origin("default")}
    assert unset <= {
        *("training.task", "training.accumulation", "training.updates", "training.seed", "training.warmup_share"),
        *("training.schedule_width", "training.validate_every_updates", "training.save_every_minutes"),
        *("training.init_from", "training.position_table"),
        *("training.r_drop", "training.bpe_dropout", "training.word_dropout", "training.best_by"),  # off
        *("training.corpus_temperature", "training.upsample"),  # off
    }


def test_a_file_beside_goes_before_a_shipped_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    written(tmp_path, "[training]\nseed = 5\n", name="default")
    assert load("default").experiment.training.seed == 5


# The run's id


def test_every_field_is_classified() -> None:
    classified = [*MOVES, *STAYS]
    missing = set(FIELDS) - set(classified)
    assert not missing, f"add {missing} to MOVES, with another value than the default recipe's"
    assert sorted(classified) == sorted(FIELDS)
    assert {f"training.{name}" for name in NOT_IN_RUN_ID} <= set(STAYS)


@pytest.mark.parametrize("name", FIELDS)
def test_what_changes_the_run_id(name: str) -> None:
    base = load(None).experiment
    changed = load(None, overrides=overrides_of(name)).experiment
    assert value_of(changed, name) != value_of(base, name), "the table must name another value"
    assert (run_id(changed, DIGESTS) == run_id(base, DIGESTS)) == (name in STAYS)


def test_what_decides_which_weights_are_kept_is_in_the_run_id() -> None:
    def identity(*overrides: str) -> str:
        return run_id(load(None, overrides=overrides).experiment, DIGESTS)

    for other in ("training.bleu_sentences=7", "decoding.max_extra_tokens=7"):
        assert identity(other) == identity()
        assert identity("training.best_by=chrf", other) != identity("training.best_by=chrf")


def test_a_home_of_nobody_is_a_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="names the home of an unknown user"):
        load("~nosuchuser/mine.toml")
    with pytest.raises(ConfigError, match="names the home of an unknown user"):
        load(written(tmp_path, '[corpus]\ntrain = ["~nosuchuser/a", "b"]\n'))


def test_every_changed_field_gives_an_id_of_its_own() -> None:
    ids = {run_id(load(None, overrides=overrides_of(name)).experiment, DIGESTS) for name in MOVES}
    assert len(ids) == len(MOVES)


def test_digests_and_numerics_change_the_run_id(monkeypatch: pytest.MonkeyPatch) -> None:
    base = run_id(Experiment(), DIGESTS)
    assert run_id(Experiment(), {**DIGESTS, "train": "5"}) != base
    assert run_id(Experiment(), dict(reversed(DIGESTS.items()))) == base
    monkeypatch.setattr(config_id, "NUMERICS_VERSION", config_id.NUMERICS_VERSION + 1)
    assert run_id(Experiment(), DIGESTS) != base


def test_a_setting_that_is_added_leaves_ids_as_they_were_at_its_default() -> None:
    @dataclasses.dataclass(frozen=True)
    class Later(Architecture):
        gate: str = "none"

    def of(later: Later) -> dict[str, Any]:
        return config_id._of_run(later)

    assert of(Later()) == config_id._of_run(Architecture())
    assert of(Later(gate="swish")) == {**config_id._of_run(Architecture()), "gate": "swish"}


RESULTS = sorted((Path(__file__).parents[2] / "results").glob("**/config.json"))


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: str(path.relative_to(path.parents[2])))
def test_ids_of_earlier_results_stay(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new setting at its default names the run that was made without it."""
    found = json.loads(path.read_text(encoding="utf-8"))
    experiment = from_json(json.dumps(found["experiment"]))
    ids = []
    for version in range(1, config_id.NUMERICS_VERSION + 1):
        monkeypatch.setattr(config_id, "NUMERICS_VERSION", version)
        ids.append(run_id(experiment, found["digests"]))
    assert found["run_id"] in ids


def test_spelling_does_not_change_the_run_id(tmp_path: Path) -> None:
    base = run_id(load(None).experiment, DIGESTS)
    assert len(base) == 12
    assert set(base) <= set("0123456789abcdef")
    spelled = {
        "everything": format_config(load(None)),
        "integers": "[training]\nlearning_rate = 1\nepochs = 10.0\nsave_every_minutes = 10\n",
        "width": "[training]\nschedule_width = 64\n",
        "preset": '[architecture]\npreset = "reinforced"\n',
    }
    for name, text in spelled.items():
        assert run_id(load(written(tmp_path, text)).experiment, DIGESTS) == base, name


def test_initial_weights_need_their_digest() -> None:
    experiment = load(None, overrides=["training.init_from=m"]).experiment
    with pytest.raises(AssertionError):
        run_id(experiment, {})


# Written and read again


EXPERIMENTS = [
    (None, None, []),
    ("default", None, ["corpus.train=a.tsv", 'corpus.src_field="a\\"b\\\\ \\u007f é"']),
    ("reinforced-paper", "reinforced-sentence", ["corpus.name=phrasebook", "training.epochs=none"]),
    ("default", "baseline", ["training.epochs=none", "training.updates=7", "architecture.d_ff=12"]),
    ("default", None, ["tokenizer.src_file=none", "training.save_every_minutes=0.5"]),
    ("reinforced-paper", None, ["tokenizer.src_file=s.json", "tokenizer.tgt_file=t.json"]),
    (None, "vaswani-big", ["tokenizer.sharing=shared", "training.adam_eps=1e-30"]),
]


@pytest.mark.parametrize(("path", "name", "overrides"), EXPERIMENTS)
def test_printed_and_commented_toml_give_the_same_experiment(
    path: str | None, name: str | None, overrides: list[str], tmp_path: Path
) -> None:
    loaded = load(path, preset=name, overrides=overrides)
    for text in (format_config(loaded), commented_toml(loaded), commented_toml(loaded, folder=tmp_path)):
        assert load(written(tmp_path, text)).experiment == loaded.experiment
    assert from_json(to_json(loaded.experiment)) == loaded.experiment


def test_printed_lines_say_where_values_come_from(tmp_path: Path) -> None:
    path = written(tmp_path, "[training]\nepochs = 3\n")
    lines = format_config(load(path, preset="baseline", overrides=["training.seed=4"])).splitlines()
    found = {line.partition(" ")[0]: line.partition("  #")[2].strip() for line in lines if "=" in line}
    assert found["seed"] == "command line"
    assert found["epochs"] == f"file {path}"
    assert found["d_ff"] == "preset baseline"
    assert found["updates"] == "default"
    assert len(tomllib.loads("\n".join(lines))["training"]) == len(dataclasses.fields(TrainingConfig))


def test_commented_toml_explains_every_field_and_leaves_defaults_out() -> None:
    loaded = load(None, preset="baseline", overrides=["training.epochs=20", "architecture.d_ff=512"])
    text = commented_toml(loaded)
    live = tomllib.loads(text)
    assert live["training"] == {"epochs": 20}
    assert live["architecture"] == {"preset": "baseline", "d_ff": 512}
    assert live["corpus"] == live["tokenizer"] == live["decoding"] == {}
    lines = text.splitlines()
    for name in FIELDS:
        field = name.partition(".")[2]
        index = next(i for i, line in enumerate(lines) if line.lstrip("#").startswith(f"{field} = "))
        assert lines[index - 1].startswith("# ")
    assert "#batch_size = 4096" in lines
    assert "# Adam's epsilon." in lines
    assert '# What to do with longer pairs; either way, they are counted. Values: "drop", "truncate".' in lines
    (norm,) = (line for line in lines if line.startswith("# The norm:"))
    assert "`post`" in norm
    assert "Values" not in norm, "the description names them"


def test_paths_within_the_folder_are_written_relative_to_it(tmp_path: Path) -> None:
    inside = [str(tmp_path / "data" / "a.pt"), str(tmp_path / "none")]
    loaded = load(None, overrides=[f"corpus.train={json.dumps(inside)}", "corpus.test=/elsewhere.tsv"])
    live = tomllib.loads(commented_toml(loaded, folder=tmp_path))["corpus"]
    assert live == {"train": ["data/a.pt", "./none"], "test": ["/elsewhere.tsv"]}


@pytest.mark.usefixtures("no_collection")
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"training": {"seeds": 1}}', "may have been written by a newer repose"),
        ('{"serving": {}}', "may have been written by a newer repose"),
        ('{"training": {"seed": "x"}}', "run/config.json: training.seed should be a whole number, not 'x'"),
        ('{"training": 3}', "training is a section of settings"),
        ('{"training": ', "run/config.json is not JSON"),
        ("[" * 100_000, "run/config.json is not JSON"),
        ("[]", "an object of sections is expected"),
    ],
)
def test_json_that_cannot_be_used(text: str, expected: str) -> None:
    with pytest.raises(ConfigError) as caught:
        from_json(text, "run/config.json")
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_json_of_an_older_repose_gets_defaults() -> None:
    table = json.loads(to_json(Experiment()))
    del table["training"]["clip_norm"]
    assert from_json(json.dumps(table)) == Experiment()


def test_run_ids_as_scores_show_them_tell_numbers_of_workers_apart() -> None:
    shown = {workers: id_of_numbers("0123456789ab", workers) for workers in ((), (1,), (2,), (2, 1), (1, 2))}
    assert shown[()] == shown[(1,)] == "0123456789ab", "ids of recorded runs stay"
    assert len(set(shown.values())) == 4
    assert all(id_of_settings(one) == "0123456789ab" for one in shown.values())


# Several corpora


def test_further_corpora_are_tables(tmp_path: Path) -> None:
    text = '[corpus]\ntrain = "a.tsv"\nalso = [{train = ["b.pt", "b.en"], tag = "pt"}]\nsynthetic = "s.tsv"\n'
    loaded = load(written(tmp_path, text))
    corpus = loaded.experiment.corpus
    (other,) = corpus.also
    assert (other.train, other.tag) == ((str(tmp_path / "b.pt"), str(tmp_path / "b.en")), "pt")
    assert corpus.synthetic == (str(tmp_path / "s.tsv"),)
    assert corpus.tags == ("pt", "BT")
    assert from_json(to_json(loaded.experiment)) == loaded.experiment
    within = commented_toml(loaded, folder=tmp_path)
    assert str(tmp_path) not in within
    again = load(written(tmp_path, within, name="again.toml"))
    assert again.experiment == loaded.experiment


def test_pairs_of_a_tag_are_another_training_as_synthetic_ones() -> None:
    """Of which each is read once an epoch, whatever the temperature; the data is the same to the last bit."""
    also = "{train = ['a.tsv'], tag = 'pt'}"
    one, other = (
        load(None, overrides=["corpus.train=t.tsv", "training.corpus_temperature=5", *more]).experiment
        for more in (
            [f"corpus.also=[{also}]", "corpus.synthetic=s.tsv"],
            [f"corpus.also=[{also}, {{train = ['s.tsv'], tag = 'BT'}}]"],
        )
    )
    assert run_id(one, {}) != run_id(other, {})


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("corpus.also=x.tsv", "should be tables such as"),
        ("corpus.also=[{train=['a.tsv']}]", "has train and tag"),
        ("corpus.also=[{train=['a.tsv'],tag='END'}]", "'END' cannot be a tag"),
        ("corpus.also=[{train=['a.tsv'],tag=5}]", "corpus.also"),
        ("corpus.tag=a tag", "cannot be a tag"),
        ("training.upsample=2", "is for the pairs beside tagged synthetic ones"),
        ("training.corpus_temperature=5", "is for several corpora"),
        ("training.corpus_temperature=0.5", "at least 1"),
    ],
)
def test_what_several_corpora_cannot_be(override: str, said: str) -> None:
    assert said in sentence(override)


def test_a_temperature_is_not_for_synthetic_pairs_without_a_tag() -> None:
    """They would count as pairs of the corpus that has no tag either, and crowd it out."""
    also = "corpus.also=[{train=['a.tsv'],tag='pt'}]"
    said = sentence("training.corpus_temperature=5", also, "corpus.synthetic=d.tsv", "corpus.synthetic_tag=none")
    assert "tells synthetic pairs from the corpus by their tag" in said


@pytest.mark.parametrize("written", ["nan", "inf", "2024"])
def test_a_tag_may_look_like_a_number(written: str) -> None:
    """ "nan" is the code of Min Nan."""
    for name in ("tag", "synthetic_tag"):
        assert getattr(load("default", overrides=[f"corpus.{name}={written}"]).experiment.corpus, name) == written


def test_a_tag_is_of_one_kind_of_pairs() -> None:
    assert "is another corpus's tag" in sentence("corpus.synthetic=s.tsv", "corpus.tag=BT")
