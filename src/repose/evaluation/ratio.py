"""Figures that are a ratio of two sums over the units of a test set.

Examples are correctly attached words over words, sentence by sentence, and bits over tokens, document by document. As
with BLEU, a resample of the units is scored from the sums alone.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from repose.system.errors import DataError
from repose.system.files import replacing_file

FORMAT = 1


@dataclass(frozen=True)
class RatioStatistics:
    """The numbers behind a figure, unit by unit: it is `scale` times the sum of `amounts` over the sum of `sizes`."""

    figure: str
    """Name of the figure among a task's figures, such as "las"."""
    units: str
    """What a unit is: "sentences", "documents"."""
    amounts: NDArray[np.float64]
    """(N,): for instance, the correctly attached words of each sentence."""
    sizes: NDArray[np.float64]
    """(N,): for instance, the words of each sentence."""
    scale: float = 1.0
    """100 for a figure in percent."""

    def __len__(self) -> int:
        """Number of units."""
        return len(self.sizes)

    @property
    def columns(self) -> NDArray[np.float64]:
        """(N, 2): `amounts` and `sizes`, to be summed over units."""
        return np.stack([self.amounts, self.sizes], axis=1)

    def scores_of(self, sums: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the figure, (R,), for sums of `columns`, (R, 2)."""
        return self.scale * sums[:, 0] / sums[:, 1]

    @property
    def value(self) -> float:
        """The figure for the whole test set."""
        return float(self.scores_of(self.columns.sum(axis=0, keepdims=True))[0])


def write_ratio(path: Path, statistics: RatioStatistics) -> None:
    """Write the numbers, compressed and without text; equal numbers give equal bytes. Raises WriteError."""
    names = {"figure": statistics.figure, "units": statistics.units}
    numbers = {"format": FORMAT, "scale": statistics.scale, "amounts": statistics.amounts, "sizes": statistics.sizes}
    # Any, because savez has other keywords, too. Old numpy would store `allow_pickle` as one more array.
    arrays: dict[str, Any] = {name: np.array(value) for name, value in (names | numbers).items()}
    with replacing_file(path) as temporary, temporary.open("wb") as file:
        np.savez_compressed(file, **arrays)


def read_ratio(path: Path) -> RatioStatistics:
    """Read what `write_ratio` wrote. Raises DataError if the file is missing or damaged."""
    again = "evaluate the run again"
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:  # np.load(path) would leave it open
            arrays = {name: archive[name] for name in archive.files}
        if (version := int(arrays["format"])) != FORMAT:
            raise DataError(f"{path.name} has format {version}, this version reads {FORMAT}: {again}")
        amounts, sizes = (arrays[name].astype(np.float64) for name in ("amounts", "sizes"))
        statistics = RatioStatistics(
            str(arrays["figure"]), str(arrays["units"]), amounts, sizes, float(arrays["scale"])
        )
    except DataError:
        raise
    except FileNotFoundError as error:
        raise DataError(f"there is no {path.name}: {again}") from error
    except Exception as error:  # a damaged archive raises various exceptions, including zlib's and numpy's own
        raise DataError(f"{path.name} is damaged: {again}") from error
    if amounts.ndim != 1 or amounts.shape != sizes.shape or not sizes.sum() > 0:
        raise DataError(f"{path.name} is damaged: {again}")
    return statistics
