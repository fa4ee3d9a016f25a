"""`PYTHONPATH=tools python -m phrasebook`: rewrites the file of pairs that ships with `repose`."""

import lzma
from pathlib import Path

from phrasebook.corpus import as_tsv, splits

SHIPPED = Path(__file__).parents[2] / "src" / "repose" / "data" / "phrasebook.tsv.xz"

if __name__ == "__main__":
    SHIPPED.write_bytes(lzma.compress(as_tsv(splits()).encode()))
