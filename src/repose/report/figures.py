"""Figures (measured numbers) of a single run, from its records, scores and settings; None if the run lacks them."""

import math
import re
import statistics
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from repose.config.experiment import TASK_SETTINGS
from repose.evaluation.metrics import GREEDY
from repose.model.architecture import Architecture
from repose.report.run_set import ReportRun
from repose.saved_run.folder import RunFolder

TARGET_NATS = "nats per target token"
SCORES = {"bleu": "BLEU", "chrf": "chrF"}
"""Maps the names of scores in scores.*.json to the names to show."""


def nats(runs: Iterable[ReportRun]) -> str:
    """Return the unit of these runs' losses; "nats" if they have different units."""
    tasks = {run.task for run in runs}
    units = {
        TARGET_NATS
        if TASK_SETTINGS[task].translates
        else f"nats per {'token' if TASK_SETTINGS[task].predicts_tokens else 'word'}"
        for task in tasks
    }
    return units.pop() if len(units) == 1 else "nats"


def train_loss(run: ReportRun) -> float | None:
    """Return the mean training loss over the last complete epoch, with dropout and without label smoothing; if no epoch
    was completed, over the last updates recorded."""
    return _last(run.of_kind("epoch") or run.of_kind("train"), "nll")


def validation_of_model(run: ReportRun) -> Mapping[str, Any] | None:
    """Return the validation record of the model's weights. If these were validated separately, as an average of
    checkpoints is, it is that validation. Otherwise it is the best validation if the best weights are kept and not
    averaged, else the last one."""
    if of_model := run.of_kind("model"):
        return of_model[-1]
    found = [record for record in run.of_kind("valid") if number_of(record, "tf_loss") is not None]
    if not found:
        return None
    training = run.experiment.training
    if training.keep != "best" or training.average_checkpoints > 1:
        return found[-1]
    if training.best_by == "chrf":  # the first of equals, as in training
        return max(found, key=lambda record: number_of(record, "chrf") or 0.0)
    return min(found, key=lambda record: float(record["tf_loss"]))


def by_epoch(run: ReportRun, kind: str) -> list[tuple[float, Mapping[str, Any]]]:
    """Return the records of a kind, each with the number of epochs completed by then. Within an epoch this includes a
    fraction, by the epoch's length or, if that is not known, by the previous epoch's."""
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
    """Return whether any validation but the last was within an epoch rather than at its end."""
    ends = {record["update"] for record in run.of_kind("epoch")}
    places = [record["update"] for record in run.of_kind("valid")]
    return any(update not in ends for update in places[: -1 if len(places) > 1 else None])


def valid_loss(run: ReportRun) -> float | None:
    """Return tf_loss of the model's weights on the validation set, in nats per target token."""
    return number_of(validation_of_model(run), "tf_loss")


def perplexity(run: ReportRun) -> float | None:
    """Return exp of the validation loss; infinity if that is too large for a float."""
    loss = valid_loss(run)
    return None if loss is None else math.inf if loss >= 700 else math.exp(loss)


def valid_accuracy(run: ReportRun) -> float | None:
    """Return the share of validation tokens predicted correctly, given the reference's earlier tokens, 0 to 1."""
    return number_of(validation_of_model(run), "tf_accuracy")


def decodings(run: ReportRun) -> Mapping[str, Mapping[str, Any]]:
    """Return free-running scores by decoding, such as "greedy" and "beam4"."""
    found = (run.scores or {}).get("decoded")
    return {name: one for name, one in found.items() if isinstance(one, dict)} if isinstance(found, dict) else {}


def beam_decoding_name(run: ReportRun) -> str | None:
    """Return the name of the decoding with a beam, such as "beam4": the one with the run's own beam size, by which the
    run is compared, else the widest; None without any."""
    names = [name for name in decodings(run) if re.fullmatch(r"beam\d+", name)]
    own = run.experiment.decoding.beam_size
    return max(names, key=lambda name: (int(name[4:]) == own, int(name[4:])), default=None)


def decoding_of(run: ReportRun) -> str:
    """Return the name of the decoding that a run is compared by: its own setting, else any beam, else greedy search."""
    beam = beam_decoding_name(run)
    is_greedy = run.experiment.decoding.beam_size == 1 and GREEDY in decodings(run)
    return GREEDY if beam is None or is_greedy else beam


def scored(run: ReportRun, decoding: str | None) -> Mapping[str, Any]:
    """Return a decoding's scores and the counts beside them; `decoding` None: that of `beam_decoding_name`."""
    return decodings(run).get(decoding or beam_decoding_name(run) or "", {})


def score(run: ReportRun, decoding: str | None, metric: str) -> float | None:
    """Return a free-running score, in percent; None if it is missing or not finite. `decoding` as for `scored`."""
    value = number_of(scored(run, decoding).get(metric), "value")
    return value if value is not None and math.isfinite(value) else None


