"""What values the settings in `repose.config.experiment` take, apart from those that the architecture's share."""

from typing import Annotated, Any

from pydantic import BeforeValidator, Field, ValidationInfo

from repose.system.errors import ConfigError

MAX_BEAM_SIZE = 1000
"""Rows of a decoding grow with it: a wider beam is a slip of the keyboard or an attempt to exhaust memory."""
MAX_LENGTH_PENALTY = 10.0
"""Of GNMT's alpha, which is below 1 where it is of any use; far above 10 it overflows a float."""
AtLeastZero = Annotated[int, Field(ge=0)]
VocabSize = Annotated[int, Field(ge=5)]  # four reserved tokens and something to say
Share = Annotated[float, Field(ge=0.0, le=1.0)]
NotNegative = Annotated[float, Field(ge=0.0)]
Files = Annotated[tuple[str, ...], Field(max_length=2)]


def _pairs_or_share(value: Any, info: ValidationInfo) -> int | float:
    """Refuses in one sentence what is neither; pydantic alone would complain once for each."""
    number = int(value) if isinstance(value, float) and value.is_integer() else value
    least = 0 if info.field_name == "held_out_test" else 1  # there is always something to validate on
    if (isinstance(number, int) and number >= least) or (isinstance(number, float) and 0.0 < number < 1.0):
        return number
    raise ConfigError(f"corpus.{info.field_name} should be a number of pairs (500) or a share (0.05), not {value!r}")


PairsOrShare = Annotated[int | float, BeforeValidator(_pairs_or_share)]
"""Sentence pairs: so many, or, below 1, this share of all."""
