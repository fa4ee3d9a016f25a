"""Warnings of a training that goes wrong or is about to, naming the settings to change."""

import math

from repose.config.experiment import TrainingConfig
from repose.model.architecture import Architecture
from repose.saved_run.records import LITTLE_GAIN, EndReason, hardly_reads
from repose.system.terminal import counted

FEW_EPOCHS = 10
"""With fewer epochs than this, R-Drop gave worse models than training without it for the same time
(docs/little-data-experiments.md)."""


def divergence(what: str, c: TrainingConfig, *, update: int, has_model: bool) -> str:
    """Return the error for a loss or gradient (`what`) that is not finite. `has_model`: an earlier validation saved a
    model."""
    clip = "set training.clip_norm" if c.clip_norm is None else f"lower training.clip_norm ({c.clip_norm:g})"
    precision = ", or set training.precision = 'fp32'" if c.precision == "bf16" else ""
    warmup = "warmup_updates" if c.warmup_share is None else "warmup_share"
    fallback = "; the model of earlier validations is kept" if has_model else ""
    return (
        f"the {what} is no longer a finite number after update {update}: lower training.learning_rate "
        f"({c.learning_rate:g}), raise training.{warmup} ({getattr(c, warmup)}), or {clip}{precision}{fallback}"
    )


def ends_in_warmup(c: TrainingConfig, *, total: int | None, end: float, warmup: int) -> str | None:
    """Warn if the time limit ends the training, after about `end` updates, during warm-up; None otherwise.

    Also None if a number of updates (`total`) limits a linear schedule, which is then shortened, or if it ends the
    training so early that the warning was given at the start.
    """
    is_shortened = c.schedule == "linear" and total is not None
    if c.max_hours is None or is_shortened or not math.isfinite(end):
        return None
    if c.warmup_warning(total) is not None or not 0 < end <= warmup / 2:
        return None
    about = max(1, round(end))
    return (
        f"the time limit ends the training after about {about:,} of the {warmup:,} updates over which its learning "
        f"rate rises, so it learns little: try --set training.warmup_updates={max(1, about // 10)}, or give it more "
        "time"
    )


def leaves_few_epochs(c: TrainingConfig, *, epochs: float, planned: float) -> str | None:
    """Warn if the time limit ends the training after few `epochs`; None otherwise. `planned`: those after which another
    limit ends it; infinite without one.

    Without R-Drop, it warns only if that is less than half of what is planned.
    """
    if not 0 < epochs < min(FEW_EPOCHS, planned):
        return None
    if c.r_drop:
        about = counted(max(1, round(epochs)), "epoch")
        return (
            f"the time limit ends the training after about {about}: a model usually learns more in this time without "
            "R-Drop, with which an update takes up to twice as long (try --set training.r_drop=0, or give it more time)"
        )
    if not math.isfinite(planned) or epochs >= planned / 2:
        return None
    number, of = (f"{n:.2g}" if n < 2 else f"{n:,.0f}" for n in (epochs, planned))
    return (
        f"the time limit ends the training after about {number} of {of} epoch{'s' * (of != '1')}: give it more time "
        "for a better model"
    )


def ignores_source(
    gain: float | None, a: Architecture, c: TrainingConfig, *, in_warmup: bool, ended: EndReason | None
) -> str | None:
    """Warn if the model ignores its source, as a language model of the target does; None if it reads the source, or if
    no `source_gain` was measured. `in_warmup`: the learning rate still rises. `ended`: why the training has ended, if
    so.
    """
    if gain is None or gain >= LITTLE_GAIN:
        return None
    settings = [] if ended is EndReason.PATIENCE else ["train longer"]
    if a.norm == "post" and a.initialisation in ("xavier", "fairseq"):  # docs/transformer-tiny.md
        settings += ["set architecture.initialisation = 'keras' or architecture.norm = 'pre'"]
    rate = "" if in_warmup else f"a learning rate below {c.learning_rate:g} or "
    settings.append(f"try {rate}fewer tokens per update")
    return f"{hardly_reads(gain)}: {', '.join(settings)}, or add pairs"
