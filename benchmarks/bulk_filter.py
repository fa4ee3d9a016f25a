"""Measure how much noise `repose score-corpus` finds in a corpus when it keeps 95 % of the good pairs.

To clean pairs that neither model has seen, as many noisy pairs are added, a quarter of each kind: the target of another
pair; the source copied; the first half of the target's words; a sentence of a third language as the target.

    python benchmarks/bulk_filter.py FORWARD BACKWARD SRC TGT OTHER --name NAME --out results/bulk/filter.json

OTHER has sentences of the third language. The output file collects the results of several NAMEs.
"""

import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from records import command_line, machine, read, write
from repose.data.lines import LineReader

KEPT = 0.95
KINDS = ("another pair's target", "source copied", "half a target", "another language")
WAYS: dict[str, tuple[bool, tuple[str, ...]]] = {
    "both models and checks": (True, ()),
    "both models": (True, ("--no-checks",)),
    "one model and checks": (False, ()),
    "one model": (False, ("--no-checks",)),
}
SEED = 5


def lines_of(path: Path) -> list[str]:
    return [line or "" for line in LineReader(path, 1 << 20)]


def noisy(src: list[str], tgt: list[str], other: list[str]) -> list[tuple[str, str, str]]:
    """Return clean and noisy pairs in random order, each with its kind."""
    rng = random.Random(SEED)
    pairs = [(a, b, "clean") for a, b in zip(src, tgt, strict=True)]
    for kind in KINDS:
        for place in rng.sample(range(len(src)), len(src) // len(KINDS)):
            a, b = src[place], tgt[place]
            if kind == KINDS[0]:
                b = tgt[(place + rng.randrange(1, len(tgt))) % len(tgt)]
            elif kind == KINDS[1]:
                b = a
            elif kind == KINDS[2]:
                words = b.split()
                b = " ".join(words[: max(1, len(words) // 2)])
            else:
                b = rng.choice(other)
            pairs.append((a, b, kind))
    rng.shuffle(pairs)
    return pairs


def found(scores: "np.ndarray[Any, Any]", kinds: "np.ndarray[Any, Any]") -> dict[str, Any]:
    clean = scores[kinds == "clean"]
    threshold = float(np.quantile(clean, 1 - KEPT))
    noise = kinds != "clean"
    below = scores < threshold if threshold > 0 else scores <= 0
    return {
        "threshold": round(threshold, 6),
        "clean_kept": round(1 - float(below[~noise].mean()), 4),
        "clean_of_score_0": round(float((clean == 0).mean()), 4),
        "noise_found": round(float(below[noise].mean()), 4),
        "noise_found_by_kind": {kind: round(float(below[kinds == kind].mean()), 4) for kind in KINDS},
    }


def main() -> None:
    parser = command_line(__doc__)
    for name in ("forward", "backward", "src", "tgt", "other"):
        parser.add_argument(name, type=Path)
    parser.add_argument("--name", required=True)
    parser.add_argument("--what", default="", help="Said of the corpus and the models in the file.")
    given = parser.parse_args()
    pairs = noisy(lines_of(given.src), lines_of(given.tgt), lines_of(given.other))
    kinds = np.array([kind for _, _, kind in pairs])
    ways = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for side in (0, 1):
            (folder / f"pairs.{side}").write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")
        for number, (way, (both, options)) in enumerate(WAYS.items()):
            command = [sys.executable, "-m", "repose", "score-corpus", str(given.forward)]
            command += [str(folder / "pairs.0"), str(folder / "pairs.1"), "--out", str(folder / str(number)), *options]
            command += ["--backward", str(given.backward)] if both else []
            subprocess.run([*command, "--workers", "1"], check=True, stdout=subprocess.DEVNULL)
            rows = (folder / str(number) / "scores.tsv").read_text(encoding="utf-8").splitlines()
            ways[way] = found(np.array([float(row.split("\t")[0]) for row in rows]), kinds)
    content = read(given.out) or {"machine": machine(), "corpora": {}}
    content["corpora"][given.name] = {
        "what": given.what,
        "pairs": {kind: int((kinds == kind).sum()) for kind in ("clean", *KINDS)},
        "seed": SEED,
        "ways": ways,
    }
    write(given.out, content)
    print(json.dumps(content["corpora"][given.name], indent=2))


if __name__ == "__main__":
    main()
