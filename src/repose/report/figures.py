"""Figures of a single run, from its records, its scores and its settings; None where they do not have it."""

import math
import re
import statistics
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from repose.config.experiment import TASK_SETTINGS
from repose.evaluation.metrics import GREEDY
from repose.model.architecture import Architecture
from repose.report.collect import ReportRun
from repose.runs.folder import RunFolder

TARGET_NATS = "nats per target token"
SCORES = {"bleu": "BLEU", "chrf": "chrF"}
"""The scores of translations by their names in scores.*.json, and what they are called."""


def nats(runs: Iterable[ReportRun]) -> str:
    """The unit of these runs' losses; "nats" where that is not one for all."""
    tasks = {run.task for run in runs}
    units = {
        TARGET_NATS
        if TASK_SETTINGS[task].translates
        else f"nats per {'token' if TASK_SETTINGS[task].predicts_tokens else 'word'}"
        for task in tasks
    }
    return units.pop() if len(units) == 1 else "nats"


def train_loss(run: ReportRun) -> float | None:
    """Mean over the last whole epoch's updates, dropout on, no label smoothing; over the last updates recorded where no
    epoch was completed."""
    return _last(run.of_kind("epoch") or run.of_kind("train"), "nll")


def validation_of_model(run: ReportRun) -> Mapping[str, Any] | None:
    """The validation of the weights that the model is made of: the last one, or the best one where that is kept. Of an
    average of checkpoints it is its own, and the last one until the training has ended."""
    if of_model := run.of_kind("model"):
        return of_model[-1]
    found = [record for record in run.of_kind("valid") if number_of(record, "tf_loss") is not None]
    if not found:
        return None
    training = run.experiment.training
    if training.keep != "best" or training.average_checkpoints > 1:
        return found[-1]
    if training.best_by == "chrf":  # of equals the first, as in training
        return max(found, key=lambda record: number_of(record, "chrf") or 0.0)
    return min(found, key=lambda record: float(record["tf_loss"]))


def by_epoch(run: ReportRun, kind: str) -> list[tuple[float, Mapping[str, Any]]]:
    """Records of a kind, each with the epochs that were behind it: a fraction within one, of which its own end or the
    length of the one before says how long it is."""
    ends = {0: 0} | {record["epoch"]: record["update"] for record in run.of_kind("epoch")}
    return [(_epochs_behind(record, ends), record) for record in run.of_kind(kind)]


def _epochs_behind(record: Mapping[str, Any], ends: Mapping[int, int]) -> float:
    update = record["update"]
    whole = max((epoch for epoch, end in ends.items() if end <= update), default=0)
    if ends[whole] == update:
        return whole
    length = ends.get(whole + 1, ends[whole]) - ends[whole] or ends[whole] - ends.get(whole - 1, 0)
    return round(whole + (update - ends[whole]) / length, 2) if length else int(record["epoch"])


def validated_within(run: ReportRun) -> bool:
    """Whether validations of a run, the last one aside, were not at the ends of epochs."""
    ends = {record["update"] for record in run.of_kind("epoch")}
    places = [record["update"] for record in run.of_kind("valid")]
    return any(update not in ends for update in places[: -1 if len(places) > 1 else None])


def valid_loss(run: ReportRun) -> float | None:
    """tf_loss of the model's weights on the validation set, nats per target token."""
    return number_of(validation_of_model(run), "tf_loss")


def perplexity(run: ReportRun) -> float | None:
    """exp of the validation loss; infinite beyond what a float holds."""
    loss = valid_loss(run)
    return None if loss is None else math.inf if loss >= 700 else math.exp(loss)


def valid_accuracy(run: ReportRun) -> float | None:
    """Share of validation tokens predicted right given the reference's earlier ones, in percent."""
    share = number_of(validation_of_model(run), "tf_accuracy")
    return None if share is None else 100 * share


def decodings(run: ReportRun) -> Mapping[str, Mapping[str, Any]]:
    """Free-running scores by decoding: "greedy", "beam4"."""
    found = (run.scores or {}).get("decoded")
    return {name: one for name, one in found.items() if isinstance(one, dict)} if isinstance(found, dict) else {}


def beam_decoding_name(run: ReportRun) -> str | None:
    """Name of the decoding with a beam, such as "beam4": of the run's own width, by which it is compared, or else the
    widest; None without any."""
    names = [name for name in decodings(run) if re.fullmatch(r"beam\d+", name)]
    own = run.experiment.decoding.beam_size
    return max(names, key=lambda name: (int(name[4:]) == own, int(name[4:])), default=None)


def decoding_of(run: ReportRun) -> str:
    """Name of the decoding that a run is compared by: its own search, or else any beam, or else greedy search."""
    beam = beam_decoding_name(run)
    is_greedy = run.experiment.decoding.beam_size == 1 and GREEDY in decodings(run)
    return GREEDY if beam is None or is_greedy else beam


def scored(run: ReportRun, decoding: str | None) -> Mapping[str, Any]:
    """The scores of a decoding, and what was counted beside them; `decoding` None: of `beam_decoding_name`."""
    return decodings(run).get(decoding or beam_decoding_name(run) or "", {})


def score(run: ReportRun, decoding: str | None, metric: str) -> float | None:
    """A free-running score, in percent; `decoding` as for `scored`."""
    value = number_of(scored(run, decoding).get(metric), "value")
    return value if value is not None and math.isfinite(value) else None


def signature(run: ReportRun, decoding: str | None, metric: str) -> str:
    """sacreBLEU's signature of that score; "" where there is none."""
    return str(scored(run, decoding).get(metric, {}).get("signature", ""))


