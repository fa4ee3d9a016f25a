"""Count the steps and rows of a beam search that stops exactly: it continues while a hypothesis could still win.

The sentences are from the phrasebook's test set, each decoded by itself. The model can be `make demo`'s, for example. A
row is one hypothesis in one step.

    python benchmarks/beam_steps.py runs/demo --out results/speed/beam-steps.json
"""

from pathlib import Path
from typing import Any

import numpy as np

import repose
from records import command_line, record, table, write
from repose.data import phrasebook
from repose.decoding.options import SearchOptions
from repose.decoding.search import beam_search
from repose.saved_model.directory import locate, read_config

BEAM_SIZE = 4


def counted(translator: repose.Translator, text: str) -> dict[str, int]:
    """Return the counts of one sentence.

    They are the tokens of the best hypothesis, END included; the steps; the rows; and the rows of the steps after this
    hypothesis had ended.
    """
    engine, source = translator.engine, translator.src_tokenizer.encode(text)
    limit = min(len(source) + translator.max_extra_tokens, translator.max_length)
    rows: list[int] = []

    def step(tokens: Any, state: Any) -> Any:
        rows.append(len(tokens))
        return engine.step(tokens, state)

    options = SearchOptions(BEAM_SIZE, translator.length_penalty)
    best = beam_search(step, engine.start([source]), [limit], options)[0][0]
    tokens = len(best.tokens) + best.finished
    return {"tokens": tokens, "steps": len(rows), "rows": sum(rows), "rows after its END": sum(rows[tokens:])}


def main() -> None:
    """Command-line entry point: count, print means and write the record."""
    parser = command_line(__doc__)
    parser.add_argument("run", type=Path, help="run or model directory, from Portuguese to English")
    parser.add_argument("--sentences", type=int, default=200, help="of the phrasebook's test set, the first ones")
    args = parser.parse_args()
    texts = [source for source, _ in phrasebook.read()["test"][: args.sentences]]
    with repose.load(args.run, engine="onnx") as translator:
        found = [counted(translator, text) for text in texts]
        settings = {"beam_size": BEAM_SIZE, "length_penalty": translator.length_penalty}
        settings["max_extra_tokens"] = translator.max_extra_tokens
    means = {name: float(np.mean([each[name] for each in found])) for name in found[0]}
    print(table(["mean of a sentence", ""], [[name, f"{value:.1f}"] for name, value in means.items()]))
    content = record(
        "steps and rows of a beam search, means over sentences",
        model=read_config(locate(args.run)).get("run_id"),
        corpus="phrasebook, test",
        sentences=len(texts),
        settings=settings,
        means=means,
    )
    write(args.out, content)


if __name__ == "__main__":
    main()
