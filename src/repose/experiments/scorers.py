"""What a finished model is measured by, by task: the one place that chooses."""

from collections.abc import Mapping

from repose.experiments.scorer import Scorer
from repose.experiments.text_scores import TextScores
from repose.experiments.translation_scores import TranslationScores
from repose.experiments.tree_scores import TreeScores

SCORERS: Mapping[str, Scorer] = {
    "translation": TranslationScores(),
    "language_modelling": TextScores(),
    "parsing": TreeScores(),
}
