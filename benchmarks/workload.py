"""Make the data that all contestants share: token ids and batches in one folder. Reading it needs only numpy.

    python benchmarks/workload.py                                  # from the embedded phrasebook
    python benchmarks/workload.py --train train.de.gz train.en.gz  # from two aligned files, or one that holds pairs

    workload.json   src_vocab_size, tgt_vocab_size, corpus, pairs, src_tokens, tgt_tokens (labels, END included)
    pairs.npz       int32: src, src_offsets, tgt, tgt_offsets: ids [START … END], one sentence after the other;
                    random64, random64_offsets, tokens1600, tokens1600_offsets: the pairs of each batch of an epoch
    decode.npz      int32: src, src_offsets: 1,000 sources to translate
    prepared/       the same pairs in the format that `repose` trains on

The vocabularies have the sizes that fit the paper's parameter counts, 7,765 and 7,010. If a text yields fewer tokens,
the last ids are unused. The folder is in repose's cache and is made once for each corpus.
"""

import argparse
import hashlib
import json
import shutil
import sys
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from repose._version import __version__
from repose.data import corpora
from repose.data.batching import Batches
from repose.data.dataset import PairDataset
from repose.data.pairs import Pair
from repose.data.prepare import LengthLimits, TextEncoder, prepare
from repose.data.readers import PairReader
from repose.data.tokenizer import Tokenizer
from repose.system.token_ids import END, START

sys.path.append(str(Path(__file__).parents[1] / "tools"))
from phrasebook.corpus import generate

SRC_VOCAB_SIZE, TGT_VOCAB_SIZE = 7_765, 7_010
MAX_TOKENS = 128
"""Largest number of tokens of a source, START and END included, and of a target's labels: the paper's limit."""
PAPER_PAIRS = 51_785
"""Number of training pairs in the paper's pt→en corpus (arXiv 2410.04731, section 3.1)."""
POLICIES = {"random64": ("sentences", 64), "tokens1600": ("tokens", 1600)}
"""Names of the lists of batches, each with its arguments for `repose.data.batching.Batches`; the seed is 0."""
NUM_DECODED = 1000
_FORMAT = 1
_PHRASEBOOK = "phrasebook"


class RandomIds:
    """A tokenizer for text that already consists of token ids, such as "17 4 300"."""

    def __init__(self, vocab_size: int) -> None:
        self.vocab_size = vocab_size

    def encode_batch(self, texts: Sequence[str]) -> list[list[int]]:
        """Return [START … END] for each text."""
        return [[START, *map(int, text.split()), END] for text in texts]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that choose a corpus to a benchmark's command line."""
    group = parser.add_mutually_exclusive_group()
    group.add_argument("--corpus", default=_PHRASEBOOK, help="phrasebook, or one that `repose fetch` knows")
    group.add_argument("--train", type=Path, nargs="+", metavar="FILE", help="two aligned files, or one that has pairs")
    parser.add_argument("--corpus-name", help="what records shall call the files (default: the name of their folder)")


def from_arguments(args: argparse.Namespace) -> Path:
    """Return the workload's folder for these options."""
    if args.train is not None:
        return make(args.train, args.corpus_name)
    if args.corpus == _PHRASEBOOK:
        return make_phrasebook()
    folder = corpora.locate(args.corpus)
    languages = corpora.describe(args.corpus).pairs[0]
    return make([folder / f"train.{language}" for language in languages], args.corpus)


def facts(folder: Path) -> dict[str, Any]:
    """Return the content of workload.json."""
    return json.loads((folder / "workload.json").read_text(encoding="utf-8"))


def make(files: Sequence[Path], name: str | None = None) -> Path:
    """Return the workload of a corpus in one file or two aligned ones, under this name."""
    name = name or files[0].resolve().parent.name
    return _cached(_digest(files), name, lambda folder: _prepare_text(PairReader(files), folder))


def make_phrasebook(pairs: int = 20_000) -> Path:
    """Return the workload of this many phrasebook pairs."""
    key = f"{_PHRASEBOOK} {__version__} {pairs}"
    return _cached(key, _PHRASEBOOK, lambda folder: _prepare_text(generate(pairs), folder))


