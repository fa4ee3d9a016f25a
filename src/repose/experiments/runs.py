"""One run: corpus, training and evaluation, in one directory that says what it is.

config.json       experiment, run id, digests and versions
metrics.jsonl, train.log, state/     `repose.training`
model/            what is handed on
scores.test.json, hypotheses/        `repose.experiments.evaluate`
"""

import json
import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import tokenizers
import torch

from repose import model_dir
from repose._version import __version__
from repose.config import Experiment, run_id
from repose.config_file import from_json, to_json
from repose.data.readers import read_pairs
from repose.data.tokenizer import Tokenizer
from repose.decoding.translator import Translator, load
from repose.device import available_cores, one_thread
from repose.errors import CheckpointError, ConfigError
from repose.evaluation.metrics import bleu
from repose.experiments.corpus_data import CorpusData, is_pretokenized, languages_of, prepare_corpus
from repose.experiments.evaluate import evaluate, over_validations, teacher_forced, write
from repose.model.presets import difference
from repose.model.transformer import Transformer
from repose.positions_rl.table import PositionTable, default_table
from repose.positions_rl.table import read as read_table
from repose.training.distributed import outer_launcher
from repose.training.job import Outcome, TrainingJob
from repose.training.progress import ProgressKind
from repose.training.run import train


@dataclass(frozen=True)
class RunResult:
    """How a run stands."""

    outcome: Outcome
    run_id: str
    scores: dict[str, Any] | None
    """Content of scores.test.json (of the validation set where there is no test set); None while not done, and on all
    workers of an outer launcher but the first."""


def _silence(_: str) -> None:
    """Says nothing."""


def run(
    experiment: Experiment,
    folder: Path,
    *,
    device: str = "auto",
    workers: int | None = None,
    stop_after: int | None = None,
    progress: ProgressKind = "auto",
    tensorboard: bool = False,
    say: Callable[[str], None] = _silence,
) -> RunResult:
    """Prepares, trains and evaluates in `folder`, going on from whatever is there; a finished run is not repeated.

    Raises CheckpointError where `folder` holds another run, and what preparing and training raise.
    """
    outer = outer_launcher()
    is_first = outer is None or outer.rank == 0  # under torchrun or SLURM every process comes here
    data = prepare_corpus(experiment, workers=available_cores(), say=say if is_first else _silence)
    digests = data.digests
    if experiment.training.init_from is not None:
        digests["init_from"] = model_dir.read_config(Path(experiment.training.init_from))["sha256"][model_dir.WEIGHTS]
    table = _position_table(experiment)
    if table is not None:
        digests["position_table"] = table.digest
    identity = run_id(experiment, digests)
    _claim(folder, experiment, identity, digests, data)
    outcome = train(
        _job(experiment, data, identity, table),
        folder,
        device=device,
        workers=workers,
        stop_after=stop_after,
        progress=progress,
        tensorboard=tensorboard,
        evaluate=_ValidationBleu(data) if experiment.training.bleu_every_epochs else None,
    )
    scores = _evaluated(experiment, data, folder, device) if is_first and outcome.status == "done" else None
    return RunResult(outcome, identity, scores)


def _position_table(experiment: Experiment) -> PositionTable | None:
    """The small table of `positions = policy`."""
    path = experiment.training.position_table
    if (kind := experiment.architecture.positions) != "policy":
        if path is not None:
            raise ConfigError(
                f"training.position_table = {path!r} is for architecture.positions = 'policy', not {kind!r}: "
                "remove it, or set positions"
            )
        return None
    return default_table() if path is None else read_table(Path(path))


def read_run(folder: Path) -> tuple[Experiment, dict[str, Any]]:
    """The experiment and the whole config.json of a run directory. Raises CheckpointError where there is none."""
    path = folder / "config.json"
    try:
        config = json.loads(path.read_text(encoding="utf-8"))
        experiment = from_json(json.dumps(config["experiment"]), str(path))
    except FileNotFoundError as error:
        raise CheckpointError(f"{folder} is no run directory: it has no config.json") from error
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise CheckpointError(f"{path} is damaged or no run's: restore it, or choose another directory") from error
    return experiment, config


