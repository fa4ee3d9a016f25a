"""What a finished model is measured by, by task: the one place that chooses."""

from collections.abc import Mapping

from repose.tasks.scorer import Scorer
from repose.tasks.text_scores import TextScores
from repose.tasks.translation_scores import TranslationScores
from repose.tasks.tree_scores import TreeScores

SCORERS: Mapping[str, Scorer] = {
    "translation": TranslationScores(),
    "language_modelling": TextScores(),
    "parsing": TreeScores(),
}
