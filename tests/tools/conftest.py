"""The tools are packages of their own, which are not installed."""

import sys
from pathlib import Path

TOOLS = Path(__file__).parents[2] / "tools"
sys.path.append(str(TOOLS))
