"""Compare rules that choose a beam's length penalty on few sentences, by cross-validation on runs' validation sets.

    python benchmarks/penalty_choice.py RUN RUN ... --out FILE

Each run's validation set is translated with greedy search and with the beam of each penalty that is tried after a
training. Then some of its sentences, drawn at random, choose a penalty by each rule, and the others score it: BLEU, the
mean over so many draws. `highest` takes the penalty of the highest BLEU; `beyond chance` is what repose does
(`repose.tasks.decoding_choice.best_beam`); `first` never chooses. No test set is looked at.
"""

import json
from collections.abc import Mapping
from pathlib import Path

import numpy as np

import repose
from records import command_line, record, write
from repose.evaluation.metrics import tokenizer_for
from repose.evaluation.sentence_statistics import References, SentenceStatistics, scores_of
from repose.saved_run.folder import RunFolder
from repose.tasks.corpus_of_run import text_of_run
from repose.tasks.decoding_choice import FIRST_PENALTY, LENGTH_PENALTIES, DecodingTrial, best_beam

GREEDY, MOST, DRAWS, RESAMPLES = 0.0, 1000, 100, 200
CHOOSING = (100, 180, 250, 500)
"""Numbers of sentences that choose. A run must have at least `REST` more."""
REST = 60


def counts(run: Path) -> dict[float, SentenceStatistics]:
    """Return the counts of the first validation sentences by penalty, with greedy search under 0."""
    sources, references = (side[:MOST] for side in text_of_run(RunFolder(run), "valid"))
    scored, found = References(references, tokenize=tokenizer_for(references)), {}
    with repose.load(run, engine="onnx", workers=1) as translator:
        for penalty in (GREEDY, *LENGTH_PENALTIES):
            how = {"beam_size": 4 if penalty else 1, "length_penalty": penalty, "no_repeat_ngram_size": 0}
            found[penalty] = scored.statistics([t.text for t in translator.translate(sources, **how)])
    return found


def cross_validated(found: Mapping[float, SentenceStatistics], number: int) -> dict[str, float]:
    """Return the BLEU of each rule, on the sentences that did not choose."""
    rng, rules = np.random.default_rng(0), {"highest": [], "beyond chance": [], "first": []}
    for _ in range(DRAWS):
        order = rng.permutation(len(found[GREEDY]))
        chosen_by, rest = order[:number], order[number:]
        draws = rng.integers(0, number, (RESAMPLES, number))
        resampled = {
            p: scores_of("bleu", np.stack([found[p].bleu[chosen_by[draw]].sum(axis=0) for draw in draws]))
            for p in LENGTH_PENALTIES
        }
        trials = [
            DecodingTrial(
                beam_size=4,
                length_penalty=p,
                bleu=found[p].score(sentences=chosen_by),
                deviation=float((resampled[p] - resampled[FIRST_PENALTY]).std()),
            )
            for p in LENGTH_PENALTIES
        ]
        choices = {
            "highest": max(trials, key=lambda trial: trial.bleu).length_penalty,
            "beyond chance": (best_beam(trials) or trials[0]).length_penalty,
            "first": FIRST_PENALTY,
        }
        greedy = found[GREEDY].score(sentences=chosen_by)
        by_penalty = {trial.length_penalty: trial.bleu for trial in trials}
        for rule, penalty in choices.items():
            taken = GREEDY if greedy >= by_penalty[penalty] else penalty
            rules[rule].append(found[taken].score(sentences=rest))
    return {rule: round(float(np.mean(values)), 2) for rule, values in rules.items()}


def main() -> None:
    """Command-line entry point: measure and write the record."""
    parser = command_line(__doc__)
    parser.add_argument("runs", type=Path, nargs="+")
    arguments = parser.parse_args()
    results = {}
    for run in arguments.runs:
        found = counts(run)
        number = len(found[GREEDY])
        whole = {("greedy" if p == GREEDY else str(p)): round(one.score(), 2) for p, one in found.items()}
        rules = {str(n): cross_validated(found, n) for n in CHOOSING if n + REST <= number}
        results[run.name] = {"validation_sentences": number, "bleu": whole, "cross_validated": rules}
        print(run.name, json.dumps(results[run.name]), flush=True)
    write(arguments.out, record("penalty_choice", about=__doc__.split("\n\n")[2], draws=DRAWS, runs=results))


if __name__ == "__main__":
    main()
