"""Translation models measured: BLEU and chrF of free-running decoding, the teacher-forced figures beside them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from repose.config.experiment import Experiment
from repose.data.readers import read_pairs
from repose.data.tokenizer import Tokenizer
from repose.decoding.translator import Translator, load
from repose.evaluation.metrics import bleu
from repose.model.transformer import Transformer
from repose.runs.folder import RunFolder
from repose.system.device import one_thread
from repose.tasks.corpus_data import CorpusData, is_pretokenized, languages_of, prepare_corpus
from repose.tasks.evaluate import evaluate, over_validations, teacher_forced, write
from repose.tasks.scorer import Card, Decoding
from repose.training.job import TrainingJob


class TranslationScores:
    """`Scorer` of translation."""

    def card(self, experiment: Experiment) -> Card:
        """Named by its languages."""
        src_lang, tgt_lang = languages_of(experiment.corpus)
        use = "echo 'A sentence.' | repose translate THIS_FOLDER"
        return Card(f"{src_lang} → {tgt_lang}", "A translation model", use)

    def model_extra(self, experiment: Experiment) -> Mapping[str, object]:
        """Languages and how to search."""
        src_lang, tgt_lang = languages_of(experiment.corpus)
        names = ("beam_size", "length_penalty", "max_extra_tokens", "batch_size")
        decoding = {name: getattr(experiment.decoding, name) for name in names}
        return {"src_lang": src_lang, "tgt_lang": tgt_lang, "decoding": decoding}

    def of_run(self, experiment: Experiment, data: CorpusData, folder: Path, device: str) -> None:
        """Greedy and with the experiment's beam; hypotheses beside the scores."""
        split = data.measured
        translator = load(folder, device)
        with translator, one_thread():
            evaluation = evaluate(
                translator,
                *data.text(split),
                beam_sizes=(1, experiment.decoding.beam_size),
                pretokenized=is_pretokenized(experiment.corpus),
            )
        about = _about(translator, split)
        means = over_validations(folder / "metrics.jsonl", experiment.training.bleu_mean_over)
        if means:
            num_sentences = len(data.text("valid")[0][: experiment.training.bleu_sentences])
            about["over_validations"] = {"num_sentences": num_sentences, **means}
        write(evaluation, folder, split, about)

    def of_model(
        self,
        folder: Path,
        files: Sequence[Path] | None,
        *,
        split: str,
        out: Path | None,
        device: str,
        decoding: Decoding,
    ) -> dict[str, Any]:
        """On two aligned files, or on a set of the run's own corpus."""
        translator = load(folder, device, decoding.workers, decoding.precision)
        if files:
            pairs = list(read_pairs(files))
            src, references = [a for a, _ in pairs], [b for _, b in pairs]
            pretokenized = False
        else:
            experiment = RunFolder(folder).config().experiment
            src, references = prepare_corpus(experiment).text(split)
            pretokenized = is_pretokenized(experiment.corpus)
        with translator, one_thread():
            evaluation = evaluate(
                translator,
                src,
                references,
                beam_sizes=decoding.beam_sizes,
                pretokenized=pretokenized,
                tokenize=decoding.tokenize,
            )
        about = _about(translator, split)
        if out is not None:
            write(evaluation, out, split, about)
        return about | evaluation.to_json()


def _about(translator: Translator, split: str) -> dict[str, Any]:
    """What is shown with every score: which run, on what, decoded how."""
    decoding: dict[str, Any] = {
        "length_penalty": translator.length_penalty,
        "max_extra_tokens": translator.max_extra_tokens,
    }
    if translator.precision != "fp32":
        decoding["precision"] = translator.precision
    return {
        "run_id": translator.config.get("run_id"),
        "split": split,
        "looks_ahead": translator.model.architecture.looks_ahead,
        "decoding": decoding,
    }


@dataclass(frozen=True)
class ValidationBleu:
    """BLEU of (the first sentences of) the validation set, for the training loop: `bleu` of greedy translations, and
    beside it the `tf_bleu*` that `teacher_forced` explains."""

    data: CorpusData

    def __call__(self, model: Transformer, job: TrainingJob) -> dict[str, float]:
        src, references = (side[: job.training.bleu_sentences] for side in self.data.text("valid"))
        training = model.training
        translator = Translator(
            model,
            Tokenizer.load(job.src_tokenizer),
            Tokenizer.load(job.tgt_tokenizer),
            max_extra_tokens=job.decoding.max_extra_tokens,
            batch_size=job.decoding.batch_size,
            workers=1,  # the others wait, and have the cores
        )
        try:
            hypotheses = [t.text for t in translator.translate(src, beam_size=1)]
            forced = teacher_forced(translator, src, references)
        finally:
            model.train(training)
        score = bleu(hypotheses, references, lowercase=translator.tgt_tokenizer.lowercase)
        return {"bleu": score.value} | {name: value for name, value in forced.items() if name.startswith("tf_bleu")}
