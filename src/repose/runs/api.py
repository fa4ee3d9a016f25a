"""Train and evaluate from Python, like the commands of the same names."""

import os
import signal
import threading
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from repose.config.experiment import PATHS, Experiment
from repose.config.file import paths_made_absolute, to_toml
from repose.data.readers import unpacked
from repose.decoding.engine import EngineChoice, Precision
from repose.model.architecture import Architecture
from repose.runs.arguments import loaded_experiment, refuse_other_files, tell_of_bf16
from repose.runs.run import RunResult, run
from repose.saved_model.directory import locate, read_config
from repose.saved_run.folder import OTHER_CODE, SCORED_SPLITS, RunFolder, unfinished
from repose.system import terminal
from repose.system.device import device_name
from repose.system.errors import ConfigError
from repose.system.files import check_writable, checked_path
from repose.system.terminal import Say, say
from repose.tasks.base import EvaluationOptions
from repose.tasks.registry import task_of_model
from repose.training.display import ProgressKind

Files = str | Path | Iterable[str | Path]
"""Two aligned text files (source, target), one TSV or CSV file, or JSONL, Parquet or TMX files."""


def train(
    corpus: Experiment | Files | None = None,
    *,
    out: str | Path,
    valid: Files | None = None,
    test: Files | None = None,
    config: str | Path | None = None,
    preset: str | None = None,
    settings: Mapping[str, Any] | None = None,
    start: str | os.PathLike[str] | None = None,
    synthetic: Files | None = None,
    device: str = "auto",
    workers: int | None = None,
    stop_after: int | None = None,
    progress: ProgressKind = "auto",
    say: Say = say,
    stop: threading.Event | None = None,
) -> RunResult:
    """Train a model on a parallel corpus and evaluate it, as `repose train` does. Call it again to resume.

    `corpus`: two aligned files, or files of pairs; None with a `config` that names its corpus; or a whole Experiment,
    which allows no other settings. `settings`: by name, such as {"training.epochs": 5}, or in tables, as in an
    experiment file (`repose init` writes one with all settings). {"training.max_hours": 0.5} is `--minutes 30`, and
    {"architecture": a} takes an `Architecture`. `start`: a trained model to start from (`--from`). `workers`: number
    of processes, by default one per core or GPU.

    `say` is called with each sentence about what happens. `progress` is "lines" (figures and example translations
    during training, passed to `say`), "live" (a progress bar on the terminal, not passed to `say`), "auto" (one of the
    two) or "none".

    During the call, SIGINT, SIGTERM, SIGHUP and SIGUSR1 stop the training, which saves its state. The signal is then
    raised again, so that Ctrl-C also ends the caller's loop, as KeyboardInterrupt. Python receives signals in the main
    thread only; in other threads, set the event `stop`. It is checked after each update (on a GPU, after every tenth),
    but not while the corpus is prepared or the model is scored. After `stop`, or after `stop_after` updates, the
    function returns with `outcome.status` "stopped" and without scores.

    Raises ConfigError for invalid settings, and if `out` holds something other than a run. Raises DataError for files,
    and CheckpointError if `out` holds another run.
    """
    folder = checked_path("out", out)
    if not callable(say) or not (stop is None or hasattr(stop, "is_set")):
        raise ConfigError(
            "say is a function that takes a text, and stop a threading.Event: give such, or leave them out"
        )
    refuse_other_files(folder, None if start is None else checked_path("start", start))
    if isinstance(corpus, Experiment):
        if any(given is not None for given in (valid, test, config, preset, settings, start, synthetic)):
            raise ConfigError("an Experiment has all settings: give it alone, with those that it is to have")
        experiment = _with_absolute_paths(corpus)
    else:
        loaded = loaded_experiment(
            None if corpus is None else _paths(corpus),
            None if config is None else str(config),
            preset,
            _overrides({} if settings is None else settings, valid, test),
            None if start is None else checked_path("start", start),
            None if synthetic is None else tuple(_paths(synthetic)),
            out=folder,
            say=say,
        )
        tell_of_bf16(loaded, folder, device, say)
        experiment = loaded.experiment
    result = run(
        experiment,
        folder,
        device=device,
        workers=workers,
        stop_after=stop_after,
        progress=progress,
        say=say,
        stop=stop,
    )
    if (number := signal.Signals.__members__.get(result.outcome.reason)) is not None:
        signal.raise_signal(number)
    return result


