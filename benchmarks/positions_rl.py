"""Score every kind of position table in the environment of learned positions: both rewards, both orientations.

arXiv 2310.10930 says that its learned encoding is "6.57 times better than the original positional encoding in the
simulation environment score". It does not say in which size the original was taken, nor whether "16 x 8" is positions x
numbers or the other way round. So each reading is computed. Needs the extra `rl`. Learning the twelve policies takes
about a minute each on one core; policies that are already in the folder are read from there.

    python benchmarks/positions_rl.py --tables tables --out results/positions/scores.json
"""

import sys
from pathlib import Path
from typing import Any

import numpy as np

from records import command_line, record, table, write
from repose.positions_rl import rewards
from repose.positions_rl.policy import Settings, learn, sac_settings
from repose.positions_rl.rewards import REWARDS, best_literal, literal, pairs
from repose.positions_rl.table import DECIMALS, PositionTable, default_table

SHAPES = ((8, 16), (16, 8))
"""Positions x numbers."""
FACTOR = 32
"""Factor by which the paper scales both sides down."""
CLAIMED = 6.57


def name_of(shape: tuple[int, int]) -> str:
    """Return the name of a shape, such as 8x16."""
    return f"{shape[0]}x{shape[1]}"


def unit_rows(rows: np.ndarray) -> np.ndarray:
    """Return the rows scaled to length 1. A row of zeros stays as it is, because it has no direction."""
    norms = np.linalg.norm(rows, axis=-1, keepdims=True)
    return rows / np.where(norms > 0, norms, 1.0)


def shape_figures(rows: np.ndarray) -> dict[str, float]:
    """Return how similar near and far positions are. Euclidean distances are between the rows as they are."""
    first, second, distance = pairs(len(rows))
    cosine = (unit_rows(rows) @ unit_rows(rows).T)[first, second]
    apart = np.linalg.norm(rows[first] - rows[second], axis=1)
    return {
        "cosine_of_neighbours": float(cosine[distance == 1].mean()),
        "rank_correlation_of_cosine_and_distance": rank_correlation(cosine, distance),
        "nearest_two_rows": float(apart.min()),
        "mean_step": float(apart[distance == 1].mean()),
        "column_sd_over_positions": float(rows.std(axis=0).mean()),
    }


def rank_correlation(a: np.ndarray, b: np.ndarray) -> float:
    """Return Spearman's correlation: of ranks, where equal values share a rank; 0 if all are equal (after rounding)."""

    def ranks(values: np.ndarray) -> np.ndarray:
        _, inverse, counts = np.unique(values.round(9), return_inverse=True, return_counts=True)
        return (np.cumsum(counts) - (counts - 1) / 2)[inverse]

    x, y = ranks(a), ranks(b)
    return float(np.corrcoef(x, y)[0, 1]) if x.std() > 0 and y.std() > 0 else 0.0


def measured(tables: list[np.ndarray]) -> dict[str, Any]:
    """Return mean, standard deviation (n - 1) and values of every figure over these tables."""
    rows = [{**{name: float(of(t)) for name, of in REWARDS.items()}, **shape_figures(t)} for t in tables]
    return {key: spread([row[key] for row in rows]) for key in rows[0]}


def spread(values: list[float]) -> dict[str, Any]:
    """Return mean and standard deviation, and the values themselves if they are few."""
    rounded = [round(value, DECIMALS) + 0.0 for value in values]
    found: dict[str, Any] = {"mean": round(float(np.mean(values)), DECIMALS) + 0.0}
    if len(values) > 1:
        found["sd"] = round(float(np.std(values, ddof=1)), DECIMALS)
    return {**found, "values": rounded} if 1 < len(values) <= 10 else found


def contestants(shape: tuple[int, int], learned: dict[str, list[PositionTable]], seeds: int) -> dict[str, Any]:
    """Return the tables of each kind."""
    n, d = shape
    full = rewards.sinusoid(FACTOR * n, FACTOR * d)
    random = np.random.default_rng(0).uniform(-1.0, 1.0, (rewards.NUM_RANDOM_TABLES, n, d))
    return {
        "random": list(random),
        "all positions equal": [np.ones(shape)],
        "sinusoid": [rewards.sinusoid(n, d)],
        "sinusoid, means of 32 x 32": [full.reshape(n, FACTOR, d, FACTOR).mean(axis=(1, 3))],
        "sinusoid, every 32nd": [full[::FACTOR, ::FACTOR]],
        **{f"SAC, {reward}": [found.values for found in tables] for reward, tables in learned.items()},
        **{f"ascent, {reward}": [rewards.oracle(shape, reward, s) for s in range(seeds)] for reward in REWARDS},
    }


