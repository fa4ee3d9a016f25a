"""Train, compare and explain small encoder-decoder Transformers for translation.

    import repose

    model = repose.build("reinforced", src_vocab_size=7765, tgt_vocab_size=7010)
    repose.train(["corpus.pt", "corpus.en"], out="runs/mine")
    translator = repose.load("runs/mine")
    translator.translate(["Um homem lê o jornal."])[0].text

Importing `repose` does not load torch; using one of the names below does.
"""

import importlib
from typing import TYPE_CHECKING, Any

from repose._version import __version__

if TYPE_CHECKING:
    from repose.config.experiment import Experiment
    from repose.data.tokenizer import Tokenizer
    from repose.decoding.engine import Engine, Forced
    from repose.decoding.load import load
    from repose.decoding.sampling import Sampling
    from repose.decoding.translator import Hypothesis, Translation, Translator
    from repose.documents.job import translate_text
    from repose.evaluation.significance import Difference, SeedInterval
    from repose.exporting.base import Exported
    from repose.exporting.targets import export
    from repose.model.architecture import Architecture
    from repose.model.audit import AuditReport, audit
    from repose.model.transformer import Transformer
    from repose.report.compare import Comparison, compare
    from repose.runs.api import evaluate, train
    from repose.runs.run import RunResult
    from repose.saved_model.api import build, presets
    from repose.saved_run.records import RunStatus
    from repose.system.errors import (
        BusyError,
        CheckpointError,
        ConfigError,
        DataError,
        DeviceError,
        HubError,
        MissingExtraError,
        ReposeError,
        WriteError,
    )
    from repose.training.job import Outcome

__all__ = [
    "Architecture",
    "AuditReport",
    "BusyError",
    "CheckpointError",
    "Comparison",
    "ConfigError",
    "DataError",
    "DeviceError",
    "Difference",
    "Engine",
    "Experiment",
    "Exported",
    "Forced",
    "HubError",
    "Hypothesis",
    "MissingExtraError",
    "Outcome",
    "ReposeError",
    "RunResult",
    "RunStatus",
    "Sampling",
    "SeedInterval",
    "Tokenizer",
    "Transformer",
    "Translation",
    "Translator",
    "WriteError",
    "__version__",
    "audit",
    "build",
    "compare",
    "evaluate",
    "export",
    "load",
    "presets",
    "train",
    "translate_text",
]

_HOMES = {
    "Architecture": "repose.model.architecture",
    "AuditReport": "repose.model.audit",
    "BusyError": "repose.system.errors",
    "CheckpointError": "repose.system.errors",
    "Comparison": "repose.report.compare",
    "ConfigError": "repose.system.errors",
    "DataError": "repose.system.errors",
    "DeviceError": "repose.system.errors",
    "Difference": "repose.evaluation.significance",
    "Engine": "repose.decoding.engine",
    "Experiment": "repose.config.experiment",
    "Exported": "repose.exporting.base",
    "Forced": "repose.decoding.engine",
    "HubError": "repose.system.errors",
    "Hypothesis": "repose.decoding.translator",
    "MissingExtraError": "repose.system.errors",
    "Outcome": "repose.training.job",
    "ReposeError": "repose.system.errors",
    "RunResult": "repose.runs.run",
    "RunStatus": "repose.saved_run.records",
    "Sampling": "repose.decoding.sampling",
    "SeedInterval": "repose.evaluation.significance",
    "Tokenizer": "repose.data.tokenizer",
    "Transformer": "repose.model.transformer",
    "Translation": "repose.decoding.translator",
    "Translator": "repose.decoding.translator",
    "WriteError": "repose.system.errors",
    "audit": "repose.model.audit",
    "build": "repose.saved_model.api",
    "compare": "repose.report.compare",
    "evaluate": "repose.runs.api",
    "export": "repose.exporting.targets",
    "load": "repose.decoding.load",
    "presets": "repose.saved_model.api",
    "train": "repose.runs.api",
    "translate_text": "repose.documents.job",
}


if not TYPE_CHECKING:  # so that type checkers reject names that are not imported above

    def __getattr__(name: str) -> Any:
        if name not in _HOMES:
            raise AttributeError(f"module 'repose' has no attribute {name!r}")
        from repose.system.errors import naming_extras

        with naming_extras():
            return getattr(importlib.import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