def evaluate(
    model: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    files: Files | None = None,
    *,
    split: str | None = None,
    beam_sizes: Sequence[int] | None = None,
    to: str | None = None,
    src_field: str | None = None,
    tgt_field: str | None = None,
    out: str | Path | None = None,
    tokenize: str | None = None,
    device: str = "cpu",
    workers: int | None = None,
    precision: Precision | None = None,
    engine: EngineChoice | None = None,
    say: Say = say,
) -> dict[str, Any]:
    """Translate a test set and score the translations, as `repose evaluate` does.

    `model`: a run or model directory, or an export to ONNX; several are an ensemble, as for `repose.load`.
    `files`: source and reference, or files of pairs; by default a set of the run's own corpus.
    `split`: that set: test, valid, or another published one; by default the one scored after training. With `files`,
    the name of their scores. `beam_sizes`: 1 decodes greedily; by default 1 and the model's own. `out`: a folder for
    scores and translations. `tokenize`: sacreBLEU's tokenizer, by default the one for the target language.

    `say` is called with sentences, also on how far it is, for which it has a bar on a terminal if you give no `say`.

    Returns the contents of scores.test.json: ["decoded"]["beam4"]["bleu"]["value"] and "signature", likewise "chrf" and
    "greedy"; and teacher-forced figures, which do not measure translation quality. Raises ConfigError, DataError and
    CheckpointError.
    """
    models = list(model) if isinstance(model, Sequence) and not isinstance(model, str) else [model]
    if not models:
        raise ConfigError("a list of models is empty: name a model in it")
    folder, *others = (checked_path("model", one) for one in models)
    given = None if files is None else _paths(files)
    if not split:
        split = unpacked(given[0]).stem if given else (RunFolder(folder).main_scores() or ("test",))[0]
    if not isinstance(split, str) or Path(split).name != split:
        raise ConfigError(f"split is {split!r}, but names files of scores: leave slashes out")
    if beam_sizes is None:
        beam_sizes = ()
    if isinstance(beam_sizes, int | float | str):
        raise ConfigError(f"beam_sizes is {beam_sizes}: give a list, as in [{beam_sizes}]")
    options = EvaluationOptions(
        beam_sizes=tuple(beam_sizes),
        tokenize=tokenize,
        device=device_name(device),
        workers=workers,
        precision=precision,
        engine=engine,
        src_field=src_field,
        tgt_field=tgt_field,
        to=to,
        ensemble=tuple(others),
        progress="auto" if say is terminal.say else "lines",
        say=say,
    )
    place = None if out is None else checked_path("out", out)
    if place is not None:
        check_writable(place)
        _check_spares_run(place, folder, split, options, of_files=given is not None)
    if RunFolder(folder).has_other_code:
        say(f"{folder}: begun {OTHER_CODE}")
    for sentence in filter(None, (unfinished(locate(one)) for one in (folder, *others))):
        say(sentence)
    return task_of_model(folder).score_model(folder, given, split, place, options)


def _with_absolute_paths(experiment: Experiment) -> Experiment:
    """Make paths absolute, so that the run can be resumed from another folder."""
    tables = asdict(experiment)
    for section, field in (name.split(".") for name in (*PATHS, "corpus.also")):
        if value := tables[section][field]:
            tables[section][field] = paths_made_absolute(value, Path.cwd())
    return Experiment(**tables)


