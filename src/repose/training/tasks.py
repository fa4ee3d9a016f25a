"""The tasks that can be trained, by name: the one place that chooses among them."""

from collections.abc import Mapping

from repose.config import TaskName
from repose.training.language_modelling import LanguageModelling
from repose.training.parsing import Parsing
from repose.training.task import Task
from repose.training.translation import Translation

TASKS: Mapping[TaskName, Task] = {
    "translation": Translation(),
    "language_modelling": LanguageModelling(),
    "parsing": Parsing(),
}
