"""Scores of a trained model: free-running BLEU and chrF with signatures, the teacher-forced figures beside them."""

import json
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repose.data.tokenizer import END, PAD, START, UNK, Tokenizer
from repose.decoding.translator import Translator
from repose.evaluation.metrics import Score, bleu, bleu_sentence_mean, corpus_scores
from repose.system.errors import DataError
from repose.tasks.scorer import write_scores


@dataclass(frozen=True)
class Decoded:
    """One free-running decoding of a test set."""

    beam_size: int
    scores: dict[str, Score]
    hypotheses: list[str]
    unfinished: int
    """Hypotheses that reached the length limit before END."""


@dataclass(frozen=True)
class Evaluation:
    """All figures of one model on one test set."""

    num_sentences: int
    truncated_sources: int
    """Sources that were cut at the model's max_length."""
    decoded: list[Decoded]
    teacher_forced: dict[str, float]
    """As `teacher_forced` gives them: what the papers' tables may show. Not translation quality."""

    def to_json(self) -> dict[str, Any]:
        """The figures, without the hypotheses."""
        return {
            "num_sentences": self.num_sentences,
            "truncated_sources": self.truncated_sources,
            "decoded": {
                name_of(d.beam_size): {
                    "unfinished": d.unfinished,
                    **{name: {"value": s.value, "signature": s.signature} for name, s in d.scores.items()},
                }
                for d in self.decoded
            },
            "teacher_forced": self.teacher_forced,
        }


def name_of(beam_size: int) -> str:
    """How a decoding is called in files and tables."""
    return "greedy" if beam_size == 1 else f"beam{beam_size}"


def evaluate(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[str],
    *,
    beam_sizes: Sequence[int],
    pretokenized: bool = False,
    tokenize: str = "13a",
) -> Evaluation:
    """Translates `sources` once for each beam size and scores against `references`, raw text.

    Raises DataError where the counts differ or there is nothing to score.
    """
    if len(sources) != len(references):
        raise DataError(f"there are {len(sources)} sources and {len(references)} references: give one reference each")
    decoded, truncated = [], 0
    for beam_size in dict.fromkeys(beam_sizes):
        translations = translator.translate(sources, beam_size=beam_size)
        hypotheses = [t.text for t in translations]
        truncated = sum(t.truncated for t in translations)
        scores = _scores(translator, hypotheses, references, pretokenized=pretokenized, tokenize=tokenize)
        unfinished = sum(not t.hypotheses[0].finished for t in translations if t.hypotheses)
        decoded.append(Decoded(beam_size, scores, hypotheses, unfinished))
    return Evaluation(len(sources), truncated, decoded, teacher_forced(translator, sources, references))


def _scores(
    translator: Translator, hypotheses: list[str], references: Sequence[str], *, pretokenized: bool, tokenize: str
) -> dict[str, Score]:
    tokenizer = translator.tgt_tokenizer
    return corpus_scores(
        hypotheses,
        references,
        lowercase=tokenizer.lowercase,
        pretokenized=pretokenized,
        round_trip=None if tokenizer.lossless else tokenizer.round_trip,
        strip_accents=tokenizer.strip_accents,
        tokenize=tokenize,
    )


def teacher_forced(translator: Translator, sources: Sequence[str], references: Sequence[str]) -> dict[str, float]:
    """Figures of the most probable token at each place, given the reference's own earlier tokens.

    `tf_loss` (nats per target token), `tf_accuracy` (0 to 1), `tf_bleu` (corpus BLEU against the raw references, in
    percent) and `tf_bleu_sentence_mean`: that of the words that encoding and decoding leave, [UNK] dropped from both
    sides. The last is what hyunwoongko/transformer's `evaluate` prints, presumably the Enhanced paper's BLEU
    (arXiv 2310.10930, Table 1).
    Differs from the code: no predictions after the reference's END; the mean is over sentences, not over batches.
    """
    tokenizer, limit = translator.tgt_tokenizer, translator.model.architecture.max_length
    targets = [ids[: limit + 1] for ids in tokenizer.encode_batch(list(references))]
    forced = translator.force(sources, targets)
    num_tokens = sum(len(f.predictions) for f in forced)
    loss = -sum(f.log_probs.double().sum().item() for f in forced) / num_tokens
    right = sum(
        p == t for f, ids in zip(forced, targets, strict=True) for p, t in zip(f.predictions, ids[1:], strict=True)
    )
    texts = [tokenizer.decode([p for p in f.predictions if p not in (PAD, START, END)]) for f in forced]
    known = [[_known(tokenizer, ids) for ids in side] for side in ([f.predictions for f in forced], targets)]
    return {
        "tf_loss": loss,
        "tf_accuracy": right / num_tokens,
        "tf_bleu": bleu(texts, references, lowercase=tokenizer.lowercase).value,
        "tf_bleu_sentence_mean": bleu_sentence_mean(*known).value,
    }


def _known(tokenizer: Tokenizer, ids: Sequence[int]) -> str:
    return tokenizer.decode([i for i in ids if i not in (PAD, UNK, START, END)])


def over_validations(metrics: Path, number: int) -> dict[str, Any]:
    """Mean and standard deviation (n - 1; none of a single one) of BLEU over the last `number` translations.

    `metrics` is a run's metrics.jsonl. Empty where the validation set was never translated during training.
    """
    records = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    last = [record for record in records if record["kind"] == "valid" and "bleu" in record][-number:]
    if not last:
        return {}
    series = {name: [record[name] for record in last] for name in last[0] if "bleu" in name}
    return {
        "num_validations": len(last),
        "first_epoch": last[0]["epoch"],
        "last_epoch": last[-1]["epoch"],
        **{
            name: {"mean": statistics.fmean(values), "sd": statistics.stdev(values) if len(values) > 1 else None}
            for name, values in series.items()
        },
    }


def write(evaluation: Evaluation, folder: Path, split: str, about: dict[str, Any]) -> None:
    """Puts the translations in `hypotheses/`, and at last the figures in `scores.<split>.json`."""
    (folder / "hypotheses").mkdir(parents=True, exist_ok=True)
    for decoded in evaluation.decoded:
        path = folder / "hypotheses" / f"{split}.{name_of(decoded.beam_size)}.txt"
        path.write_text("".join(line.replace("\n", " ") + "\n" for line in decoded.hypotheses), encoding="utf-8")
    write_scores(about | evaluation.to_json(), folder, split)
