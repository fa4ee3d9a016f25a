"""The embedded corpus: Portuguese-English sentence pairs that show what a translation model must learn.

They were drawn from an authored grammar (`tools/phrasebook` in the repository), in which each Portuguese sentence has
one translation: agreement, tense and person, word order, negation, questions, object pronouns, possessives,
contractions, relative clauses. Many come with a second sentence of the same words in another order and another meaning
("O gato viu o cachorro.", "O cachorro viu o gato."), so that a bag of words does not suffice. Validation and test
sentences combine words in ways that no training sentence does, one in twelve lexical combinations (a verb and its
object, a noun and its adjective ...), and hold no word that training does not.
"""

import hashlib
import lzma
from importlib import resources
from itertools import islice

from repose.data.pairs import Pair

SIZES = {"train": 20_000, "valid": 500, "test": 500}


def digest() -> str:
    """SHA-256 of the file that is shipped, which may change with the package."""
    return hashlib.sha256(_packed()).hexdigest()


def _packed() -> bytes:
    return resources.files("repose.data").joinpath("phrasebook.tsv.xz").read_bytes()


def read() -> dict[str, list[Pair]]:
    """The pairs of each split; no two share a sentence on either side."""
    packed = _packed()
    lines = iter(lzma.decompress(packed).decode("utf-8").split("\n"))
    pairs = ((pt, en) for pt, _, en in (line.partition("\t") for line in lines))
    return {split: list(islice(pairs, size)) for split, size in SIZES.items()}