def _claim(folder: Path, experiment: Experiment, identity: str, digests: Mapping[str, str], data: CorpusData) -> None:
    """Writes config.json, or makes sure that the one there is of this run."""
    path = folder / "config.json"
    if path.exists():
        _, config = read_run(folder)
        if config.get("run_id") != identity:
            raise CheckpointError(
                f"{folder} holds run {config.get('run_id')}, these settings and data make run {identity}: "
                "choose another --out, or the settings of that run"
            )
        return
    config = {
        "run_id": identity,
        "experiment": json.loads(to_json(experiment)),
        "digests": dict(digests),
        "data": data.folder.name,
        "report": list(data.report),
        "versions": {
            "repose": __version__,
            "torch": torch.__version__,
            "tokenizers": tokenizers.__version__,
            "numpy": numpy.__version__,
            "python": platform.python_version(),
        },
    }
    try:
        folder.mkdir(parents=True, exist_ok=True)
        unfinished = path.with_name(f"{path.name}.{os.getpid()}")
        unfinished.write_text(json.dumps(config, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        unfinished.replace(path)
    except OSError as error:
        raise CheckpointError(f"{folder} cannot be written ({error.strerror}): choose another --out") from error


def _job(experiment: Experiment, data: CorpusData, identity: str, table: PositionTable | None) -> TrainingJob:
    src_lang, tgt_lang = languages_of(experiment.corpus)
    decoding = {
        name: getattr(experiment.decoding, name)
        for name in ("beam_size", "length_penalty", "max_extra_tokens", "batch_size")
    }
    return TrainingJob(
        architecture=experiment.architecture,
        training=experiment.training,
        decoding=experiment.decoding,
        train_data=data.train,
        valid_data=data.valid,
        src_tokenizer=data.tokenizer_path("src"),
        tgt_tokenizer=data.tokenizer_path("tgt"),
        run_id=identity,
        position_table=None if table is None else tuple(map(tuple, table.values.tolist())),
        card=_card(experiment, data, identity),
        model_extra={"run_id": identity, "src_lang": src_lang, "tgt_lang": tgt_lang, "decoding": decoding},
    )


def _card(experiment: Experiment, data: CorpusData, identity: str) -> str:
    """The model card: what the model is, what it was trained on, and how to use it."""
    src_lang, tgt_lang = languages_of(experiment.corpus)
    a, training = experiment.architecture, experiment.training
    changed = "".join(f"| `{name}` | {old} | {new} |\n" for name, (old, new) in difference(a).items())
    report = "".join(f"- {sentence}\n" for sentence in data.report)
    return (
        f"# {src_lang} → {tgt_lang}, run {identity}\n\n"
        f"A translation model trained with repose {__version__}: d_model {a.d_model}, {a.num_encoder_layers} + "
        f"{a.num_decoder_layers} layers, {a.num_heads} heads of {a.head_dim}, d_ff {a.d_ff}.\n\n"
        "```\necho 'A sentence.' | repose translate THIS_FOLDER\n```\n\n"
        f"## Data\n\n{report}\n"
        f"## Training\n\nSeed {training.seed}, {training.schedule} schedule, label smoothing "
        f"{training.label_smoothing:g}; the {training.keep} weights are kept. Validation figures and versions are in "
        "config.json, teacher-forced ones under names that begin with tf_.\n\n"
        "## Differences from Vaswani et al. (2017), base\n\n| setting | there | here |\n|---|---|---|\n" + changed
    )


def evaluate_model(
    folder: Path,
    files: Sequence[Path] | None,
    *,
    split: str,
    beam_sizes: Sequence[int],
    out: Path | None = None,
    tokenize: str = "13a",
    device: str = "cpu",
    workers: int | None = None,
    precision: str = "fp32",
) -> dict[str, Any]:
    """Scores of a run or model directory on two aligned `files`, or on a set of the run's own corpus.

    `workers` and `precision` as for `repose.load`.
    Written to `out`, if given, as `repose.experiments.evaluate.write` does. Raises DataError and CheckpointError.
    """
    translator = load(folder, device, workers, precision)
    if files:
        pairs = list(read_pairs(files))
        src, references = [a for a, _ in pairs], [b for _, b in pairs]
        pretokenized = False
    else:
        experiment, _ = read_run(folder)
        src, references = prepare_corpus(experiment).text(split)
        pretokenized = is_pretokenized(experiment.corpus)
    with translator, one_thread():
        evaluation = evaluate(
            translator, src, references, beam_sizes=beam_sizes, pretokenized=pretokenized, tokenize=tokenize
        )
    about = _about(translator, split)
    if out is not None:
        write(evaluation, out, split, about)
    return about | evaluation.to_json()


def _about(translator: Translator, split: str) -> dict[str, Any]:
    """What is shown with every score: which run, on what, decoded how."""
    decoding: dict[str, Any] = {
        "length_penalty": translator.length_penalty,
        "max_extra_tokens": translator.max_extra_tokens,
    }
    if translator.precision != "fp32":
        decoding["precision"] = translator.precision
    return {
        "run_id": translator.config.get("run_id"),
        "split": split,
        "looks_ahead": translator.model.architecture.looks_ahead,
        "decoding": decoding,
    }


@dataclass(frozen=True)
class _ValidationBleu:
    """BLEU of (the first sentences of) the validation set, for the training loop: `bleu` of greedy translations, and
    beside it the `tf_bleu*` that `teacher_forced` explains."""

    data: CorpusData

    def __call__(self, model: Transformer, job: TrainingJob) -> dict[str, float]:
        src, references = (side[: job.training.bleu_sentences] for side in self.data.text("valid"))
        training = model.training
        translator = Translator(
            model,
            Tokenizer.load(job.src_tokenizer),
            Tokenizer.load(job.tgt_tokenizer),
            max_extra_tokens=job.decoding.max_extra_tokens,
            batch_size=job.decoding.batch_size,
            workers=1,  # the others wait, and have the cores
        )
        try:
            hypotheses = [t.text for t in translator.translate(src, beam_size=1)]
            forced = teacher_forced(translator, src, references)
        finally:
            model.train(training)
        score = bleu(hypotheses, references, lowercase=translator.tgt_tokenizer.lowercase)
        return {"bleu": score.value} | {name: value for name, value in forced.items() if name.startswith("tf_bleu")}


def _evaluated(experiment: Experiment, data: CorpusData, folder: Path, device: str) -> dict[str, Any]:
    """Scores of the finished model, computed once."""
    split = "test" if data.has_text("test") else "valid"
    path = folder / f"scores.{split}.json"
    if not path.exists():
        translator = load(folder, "cpu" if device == "auto" else device)
        with translator, one_thread():
            evaluation = evaluate(
                translator,
                *data.text(split),
                beam_sizes=(1, experiment.decoding.beam_size),
                pretokenized=is_pretokenized(experiment.corpus),
            )
        about = _about(translator, split)
        means = over_validations(folder / "metrics.jsonl", experiment.training.bleu_mean_over)
        if means:
            num_sentences = len(data.text("valid")[0][: experiment.training.bleu_sentences])
            about["over_validations"] = {"num_sentences": num_sentences, **means}
        write(evaluation, folder, split, about)
    return dict(json.loads(path.read_text(encoding="utf-8")))
