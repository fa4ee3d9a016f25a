"""Find the length beyond which a sentence is better translated in parts: chrF and BLEU for each limit in tokens.

Limits are percentiles of the lengths of training sources. There are two kinds of sentences: validation sentences that
are longer than nine in ten training sentences, and two to four consecutive sentences joined by commas, which contain no
sentence end.

    python benchmarks/splitting.py runs/mine train.de valid.de valid.en --about "Multi30k" --out results/splitting.json
"""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from records import command_line, read, write
from repose.data.lines import LineReader
from repose.data.readers import PairReader
from repose.decoding.load import load
from repose.decoding.parts import translate_texts
from repose.decoding.translator import Translator
from repose.evaluation.metrics import bleu, chrf

PERCENTILES = (50, 80, 90, 95, 98, 99, 99.5, 100)
JOINED = (2, 3, 4)
LONG = 90
"""Percentile beyond which natural sentences are used."""
MOST_BYTES = 1 << 16


def joined(texts: Sequence[str], number: int) -> list[str]:
    """Join each group of this many sentences, as clauses of one sentence."""
    groups = (texts[start : start + number] for start in range(0, len(texts) - number + 1, number))
    return [", ".join(text.rstrip(".。 ") for text in group) + "." for group in groups]


def kinds(sources: list[str], references: list[str], long: np.ndarray) -> Iterator[tuple[str, list[str], list[str]]]:
    """Yield each kind of sentences: name, sources, references."""
    yield "longer than nine in ten", *([side[i] for i in np.flatnonzero(long)] for side in (sources, references))  # type: ignore[misc]
    for number in JOINED:
        yield f"{number} joined", joined(sources, number), joined(references, number)


def measure(model: Translator, limit: int, sources: list[str], references: list[str]) -> dict[str, Any]:
    """Return the scores of sentences that are split beyond a limit."""
    model.config["split_src_tokens"] = limit
    hypotheses = [t.text for t, _ in translate_texts(model, sources)]
    words = [sum(len(text.split()) for text in side) for side in (hypotheses, references)]
    return {
        "limit": limit,
        "chrf": chrf(hypotheses, references).value,
        "bleu": bleu(hypotheses, references).value,
        "length_ratio": words[0] / words[1],
    }


def main() -> None:
    """Command-line entry point: measure, print and write the record."""
    parser = command_line(__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("train", type=Path, help="training sources")
    parser.add_argument("files", type=Path, nargs=2, metavar="FILE", help="validation sources and references")
    parser.add_argument("--about", default="", help="what the corpus is")
    args = parser.parse_args()
    model = load(args.model)
    encode, longest = model.src_tokenizer.encode_batch, model.config["max_src_tokens"]
    train = [line for line in LineReader(args.train, MOST_BYTES) if line]
    lengths = np.minimum([len(ids) for ids in encode(train)], longest)
    limits = {str(p): int(np.percentile(lengths, p)) for p in PERCENTILES}
    sources, references = map(list, zip(*PairReader(args.files), strict=True))
    long = np.array([len(ids) for ids in encode(sources)]) > limits[str(LONG)]
    found: dict[str, Any] = {}
    for name, texts, wanted in kinds(sources, references, long):
        scores = {p: measure(model, limit, texts, wanted) for p, limit in limits.items()}
        found[name] = {"sentences": len(texts), "by_percentile": scores}
        shown = ", ".join(f"{p} % {s['chrf']:.1f}/{s['bleu']:.1f}" for p, s in scores.items())
        print(f"{name}, {len(texts)}: {shown}", flush=True)
    result = {"run_id": model.config.get("run_id"), "texts": found}
    write(args.out, read(args.out) | {args.about or args.model.name: result})


if __name__ == "__main__":
    main()
