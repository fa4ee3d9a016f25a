"""The tasks that can be trained, by name: the one place that chooses among them."""

from collections.abc import Mapping

from repose.config.experiment import TaskName
from repose.tasks.base import Task
from repose.tasks.language_modelling import LanguageModelling
from repose.tasks.parsing import Parsing
from repose.tasks.translation import Translation

TASKS: Mapping[TaskName, Task] = {
    "translation": Translation(),
    "language_modelling": LanguageModelling(),
    "parsing": Parsing(),
}
