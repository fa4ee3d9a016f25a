"""The benchmarks are scripts, which find each other in their own folders."""

import sys
from pathlib import Path

_BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
sys.path += [str(_BENCHMARKS), str(_BENCHMARKS / "peers")]
