"""`stub_server` is imported by its name. Without the extra `serve` there is nothing to test here."""

import sys
from importlib.util import find_spec
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

if not all(map(find_spec, ("starlette", "uvicorn", "prometheus_client", "python_multipart", "httpx"))):
    collect_ignore_glob = ["test_*.py"]