def make_paper_epoch(files: Sequence[Path], pairs: int = PAPER_PAIRS) -> Path:
    """Return a workload of random ids, with the size of the paper's pt→en corpus and sentence lengths of these files.

    `files` are sources and targets in turn, such as valid.pt valid.en test.pt test.en. Pairs of lengths are drawn with
    replacement from all of them, tokenised by tokenizers trained on them, and cut to `MAX_TOKENS`.
    """
    name = f"random ids, lengths of {files[0].resolve().parent.name}"

    def prepare_random(folder: Path) -> None:
        texts = [pair for i in range(0, len(files), 2) for pair in PairReader(files[i : i + 2])]
        src_tokenizer, tgt_tokenizer = _tokenizers(texts)
        src = src_tokenizer.encode_batch([text for text, _ in texts])
        tgt = tgt_tokenizer.encode_batch([text for _, text in texts])
        lengths = np.array([(len(s), len(t)) for s, t in zip(src, tgt, strict=True)])
        rng = np.random.default_rng(0)
        drawn = np.minimum(lengths, [MAX_TOKENS, MAX_TOKENS + 1])[rng.integers(len(lengths), size=pairs)]
        sizes = (SRC_VOCAB_SIZE, TGT_VOCAB_SIZE)

        def sentence(length: int, vocab_size: int) -> str:
            return " ".join(map(str, rng.integers(END + 1, vocab_size, size=length - 2)))

        made = [(sentence(s, sizes[0]), sentence(t, sizes[1])) for s, t in drawn]
        _prepare(made, (RandomIds(sizes[0]), RandomIds(sizes[1])), folder)

    return _cached(f"{_digest(files)} {pairs} random pairs", name, prepare_random)


def _tokenizers(pairs: Sequence[Pair]) -> tuple[Tokenizer, Tokenizer]:
    """Train a tokenizer for each side, as in the paper's recipe (`reinforced-paper.toml`)."""

    def trained(side: int, vocab_size: int) -> Tokenizer:
        lines = [pair[side] for pair in pairs]
        return Tokenizer.train(lines, kind="wordpiece", vocab_size=vocab_size, lowercase=True, strip_accents=True)

    return trained(0, SRC_VOCAB_SIZE), trained(1, TGT_VOCAB_SIZE)


def _prepare_text(pairs: Iterable[Pair], folder: Path) -> None:
    pairs = list(pairs)
    _prepare(pairs, _tokenizers(pairs), folder)


def _prepare(pairs: Sequence[Pair], encoders: tuple[TextEncoder, TextEncoder], folder: Path) -> None:
    prepare(pairs, encoders, folder / "prepared", LengthLimits(MAX_TOKENS, MAX_TOKENS, "truncate"), workers=1)


def _cached(key: str, name: str, prepare_pairs: Callable[[Path], None]) -> Path:
    """Return the folder of this key. If it is missing, `prepare_pairs` fills its `prepared`, and `_write` the rest."""
    digest = hashlib.sha256(f"{_FORMAT} {key} {name}".encode()).hexdigest()[:16]
    folder = corpora.cache_home() / "benchmarks" / digest
    if not (folder / "workload.json").exists():
        print(f"making the workload of {name}", file=sys.stderr)
        shutil.rmtree(folder, ignore_errors=True)  # an earlier run may have been stopped
        folder.mkdir(parents=True)
        prepare_pairs(folder)
        _write(folder, name, PairDataset.open(folder / "prepared"))
    return folder


def _write(folder: Path, name: str, data: PairDataset) -> None:
    pairs = len(data)
    sides = {side: _ids(data, side) for side in ("src", "tgt")}
    arrays = {side: ids for side, (ids, _) in sides.items()}
    arrays |= {f"{side}_offsets": offsets for side, (_, offsets) in sides.items()}
    for policy, (kind, size) in POLICIES.items():
        batches = Batches(data.src_lengths, data.tgt_lengths, kind, size, 0)  # type: ignore[arg-type]
        arrays[policy], arrays[f"{policy}_offsets"] = joined(list(batches.epoch(0)))
    np.savez(folder / "pairs.npz", **arrays)
    chosen = np.resize(np.random.default_rng(0).permutation(pairs), NUM_DECODED)
    ids, offsets = sides["src"]
    src, src_offsets = joined([ids[offsets[i] : offsets[i + 1]] for i in chosen])
    np.savez(folder / "decode.npz", src=src, src_offsets=src_offsets)
    content = {
        "src_vocab_size": SRC_VOCAB_SIZE,
        "tgt_vocab_size": TGT_VOCAB_SIZE,
        "corpus": name,
        "pairs": pairs,
        "src_tokens": data.counts.src_tokens,
        "tgt_tokens": data.counts.tgt_tokens,
    }
    (folder / "workload.json").write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")  # last: now complete


def _ids(data: PairDataset, side: str) -> tuple[np.ndarray, np.ndarray]:
    """Return all ids of a side, and where each sentence begins (pairs + 1), int32."""
    return data.columns.values[side].astype(np.int32), data.columns.offsets[side].astype(np.int32)


def joined(rows: Sequence[np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows one after the other, and where each begins (rows + 1), int32."""
    offsets = np.cumsum([0, *map(len, rows)])
    return np.concatenate(rows).astype(np.int32), offsets.astype(np.int32)


def _digest(files: Iterable[Path]) -> str:
    return " ".join(hashlib.sha256(path.read_bytes()).hexdigest() for path in files)


def main() -> None:
    """Command-line entry point: make a workload and print its folder."""
    parser = argparse.ArgumentParser(description="The data of the benchmarks.")
    add_arguments(parser)
    folder = from_arguments(parser.parse_args())
    for fact, value in facts(folder).items():
        print(f"{fact}: {value}", file=sys.stderr)
    print(folder)


if __name__ == "__main__":
    main()