def ratios(shape: tuple[int, int], figures: dict[str, Any]) -> dict[str, float]:
    """Return readings of "times better" under eq. (7): SAC's mean and the best possible table, over each sinusoid."""
    n, d = shape
    full = rewards.sinusoid(FACTOR * n, FACTOR * d)
    best = best_literal(n, d)
    found = {}
    for original in ("sinusoid", "sinusoid, means of 32 x 32", "sinusoid, every 32nd"):
        score = figures[original]["literal"]["mean"]
        found[f"SAC / {original}"] = figures["SAC, literal"]["literal"]["mean"] / score
        found[f"best / {original}"] = best / score
    cosine = literal(unit_rows(rewards.sinusoid(n, d)))
    found["best / sinusoid, full size"] = best_literal(FACTOR * n, FACTOR * d) / float(literal(full))
    found["best / sinusoid, cosines instead of products"] = best_literal(n, 1) / float(cosine)
    found["SAC / best"] = figures["SAC, literal"]["literal"]["mean"] / best
    return {name: round(value, 4) for name, value in found.items()}


def gap_closed(figures: dict[str, Any]) -> list[float]:
    """Return, for each seed of SAC, the share of the gap between random tables and gradient ascent that it closes.

    Computed under the reward `sound`, from the mean random table.
    """
    random, oracle = (figures[name]["sound"]["mean"] for name in ("random", "ascent, sound"))
    return [round((score - random) / (oracle - random), 4) for score in spread_values(figures["SAC, sound"]["sound"])]


def spread_values(found: dict[str, Any]) -> list[float]:
    """Return the values that `spread` summarised."""
    return found.get("values", [found["mean"]])


def show(name: str, figures: dict[str, Any]) -> None:
    """Print the figures of one orientation."""
    rows = []
    for kind, found in figures.items():
        cells = [f"{found[reward]['mean']:.4f} ± {found[reward].get('sd', 0):.4f}" for reward in REWARDS]
        rows.append([kind, *cells, f"{found['cosine_of_neighbours']['mean']:.3f}"])
    print(table([f"{name} (positions x numbers)", *REWARDS, "cosine of neighbours"], rows), end="\n\n")


def main() -> None:
    """Command-line entry point: learn missing tables, print tables and write the record."""
    parser = command_line(__doc__)
    parser.add_argument("--tables", type=Path, required=True, help="folder of learned tables; those missing are made")
    parser.add_argument("--seeds", type=int, default=3)
    args = parser.parse_args()
    shapes: dict[str, Any] = {}
    versions: dict[str, str] = {}
    for shape in SHAPES:
        learned: dict[str, list[PositionTable]] = {}
        for reward in REWARDS:
            for seed in range(args.seeds):
                file = args.tables / f"{reward}-{name_of(shape)}-seed{seed}.json"
                settings = Settings(reward=reward, shape=shape, seed=seed)
                found = learn(settings, file, file.with_suffix(".work"), lambda line: print(line, file=sys.stderr))
                learned.setdefault(reward, []).append(found)
                versions = dict(found.provenance["versions"])
        figures = {kind: measured(list(rows)) for kind, rows in contestants(shape, learned, args.seeds).items()}
        show(name_of(shape), figures)
        shapes[name_of(shape)] = {
            "tables": figures,
            "times_better": ratios(shape, figures),
            "gap_closed_by_sac": gap_closed(figures),
            "sac": sac_settings(shape),
        }
        print("\n".join(f"{name}: {value:.2f}" for name, value in ratios(shape, figures).items()), end="\n\n")
    shipped = default_table()
    content = record(
        "positions_rl",
        versions=versions,
        settings={"seeds": args.seeds, "random_tables": rewards.NUM_RANDOM_TABLES, "steps": Settings().steps},
        paper_says_times_better=CLAIMED,
        shipped={"digest": shipped.digest, "shape": list(shipped.values.shape), "sound": shipped.score},
        shapes=shapes,
    )
    write(args.out, content)


if __name__ == "__main__":
    main()