def signature(run: ReportRun, decoding: str | None, metric: str) -> str:
    """Return sacreBLEU's signature of a score; "" if there is none."""
    return str(scored(run, decoding).get(metric, {}).get("signature", ""))


def scored_with(found: str) -> dict[str, str]:
    """Return the fields of a sacreBLEU signature, such as `case` and `tok`, without sacreBLEU's version."""
    fields = (field.split(":", 1) for field in found.split("|") if ":" in field)
    return {"case": "mixed", "tok": "13a"} | {name: value for name, value in fields if name != "version"}


def kind_of_score(run: ReportRun, decoding: str | None, metric: str) -> tuple[object, ...]:
    """Return how, and on which set, a score was measured. Scores of different kinds cannot be compared."""
    way = scored_with(signature(run, decoding, metric))
    width = decoding or beam_decoding_name(run)
    return width, tuple(sorted(way.items())), run.split, (run.scores or {}).get("num_sentences")


def teacher_forced(run: ReportRun, name: str) -> float | None:
    """Return a teacher-forced figure of the test set."""
    return number_of((run.scores or {}).get("teacher_forced"), name)


def task_figure(run: ReportRun, name: str) -> float | None:
    """Return a figure of a task other than translation."""
    return number_of((run.scores or {}).get("figures", {}).get(name), "value")


def task_figure_label(name: str) -> str:
    """Return the name to show for a figure of a task other than translation."""
    return name.upper() if name in ("uas", "las") else name.replace("_", " ")


def epoch_seconds(run: ReportRun) -> list[float]:
    """Return the seconds of training of each completed epoch.

    Validation time is excluded if a record marks the beginning of the validation, as at the end of each epoch. Writing
    the checkpoint and the model after a validation has no record, so it counts towards the next epoch.
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
    """Return the median seconds per epoch, which other load on the machine during one epoch does not affect."""
    found = epoch_seconds(run)
    return statistics.median(found) if found else None


def total_seconds(run: ReportRun) -> float | None:
    """Return the seconds of training and validation until the last record, summed over resumes."""
    return _clock(run.records.training[-1])


def epochs(run: ReportRun) -> int:
    """Return the number of completed epochs."""
    return len({record["epoch"] for record in run.of_kind("epoch")})


def vocabularies(run: ReportRun) -> tuple[int, int] | None:
    """Return the sizes of a translation model's source and target vocabularies, in tokens."""
    found = {} if run.records.data is None else run.records.data.vocabulary
    return (found["src"], found["tgt"]) if {"src", "tgt"} <= found.keys() else None


def num_pairs(run: ReportRun, split: str) -> int | None:
    """Return the number of pairs in a set, such as "train"."""
    return None if run.records.data is None else run.records.data.examples.get(split)


def mean_target_tokens(run: ReportRun) -> float | None:
    """Return the mean number of tokens of a training target."""
    pairs = num_pairs(run, "train")
    if run.records.data is None or not pairs:
        return None
    tokens = run.records.data.tokens.get("train", {}).get("tgt")
    return None if tokens is None else tokens / pairs


def parameters(run: ReportRun) -> float | None:
    """Return the number of parameters, with tied ones counted once. For a translation model, they are counted by
    building it. For other models, the number is in the scores or, until there are any, comes from the model's file."""
    if not run.translates:
        return number_of(run.scores, "parameters") or RunFolder(run.folder).num_parameters()
    cost = _cost(run)
    return None if cost is None else cost[0]


def flops_per_token(run: ReportRun) -> float | None:
    """Return the floating-point operations of a training step, forward and backward, per target token
    (`repose.model.describe`). They are counted on sentences of the corpus's mean target length, and doubled for R-Drop,
    which makes two passes."""
    cost, passes = _cost(run), 2 if run.experiment.training.r_drop else 1
    return None if cost is None else passes * cost[1]


def training_flops(run: ReportRun) -> float | None:
    """Return the operations of the whole training: operations per target token, times the target tokens trained on."""
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
    """Count parameters and operations, once per architecture, because it takes a second or two for a large one."""
    from repose.model.describe import describe

    length = min(length, a.max_length)
    found = describe(a, src_vocab_size=src_vocab_size, tgt_vocab_size=tgt_vocab_size, length=length)
    return found.total, found.training_flops


def _clock(record: Mapping[str, Any]) -> float | None:
    return number_of(record.get("wall"), "seconds")


def _last(records: Any, name: str) -> float | None:
    return number_of(records[-1], name) if records else None


def number_of(mapping: Any, name: str) -> float | None:
    """Return the number under a name in a record or another mapping; None if there is none."""
    value = mapping.get(name) if isinstance(mapping, Mapping) else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def times(factor: float, value: float | None) -> float | None:
    """Convert a figure to another unit; None stays None."""
    return None if value is None else factor * value
