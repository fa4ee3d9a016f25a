"""What the loop knows of a prepared set of any task: how many examples there are, and how long each is."""

from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


class Examples(Protocol):
    """Sentence pairs, blocks of a text, or trees, by index."""

    @property
    def tgt_lengths(self) -> NDArray[np.integer[Any]]:
        """(N,): how many of what the loss is a sum over, target tokens or words, each example has."""

    @property
    def src_lengths(self) -> NDArray[np.integer[Any]]:
        """(N,): tokens that are read of each."""

    def __len__(self) -> int:
        """Number of examples."""
