"""The tasks that can be trained, by name. Each is a module of that name with a `TASK`, imported when needed."""

from importlib import import_module
from typing import TYPE_CHECKING

from repose.config.experiment import TASK_SETTINGS
from repose.decoding.load import is_export
from repose.saved_model.directory import UNNAMED_TASK, read_config, task_of
from repose.system.errors import CheckpointError, ConfigError, unknown

if TYPE_CHECKING:
    from pathlib import Path

    from repose.tasks.base import Task


def get_task(name: str) -> "Task":
    """Return the task with this name (`training.task`). Raises ConfigError if there is none."""
    if name not in TASK_SETTINGS:
        raise ConfigError(unknown("task", name, list(TASK_SETTINGS)))
    task: Task = import_module(f"repose.tasks.{name}").TASK
    return task


def task_of_model(folder: "Path") -> "Task":
    """Return the task of the model in a model or run directory, or in an export to ONNX (always translation). Raises
    CheckpointError, also for an unknown task."""
    if is_export(folder):
        return get_task(UNNAMED_TASK)
    try:
        return get_task(task_of(read_config(folder)))
    except ConfigError as error:
        raise CheckpointError(f"{folder} holds a model that cannot be used: {error}") from error
