"""Options of a search, and the decoding settings of a model directory."""

from dataclasses import dataclass, fields
from typing import Any

from pydantic import ValidationError

from repose.config.experiment import LENGTH_PENALTY, MAX_BEAM_SIZE, MAX_LENGTH_PENALTY, DecodingConfig
from repose.system.errors import ConfigError
from repose.system.numbers import is_real, is_whole

DEFAULTS = DecodingConfig()
SETTINGS = tuple(f.name for f in fields(DecodingConfig))
"""Settings of `Translator` that a model directory has under `decoding`."""


@dataclass(frozen=True)
class SearchOptions:
    """Options of one search. Numbers become Python numbers; a value out of range raises ConfigError."""

    beam_size: int
    """Hypotheses that stay live at each step; 1: greedy search."""
    length_penalty: float = LENGTH_PENALTY
    """Alpha of GNMT's length penalty (Wu et al. 2016, eq. 14); 0: none."""
    num_hypotheses: int = 1
    """Number of hypotheses to return for each sentence, at most `beam_size`."""
    no_repeat_ngram_size: int = 0
    """No n-gram of this many tokens occurs twice in a hypothesis (Paulus et al. 2017); 0: repeats are allowed."""

    def __post_init__(self) -> None:
        numbers = {
            "length_penalty": _checked_length_penalty(self.length_penalty),
            "no_repeat_ngram_size": _whole_number("no_repeat_ngram_size", self.no_repeat_ngram_size),
            "beam_size": _whole_number("beam_size", self.beam_size),
            "num_hypotheses": _whole_number("num_hypotheses", self.num_hypotheses),
        }
        for name, number in numbers.items():
            object.__setattr__(self, name, number)
        checked_settings(no_repeat_ngram_size=self.no_repeat_ngram_size)
        if not 1 <= self.beam_size <= MAX_BEAM_SIZE:
            raise ConfigError(f"beam_size is {self.beam_size}, but must be from 1 (greedy search) to {MAX_BEAM_SIZE:,}")
        if not 1 <= self.num_hypotheses <= self.beam_size:
            raise ConfigError(
                f"num_hypotheses is {self.num_hypotheses}, but must be between 1 and beam_size ({self.beam_size}): "
                "ask for fewer hypotheses or for a wider beam (in a shell, --beam-size)"
            )

    def penalty(self, length: int) -> float:
        """Return GNMT's ((5 + |y|) / 6)^alpha (Wu et al. 2016, eq. 14); `length` |y| is in tokens and counts END."""
        return ((5.0 + length) / 6.0) ** self.length_penalty


def checked_settings(**settings: Any) -> DecodingConfig:
    """Return decoding settings, with defaults for the others. Raises ConfigError for an invalid value."""
    wrong = [name for name, value in settings.items() if not (value is None or is_real(value))]  # not the text "4"
    if not wrong:
        try:
            return DecodingConfig(**settings)
        except ValidationError as error:
            wrong = [str(error.errors(include_url=False)[0]["loc"][0])]
    raise ConfigError(
        f"{wrong[0]} of decoding cannot be {settings[wrong[0]]!r}: {getattr(DEFAULTS, wrong[0])} is usual"
    )


def _whole_number(name: str, value: Any) -> int:
    if not is_whole(value):
        raise ConfigError(f"{name} is {value!r}, but must be a whole number")
    return int(value)


def _checked_length_penalty(value: Any) -> float:
    if not (is_real(value) and 0 <= value <= MAX_LENGTH_PENALTY):
        raise ConfigError(
            f"the length penalty's alpha is {value!r}, but must be from 0 (none) to {MAX_LENGTH_PENALTY:g}"
        )
    return float(value)
