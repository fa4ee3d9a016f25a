"""The tests find `record.py` in their own folder."""

import sys
from pathlib import Path

sys.path.append(str(Path(__file__).parent))
