"""Measure the quality of int8 against fp32: BLEU, chrF and equal translations, for models and test sets.

    python benchmarks/int8.py RUN [RUN ...] --test 2016 test.de test.en --test 2017 ... --out int8.json

Each model translates each set in fp32 and in int8, with the engines torch and onnx. `noise` counts sentences that
became something else: the int8 translation is far from the fp32 one (chrF below 20), although the latter is close to
the reference (chrF above 40). `moved_by_company` counts int8 translations that change when each sentence is translated
by itself.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import sacrebleu

import repose
from records import command_line, record, write
from repose.decoding.translator import Translator

NEAR, RIGHT = 20.0, 40.0
ENGINES = ("torch", "onnx")


def translations(translator: Translator, sources: Sequence[str], beam_size: int) -> list[str]:
    """Translate all sources."""
    return [t.text for t in translator.translate(sources, beam_size=beam_size)]


def measure(
    run: Path, sources: Sequence[str], references: Sequence[str], beam_sizes: Sequence[int], alone: int
) -> dict[str, object]:
    """Return the figures of one model on one set."""
    found: dict[str, object] = {}
    for beam_size in beam_sizes:
        exact: list[str] = []
        for engine in ENGINES:
            for precision in ("fp32", "int8"):
                with repose.load(run, engine=engine, precision=precision, workers=1) as translator:
                    texts = translations(translator, sources, beam_size)
                    exact = exact or texts  # the first is torch in fp32
                    apart = [translations(translator, [source], beam_size)[0] for source in sources[:alone]]
                found[f"{engine} {precision}, beam {beam_size}"] = {
                    "bleu": sacrebleu.corpus_bleu(texts, [list(references)]).score,
                    "chrf": sacrebleu.corpus_chrf(texts, [list(references)]).score,
                    "equal_to_torch_fp32": sum(a == b for a, b in zip(texts, exact, strict=True)),
                    "noise": sum(
                        sacrebleu.sentence_chrf(text, [wanted]).score < NEAR
                        and sacrebleu.sentence_chrf(wanted, [reference]).score > RIGHT
                        for text, wanted, reference in zip(texts, exact, references, strict=True)
                    ),
                    "moved_by_company": sum(a != b for a, b in zip(apart, texts, strict=False)),
                }
    return {"sentences": len(sources), "alone": min(alone, len(sources)), **found}


def main() -> None:
    """Command-line entry point: measure and write the record."""
    parser = command_line(__doc__)
    parser.add_argument("runs", type=Path, nargs="+")
    parser.add_argument("--test", nargs=3, action="append", required=True, metavar=("NAME", "SRC", "TGT"))
    parser.add_argument("--beam", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--alone", type=int, default=100, help="so many sentences are translated alone, too")
    args = parser.parse_args()
    results: dict[str, dict[str, object]] = {}
    for run in args.runs:
        for name, *paths in args.test:
            sources, references = (Path(p).read_text(encoding="utf-8").splitlines() for p in paths)
            results.setdefault(run.name, {})[name] = measure(run, sources, references, args.beam, args.alone)
            print(run.name, name, json.dumps(results[run.name][name], indent=1), flush=True)
    write(args.out, record("int8", engines=ENGINES, results=results))


if __name__ == "__main__":
    main()
