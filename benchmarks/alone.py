"""Compare two exports of one model: time to translate a single sentence, and how often both give the same text.

Both translate each sentence in turn, in one process with one thread. Reported are the median time of each, and the
median over sentences of the ratio of their times. With references, both are also scored. The second export may be a
later commit's, or one in int8:

    repose export RUN --to onnx --out before       # in a checkout of the one commit, then of the other into `after`
    python benchmarks/alone.py before after --source test.de --reference test.en --out alone.json
"""

import json
import statistics
import time
from pathlib import Path
from typing import Any

import repose
from records import command_line, record, table, write

WARM = 20


def compared(
    translators: list[repose.Translator], texts: list[str], beam_size: int
) -> tuple[dict[str, Any], list[Any]]:
    """Return the figures, and each export's translations."""
    seconds: list[list[float]] = [[], []]
    translations: list[list[str]] = [[], []]
    for translator in translators:
        for text in texts[:WARM]:
            translator.translate([text], beam_size=beam_size)
    for number, text in enumerate(texts):
        for which in (0, 1) if number % 2 else (1, 0):
            began = time.perf_counter()
            (found,) = translators[which].translate([text], beam_size=beam_size)
            seconds[which].append(time.perf_counter() - began)
            translations[which].append(found.text)
    before, after = (1000 * statistics.median(each) for each in seconds)
    ratio = statistics.median(a / b for a, b in zip(*seconds, strict=True))
    same = sum(a == b for a, b in zip(*translations, strict=True))
    return {"first_ms": before, "second_ms": after, "ratio": ratio, "same_text": same}, translations


def main() -> None:
    """Command-line entry point."""
    parser = command_line(__doc__)
    parser.add_argument("exports", type=Path, nargs=2)
    parser.add_argument("--source", type=Path, required=True, help="one sentence a line")
    parser.add_argument("--reference", type=Path, help="score both against these")
    parser.add_argument("--sentences", type=int, default=300, help="the first ones")
    parser.add_argument("--beam-size", type=int, nargs="+", default=[1, 4])
    parser.add_argument("--note", default="", help="what the two are, for the record")
    options = parser.parse_args()
    texts = options.source.read_text(encoding="utf-8").splitlines()[: options.sentences]
    translators = [repose.load(path, engine="onnx", workers=1) for path in options.exports]
    results: dict[str, Any] = {}
    for beam_size in options.beam_size:
        found, translations = compared(translators, texts, beam_size)
        if options.reference:
            import sacrebleu

            references = options.reference.read_text(encoding="utf-8").splitlines()[: options.sentences]
            scores = [sacrebleu.corpus_bleu(each, [references]).score for each in translations]
            found |= dict(zip(("first_bleu", "second_bleu"), scores, strict=True))
        results[f"beam {beam_size}"] = found
    headings = ["", *next(iter(results.values()))]
    print(table(headings, [[name, *(f"{value:,.2f}" for value in each.values())] for name, each in results.items()]))
    content = record(
        "a lone sentence with two exports of one model",
        note=options.note,
        model=json.loads((options.exports[0] / "repose-onnx.json").read_text())["run_id"],
        sentences=len(texts),
        results=results,
    )
    write(options.out, content)


if __name__ == "__main__":
    main()
