"""Measure what characters that are rare in training do to translations, with and without `src_normalization`.

The test sentences are translated as they are; with accents as separate characters; with no-break spaces; with soft
hyphens in words; and with typographic apostrophes, quotes and dashes.

    python benchmarks/unusual_characters.py runs/mine test.de test.en --out results/unusual-characters.json
"""

import re
import unicodedata
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from records import command_line, read, write
from repose.data.readers import PairReader
from repose.decoding.load import load
from repose.decoding.translator import MODEL_KIND, Translator
from repose.evaluation.metrics import chrf
from repose.saved_model import directory

TYPOGRAPHIC = str.maketrans({"'": "\u2019", '"': "\u201c", "-": "\u2011"})
WRITTEN: dict[str, Callable[[str], str]] = {
    "as it is": str,
    "accents as separate characters": lambda text: unicodedata.normalize("NFD", text),
    "a no-break space for each third space": lambda text: re.sub("( [^ ]+ [^ ]+) ", "\\1\u00a0", text),
    "a soft hyphen in each word of eight letters and more": lambda text: re.sub(
        r"(\w{4})(\w{4,})", "\\1\u00ad\\2", text
    ),
    "typographic apostrophes, quotes and hyphens": lambda text: text.translate(TYPOGRAPHIC),
}


def without(translator: Translator) -> Translator:
    """Return the model without normalisation of its input text."""
    config = {name: value for name, value in translator.config.items() if name != "src_normalization"}
    assert translator.folder is not None
    tokenizers = directory.load_without_weights(translator.folder, MODEL_KIND)[0]
    return Translator(translator.engine, *tokenizers, config=config)


def main() -> None:
    """Command-line entry point: measure, print and write the record."""
    parser = command_line(__doc__)
    parser.add_argument("model", type=Path)
    parser.add_argument("files", type=Path, nargs=2, metavar="FILE", help="test sources and references")
    parser.add_argument("--about", default="", help="what the corpus is")
    args = parser.parse_args()
    sources, references = map(list, zip(*PairReader(args.files), strict=True))
    model = load(args.model)
    sides = {"with": model, "without": without(model)}
    found: dict[str, Any] = {}
    for name, rewrite in WRITTEN.items():
        texts = [rewrite(source) for source in sources]
        changed = sum(one != other for one, other in zip(texts, sources, strict=True))
        scores = {
            side: asdict(chrf([t.text for t in translator.translate(texts, beam_size=1)], references))
            for side, translator in sides.items()
        }
        found[name] = {"sentences": len(texts), "changed": changed, "chrf_greedy": scores}
        print(
            f"{name}: {changed} changed; " + ", ".join(f"{s} {x['value']:.2f}" for s, x in scores.items()), flush=True
        )
    result = {"run_id": model.config.get("run_id"), "texts": found}
    write(args.out, read(args.out) | {args.about or args.model.name: result})


if __name__ == "__main__":
    main()