def _overrides(settings: Mapping[str, Any], valid: Files | None, test: Files | None) -> list[str]:
    """Return settings in the form that the command line takes. Raises ConfigError for contradictions."""
    named = _by_name(settings)
    for name, files in (("corpus.valid", valid), ("corpus.test", test)):
        if files is not None and name in named:
            raise ConfigError(f"{name.partition('.')[2]} and the setting {name} say the same: give one of them")
        if files is not None:
            named[name] = _paths(files)
    return [f"{name}={_as_toml(name, value)}" for name, value in named.items()]


def _as_toml(name: str, value: Any) -> str:
    try:
        return to_toml(_plain(value))
    except TypeError:
        raise ConfigError(f"the setting {name} is {value!r:.60}: give a number, a text or a list of such") from None


def _paths(files: Files) -> list[Path]:
    """Return the files as paths. Raises ConfigError for sentences or tables instead of files, and for an empty list."""
    is_one = isinstance(files, str | os.PathLike | Mapping) or hasattr(files, "columns")
    given: list[Any] = [files] if is_one or not isinstance(files, Iterable) else list(files)
    if wrong := [one for one in given if not isinstance(one, str | os.PathLike)]:
        what = type(wrong[0]).__name__
        raise ConfigError(f"pairs are read from files, and {what} names none: write them to one first")
    if isinstance(files, set | frozenset):
        raise ConfigError(f"files are a list, source first, not a {type(files).__name__}, which has no order")
    if not given:
        raise ConfigError("a list of files is empty: name files in it, or leave it out")
    return [Path(path) for path in given]


def _by_name(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return settings by "section.field", including those in tables. Raises ConfigError for one given twice."""
    if not isinstance(settings, Mapping):
        raise ConfigError(f"settings are by name, as in {{'training.epochs': 5}}, not {settings!r:.60}")
    named: dict[str, Any] = {}
    for name, value in settings.items():
        value = asdict(value) if isinstance(value, Architecture) else value
        for field, each in value.items() if isinstance(value, Mapping) else [("", value)]:
            full_name = f"{name}.{field}" if field else name
            if full_name in named:
                raise ConfigError(f"settings name {full_name} twice: give one of them")
            named[full_name] = each
    return named


def _plain(value: Any) -> Any:
    """Convert a setting's value to types that TOML has: paths to text, numpy's numbers to numbers."""
    if isinstance(value, list | tuple):
        return [_plain(one) for one in value]
    if isinstance(value, Mapping):
        return {name: _plain(one) for name, one in value.items()}
    if isinstance(value, np.generic | np.ndarray):
        return value.tolist()
    return str(value) if isinstance(value, Path) else value


def _check_spares_run(out: Path, model: Path, split: str, options: EvaluationOptions, *, of_files: bool) -> None:
    """Raise ConfigError if scores of other files or of another model would replace a run's own scores, or if another
    decoding would replace the scores of a finished run."""
    run = RunFolder(out)
    if not run.exists or split not in SCORED_SPLITS:
        return
    if of_files:
        raise ConfigError(
            f"{run.scores_file(split)} is for the run's own set {split!r}: give these files another name (split), or "
            "choose another folder"
        )
    if model.resolve() not in (run.path.resolve(), run.model.resolve()):
        raise ConfigError(f"{run.scores_file(split)} is for the run's own model, not {model}: choose another folder")
    if options.ensemble:
        raise ConfigError(f"{run.scores_file(split)} is for the run's model alone: choose another folder")
    own, scores = run.main_scores() or ("", {})
    if own != split or run.is_under_way or "decoded" not in scores:
        return
    options = options.resolved(read_config(model))
    theirs = ", ".join([*scores["decoded"], scores.get("decoding", {}).get("precision", "fp32")])
    asked = ", ".join([*options.names, options.precision or "fp32", *filter(None, [options.to])])
    if theirs != asked:
        raise ConfigError(
            f"{run.scores_file(split)} holds the run's own scores ({theirs}), which others ({asked}) would replace: "
            "choose another folder"
        )
