"""`victims` is imported by its name."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from victims import run, victim, whole  # noqa: F401
