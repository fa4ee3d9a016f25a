"""Compute the table of docs/enhanced.md from the runs in results/enhanced-small: means and deviations over seeds.

    python benchmarks/enhanced_table.py results/enhanced-small

It prints the tables in Markdown and writes `summary.json` next to the runs. A run is a folder PAIR/SYSTEM-sSEED with
the files config.json, metrics.jsonl and scores.test.json that `repose train` writes.
"""

import argparse
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

SYSTEMS = {
    "original": "original (= Post-LN)",
    "full-norm": "full layer normalization",
    "weighted-residual": "weighted residual connection, k = 4",
    "policy-positions": "positions learned by SAC",
    "zero-diagonal": "zero masked self-attention",
    "enhanced": "enhanced: these four",
    "pre-ln": "Pre-LN",
    "realformer": "RealFormer",
    "tupe-a": "TUPE-A",
    "original-sqrt": "original, embeddings × √d",
    "full-norm-sqrt": "full layer normalization, embeddings × √d",
    "original-xavier": "original, Xavier initial values",
}
LAST_EPOCHS = 3


def run(folder: Path) -> dict[str, float]:
    """Return the figures of one run."""
    scores = json.loads((folder / "scores.test.json").read_text(encoding="utf-8"))
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    records = [json.loads(line) for line in (folder / "metrics.jsonl").read_text(encoding="utf-8").splitlines()]
    valid = [record for record in records if record["kind"] == "valid"]
    last = [record["bleu"] for record in valid[-LAST_EPOCHS:]]
    return {
        "learning_rate": config["experiment"]["training"]["learning_rate"],
        "updates": records[-1]["update"],
        "valid_tf_loss": valid[-1]["tf_loss"],
        "valid_bleu": valid[-1]["bleu"],
        "bleu_sd_last_epochs": statistics.stdev(last),
        "bleu_greedy": scores["decoded"]["greedy"]["bleu"]["value"],
        "bleu_beam4": scores["decoded"]["beam4"]["bleu"]["value"],
        "chrf_beam4": scores["decoded"]["beam4"]["chrf"]["value"],
        **scores["teacher_forced"],
    }


def summary(pair: Path) -> dict[str, Any]:
    """Return, for each system, the mean and deviation over seeds of every figure, and the number of runs."""
    found: dict[str, Any] = {}
    for system in SYSTEMS:
        runs = [run(folder) for folder in sorted(pair.glob(f"{system}-s[0-9]"))]
        if runs:
            found[system] = {"n": len(runs), **{name: _spread([r[name] for r in runs]) for name in runs[0]}}
    return found


def _spread(values: Sequence[float]) -> dict[str, float | None]:
    deviation = statistics.stdev(values) if len(values) > 1 else None
    return {"mean": statistics.fmean(values), "sd": deviation}


def _shown(spread: dict[str, float | None], digits: int = 1) -> str:
    mean, deviation = spread["mean"], spread["sd"]
    return f"{mean:.{digits}f}" + ("" if deviation is None else f" ± {deviation:.{digits}f}")


def markdown(found: dict[str, Any]) -> str:
    """Return a Markdown table with one row per system."""
    lines = [
        "| system | rate | n | valid loss | BLEU greedy | BLEU beam 4 | chrF beam 4 | tf BLEU | tf BLEU, sentence mean "
        "| tf accuracy | sd over the last epochs |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for system, f in found.items():
        cells = [SYSTEMS[system], f"{f['learning_rate']['mean']:g}", str(f["n"]), _shown(f["valid_tf_loss"], 2)]
        cells += [_shown(f[name]) for name in ("bleu_greedy", "bleu_beam4", "chrf_beam4", "tf_bleu")]
        cells += [_shown(f["tf_bleu_sentence_mean"]), f"{f['tf_accuracy']['mean']:.1%}"]
        cells += [f"{f['bleu_sd_last_epochs']['mean']:.1f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def main() -> None:
    """Command-line entry point: print the tables and write the summary."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    found = {pair.name: summary(pair) for pair in sorted(folder.iterdir()) if pair.is_dir()}
    for pair, systems in found.items():
        print(f"\n{pair}\n\n{markdown(systems)}")
    (folder / "summary.json").write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