def scored_with(found: str) -> dict[str, str]:
    """The fields of one of sacreBLEU's signatures, such as `case` and `tok`, but for its version."""
    fields = (field.split(":", 1) for field in found.split("|") if ":" in field)
    return {"case": "mixed", "tok": "13a"} | {name: value for name, value in fields if name != "version"}


def kind_of_score(run: ReportRun, decoding: str | None, metric: str) -> tuple[object, ...]:
    """How a score was decoded and counted, and on which set: scores of two kinds cannot be compared."""
    way = scored_with(signature(run, decoding, metric))
    width = decoding or beam_decoding_name(run)
    return width, tuple(sorted(way.items())), run.split, (run.scores or {}).get("num_sentences")


def teacher_forced(run: ReportRun, name: str) -> float | None:
    """A teacher-forced figure of the test set."""
    return number_of((run.scores or {}).get("teacher_forced"), name)


def task_figure(run: ReportRun, name: str) -> float | None:
    """A figure of another task than translation."""
    return number_of((run.scores or {}).get("figures", {}).get(name), "value")


def task_figure_label(name: str) -> str:
    """What a figure of another task than translation is called."""
    return name.upper() if name in ("uas", "las") else name.replace("_", " ")


def epoch_seconds(run: ReportRun) -> list[float]:
    """Seconds of training of each completed epoch.

    Time spent on validations is left out wherever a record stands at its beginning: at the end of each epoch. The
    checkpoint and the model that are written after one have no record, and count in the epoch that follows.
    """
    seconds, begun, taken = [], 0.0, 0.0
    before: Mapping[str, Any] = {}
    for record in run.records.training:
        now = _clock(record)
        if now is None:
            return []
        if record["kind"] == "epoch":
            seconds.append(now - begun - taken)
            begun, taken = now, 0.0
        elif record["kind"] == "valid" and before.get("update") == record["update"]:
            taken += now - (_clock(before) or 0.0)
        before = record
    return seconds


def seconds_per_epoch(run: ReportRun) -> float | None:
    """The median over its epochs: what ran beside one of them does not move it."""
    found = epoch_seconds(run)
    return statistics.median(found) if found else None


def total_seconds(run: ReportRun) -> float | None:
    """Training and validation until the last record, summed over resumes."""
    return _clock(run.records.training[-1])


def epochs(run: ReportRun) -> int:
    """Epochs completed."""
    return len({record["epoch"] for record in run.of_kind("epoch")})


def vocabularies(run: ReportRun) -> tuple[int, int] | None:
    """Source and target tokens of the vocabularies of a translation model."""
    found = {} if run.records.data is None else run.records.data.vocabulary
    return (found["src"], found["tgt"]) if {"src", "tgt"} <= found.keys() else None


def train_pairs(run: ReportRun) -> int | None:
    """Pairs that were trained on."""
    return None if run.records.data is None else run.records.data.examples.get("train")


def valid_pairs(run: ReportRun) -> int | None:
    """Pairs of the validation set."""
    return None if run.records.data is None else run.records.data.examples.get("valid")


def mean_target_tokens(run: ReportRun) -> float | None:
    """Tokens of a training target, on average."""
    pairs = train_pairs(run)
    if run.records.data is None or not pairs:
        return None
    tokens = run.records.data.tokens.get("train", {}).get("tgt")
    return None if tokens is None else tokens / pairs


def parameters(run: ReportRun) -> float | None:
    """Parameters, tied ones once: counted by building a translation model; of other models in their scores, and until
    there are any in their file."""
    if not run.translates:
        return number_of(run.scores, "parameters") or RunFolder(run.folder).num_parameters()
    cost = _cost(run)
    return None if cost is None else cost[0]


def flops_per_token(run: ReportRun) -> float | None:
    """Floating-point operations of a training step, forward and backward, per target token
    (`repose.model.describe`), counted on sentences of the corpus's mean target length; twice with R-Drop, which makes
    two passes."""
    cost, passes = _cost(run), 2 if run.experiment.training.r_drop else 1
    return None if cost is None else passes * cost[1]


def training_flops(run: ReportRun) -> float | None:
    """Operations of the whole training: per target token, times the target tokens that were trained on."""
    per_token = flops_per_token(run)
    tokens = _last([r for r in run.records.training if "tokens" in r], "tokens")
    return None if per_token is None or tokens is None else per_token * tokens


def _cost(run: ReportRun) -> tuple[int, float] | None:
    sizes = vocabularies(run)
    if not run.translates or sizes is None:
        return None
    return _counted(run.experiment.architecture, *sizes, round(mean_target_tokens(run) or 16))


@cache
def _counted(a: Architecture, src_vocab_size: int, tgt_vocab_size: int, length: int) -> tuple[int, float]:
    """Counted once for each architecture: takes a second or two for a large one."""
    from repose.model.describe import describe

    length = min(length, a.max_length)
    found = describe(a, src_vocab_size=src_vocab_size, tgt_vocab_size=tgt_vocab_size, length=length)
    return found.total, found.training_flops


def _clock(record: Mapping[str, Any]) -> float | None:
    return number_of(record.get("wall"), "seconds")


def _last(records: Any, name: str) -> float | None:
    return number_of(records[-1], name) if records else None


def number_of(mapping: Any, name: str) -> float | None:
    """The number that a record or another mapping has under a name, if any."""
    value = mapping.get(name) if isinstance(mapping, Mapping) else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def times(factor: float, value: float | None) -> float | None:
    """A figure in another unit."""
    return None if value is None else factor * value
