"""What measuring language models and parsers has in common: one file, or a set of the run's own corpus, as ids."""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from repose.runs.folder import RunFolder
from repose.saved_model import task_directory as task_model_dir
from repose.saved_model.task_directory import TaskModel
from repose.system.errors import DataError
from repose.tasks.corpus_data import prepare_corpus


def measure(
    folder: Path,
    files: Sequence[Path] | None,
    *,
    split: str,
    device: str,
    what: str,
    prepare: Callable[[Path, TaskModel, Path], None],
    score: Callable[[TaskModel, Path], dict[str, Any]],
) -> dict[str, Any]:
    """`score` of the model in `folder` on the ids of a file, which `prepare` writes, or of the corpus's `split`.

    `what`: a model and the file it reads, such as "a parser is measured on one CoNLL-U file". Raises DataError for
    several files.
    """
    if files and len(files) > 1:
        raise DataError(f"{what}, not on {len(files)}: name one")
    loaded = task_model_dir.load(folder, device)
    if not files:
        return score(loaded, prepare_corpus(RunFolder(folder).config().experiment).ids(split))
    with tempfile.TemporaryDirectory() as scratch:
        prepare(files[0], loaded, Path(scratch))
        return score(loaded, Path(scratch))
