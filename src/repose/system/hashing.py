"""Pseudo-random numbers made by hashing counters: the same on every machine and with every version of numpy."""

import numpy as np
from numpy.typing import NDArray

_MULTIPLIER_1 = np.uint64(0xBF58476D1CE4E5B9)
_MULTIPLIER_2 = np.uint64(0x94D049BB133111EB)


def splitmix64(x: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The finaliser of SplitMix64 (Steele, Lea and Flood 2014).

    It is a bijection, and each input bit changes about half of the output bits.
    """
    x = (x ^ (x >> np.uint64(30))) * _MULTIPLIER_1
    x = (x ^ (x >> np.uint64(27))) * _MULTIPLIER_2
    return x ^ (x >> np.uint64(31))


def unit_interval(hashes: NDArray[np.uint64]) -> NDArray[np.float64]:
    """Turn hashes into numbers in [0, 1), using their upper 53 bits, the precision of a double."""
    numbers: NDArray[np.float64] = (hashes >> np.uint64(11)).astype(np.float64) * 2.0**-53
    return numbers
