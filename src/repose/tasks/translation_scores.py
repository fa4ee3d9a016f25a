"""Evaluate translation models: BLEU and chrF of free-running decoding, and teacher-forced figures; on test sets, and on
the validation set during training."""

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from repose.config.experiment import CorpusConfig
from repose.data.input_warning import warnings_for_pairs
from repose.data.language import UNKNOWN, is_language
from repose.data.pairs import Pair
from repose.data.readers import PairReader, kind_of
from repose.data.tables import names_columns
from repose.data.tags import direction, taught
from repose.data.tokenised_text import detokeniser, form_of
from repose.data.tokenizer import Tokenizer
from repose.decoding.load import is_export, load
from repose.decoding.translator import Translator
from repose.evaluation.looping import loops
from repose.evaluation.metrics import (
    Score,
    bleu,
    bleu_metric,
    bleu_sentence_mean,
    chrf,
    corpus_scores,
    decoding_name,
)
from repose.model.transformer import Transformer
from repose.saved_run.folder import RunFolder
from repose.saved_run.records import Records
from repose.system.device import one_thread
from repose.system.errors import CheckpointError, ConfigError
from repose.system.token_ids import END, PAD, START, UNK
from repose.tasks.base import EvaluationOptions
from repose.tasks.corpus_files import fields_for, is_pretokenized
from repose.tasks.corpus_of_run import TRAINED_ON_SHARE, TrainedOn, text_of_run
from repose.tasks.prepared import CorpusData
from repose.training.display import shown
from repose.training.job import TrainingJob

_SHOWN = 3  # sample sentences of the validation set


@dataclass(frozen=True)
class EvaluationSet:
    """The sentences that a model is evaluated on."""

    sources: Sequence[str]
    references: Sequence[str]
    """Raw text, as in the corpus."""
    split: str
    """The set's name in the scores: "test", "valid"."""
    pretokenized: bool = False
    """True if the corpus is already tokenised; scores then also have BLEU without a tokenizer."""


def score_model(
    folder: Path, files: Sequence[Path] | None, split: str, out: Path | None, options: EvaluationOptions
) -> dict[str, Any]:
    """Evaluate a model on two aligned files, or on a set of its run's corpus; see `Task.score_model`."""
    exported = is_export(folder)
    if exported and not files:
        raise ConfigError("name source and reference files: an export has no set of its own")
    engine = options.engine or ("onnx" if exported else "torch")
    models = [folder, *options.ensemble]
    translator = load(models, options.device, options.workers, options.precision, engine)
    options = options.resolved(translator.config)
    about: dict[str, Any] = {}
    if files:
        measured, about = _read_files(files, split, translator, folder, options)
    else:
        _check_target(translator.config, options.to, split)
        run = RunFolder(folder)
        measured = EvaluationSet(*text_of_run(run, split), split, is_pretokenized(run.config().experiment.corpus))
        about |= trained_on(folder, measured.sources)
    return score_set(translator, measured, options, about, out)


def _check_target(config: Mapping[str, Any], to: str | None, split: str) -> None:
    """Refuse to score a run's own set in a language other than that of its references."""
    own, wanted = taught(config)[0].tgt_lang, direction(config, to)[1]
    if to is not None and UNKNOWN not in (own, wanted) and own != wanted:
        raise ConfigError(
            f"the references of the run's {split} set are in {own}, but the tag {to} asks for {wanted}: name source "
            "and reference files"
        )


def _read_files(
    files: Sequence[Path], split: str, translator: Translator, folder: Path, options: EvaluationOptions
) -> tuple[EvaluationSet, dict[str, Any]]:
    """Return the pairs of two aligned files, and fields of the scores that describe the files."""
    stored = translator.config
    own = taught(stored)[0]
    languages = (own.src_lang, own.tgt_lang) if options.to is None else direction(stored, options.to)
    if UNKNOWN in languages and kind_of(files[0]) == "tmx" and None in (options.src_field, options.tgt_field):
        raise ConfigError(
            f"the model does not know its languages: say which languages of {files[0]} to read, with --src-field and "
            "--tgt-field"
        )
    src_field, tgt_field = _fields_of(folder, options, files, languages)
    reader = PairReader(files, src_field=src_field, tgt_field=tgt_field, languages=languages)
    pairs = list(reader)
    about: dict[str, Any] = {"dropped": reader.counts.dropped} if reader.counts.dropped else {}
    if names_columns(pairs[0]):
        about["column_names"] = list(pairs[0])
    about |= trained_on(folder, [src for src, _ in pairs])
    if warnings := warnings_for_pairs(stored, pairs, options.to):
        about["input_warnings"] = [warning.to_json() for warning in warnings]
    return EvaluationSet([a for a, _ in pairs], [b for _, b in pairs], split), about


def trained_on(folder: Path, sources: Sequence[str]) -> dict[str, Any]:
    """Return the scores' field for the number of sources that a model was trained on; empty if these are few."""
    (number,) = TrainedOn.of(folder).counts(sources)
    return {"trained_on": number} if number >= max(1, TRAINED_ON_SHARE * len(sources)) else {}


def _fields_of(folder: Path, options: EvaluationOptions, files: Sequence[Path], languages: Pair) -> Pair:
    """Return the field names of both sides: as requested, or those of the run; a model directory has none."""
    try:
        corpus = RunFolder(folder).config().experiment.corpus
    except CheckpointError:
        corpus = CorpusConfig()
    if options.src_field or options.tgt_field:
        return options.src_field or corpus.src_field, options.tgt_field or corpus.tgt_field
    return fields_for(files, (corpus.src_field, corpus.tgt_field), languages)


def score_set(
    translator: Translator,
    measured: EvaluationSet,
    options: EvaluationOptions,
    about: Mapping[str, Any],
    out: Path | None,
) -> dict[str, Any]:
    """Return all figures of one model on one set, and `about`: translated once per beam size, and teacher-forced. They
    are written to the run directory `out`, with the hypotheses. Raises DataError if there is nothing to score."""
    tokenizer = translator.tgt_tokenizer
    if options.tokenize is not None:
        bleu_metric(options.tokenize)  # raises now for a bad tokenizer, not after translating
    form = form_of(measured.references)
    wanted = options.to if options.to is not None and is_language(options.to) else None
    language = wanted or str(translator.config.get("tgt_lang", UNKNOWN))
    detokenise = detokeniser(language) if form.inflates_bleu else None
    with translator, one_thread():
        decoded = {
            decoding_name(beam_size): _decode(translator, measured, beam_size, options, detokenise)
            for beam_size in dict.fromkeys(options.beam_sizes)
        }
        with shown("reading the references", options.progress, options.say) as on_progress:
            forced = teacher_forced(
                translator, measured.sources, measured.references, to=options.to, on_progress=on_progress
            )
    truncated = next((found.truncated_sources for found in decoded.values()), 0)  # the same for all decodings
    references = tokenizer.encode_batch(list(measured.references))
    too_long = sum(len(ids) - 1 > translator.max_length for ids in references)
    result = {
        "run_id": translator.config.get("run_id"),
        "split": measured.split,
        "looks_ahead": translator.engine.looks_ahead,
        "decoding": _how(translator, options.to),
        **about,
        "num_sentences": len(measured.sources),
        "truncated_sources": truncated,  # cut at the model's max_length
        **({"truncated_references": too_long} if too_long else {}),  # in teacher-forced figures
        "references": {"tokenised": form.tokenised, "entities": form.entities},  # numbers of such lines
        "decoded": {name: found.scores for name, found in decoded.items()},
        "teacher_forced": forced,
    }
    if out is not None:
        hypotheses = {name: found.hypotheses for name, found in decoded.items()}
        RunFolder(out).write_scores(measured.split, result, hypotheses)
    return result


class _Decoded(NamedTuple):
    """The result of one way of decoding."""

    hypotheses: list[str]
    scores: dict[str, Any]
    truncated_sources: int


def _decode(
    translator: Translator,
    measured: EvaluationSet,
    beam_size: int,
    options: EvaluationOptions,
    detokenise: Callable[[str], str] | None,
) -> _Decoded:
    """Translate the set with one beam size, and score the translations.

    The scores include the number of translations that reached the length limit before END, and of those that loop
    (`repose.evaluation.looping`) although their references do not.
    """
    tokenizer = translator.tgt_tokenizer
    with shown(f"translating ({decoding_name(beam_size)})", options.progress, options.say) as on_progress:
        translations = translator.translate(
            measured.sources, beam_size=beam_size, to=options.to, on_progress=on_progress
        )
    hypotheses = [t.text for t in translations]
    scores = corpus_scores(
        hypotheses,
        measured.references,
        lowercase=tokenizer.lowercase,
        pretokenized=measured.pretokenized,
        round_trip=None if tokenizer.lossless else tokenizer.round_trip,
        strip_accents=tokenizer.strip_accents,
        tokenize=options.tokenize,
        detokenise=detokenise,
    )
    pairs = zip(hypotheses, measured.references, strict=True)
    counts = {
        "unfinished": sum(not t.hypotheses[0].finished for t in translations if t.hypotheses),
        "looping": sum(loops(hypothesis) and not loops(reference) for hypothesis, reference in pairs),
    }
    figures = {score.name: _score_json(score) for score in scores.values()}
    return _Decoded(hypotheses, counts | figures, sum(t.truncated for t in translations))


def _how(translator: Translator, to: str | None) -> dict[str, Any]:
    """Return how a set was translated, besides beam sizes, without default values."""
    others = {
        "no_repeat_ngram_size": translator.no_repeat_ngram_size,
        "to": to,
        "ensemble": translator.config.get("ensemble"),
        "engine": translator.engine.name if translator.engine.name != "torch" else None,
        "precision": translator.precision if translator.precision != "fp32" else None,
    }
    usual = {name: getattr(translator, name) for name in ("length_penalty", "max_extra_tokens")}
    return usual | {name: value for name, value in others.items() if value}


def _score_json(score: Score) -> dict[str, Any]:
    penalty = {} if score.brevity_penalty is None else {"brevity_penalty": score.brevity_penalty}
    return {"value": score.value, "signature": score.signature, **penalty}


def teacher_forced(
    translator: Translator, sources: Sequence[str], references: Sequence[str], **options: Any
) -> dict[str, float]:
    """Return figures of the most probable token at each position, given the reference's earlier tokens. `options` are
    those of `Translator.force`.

    `tf_loss` (nats per target token), `tf_accuracy` (0 to 1), `tf_bleu` (corpus BLEU against the raw references, in
    percent) and `tf_bleu_sentence_mean`: that of the words that encoding and decoding leave, [UNK] dropped from both
    sides. The last is what hyunwoongko/transformer's `evaluate` prints, presumably the Enhanced paper's BLEU
    (arXiv 2310.10930, Table 1).
    Differs from the code: no predictions after the reference's END; the mean is over sentences, not over batches.
    """
    tokenizer, limit = translator.tgt_tokenizer, translator.max_length
    targets = [ids[: limit + 1] for ids in tokenizer.encode_batch(list(references))]
    forced = translator.force(sources, targets, **options)
    num_tokens = sum(len(f.predictions) for f in forced)
    loss = -sum(f.total for f in forced) / num_tokens
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


def over_validations(records: Records, number: int) -> dict[str, Any]:
    """Return the mean and standard deviation (n - 1; none for a single one) of BLEU over the last `number` validations
    with translations.

    Empty if the validation set was never translated during training.
    """
    last = [record for record in records.of_kind("valid") if "bleu" in record][-number:]
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


def validation_scores(data: CorpusData, model: Transformer, job: TrainingJob) -> dict[str, float]:
    """Return figures of translations of (the first sentences of) the validation set, for the training loop: `bleu` and
    `chrf` of greedy translations, and with `bleu_every_epochs` the `tf_bleu*` of `teacher_forced`."""
    src, references = (side[: job.training.bleu_sentences] for side in data.text("valid"))
    translator = _in_training(model, job)
    hypotheses = [t.text for t in translator.translate(src, beam_size=1)]
    forced = teacher_forced(translator, src, references) if job.training.bleu_every_epochs else {}
    lowercase = translator.tgt_tokenizer.lowercase
    scores = [score(hypotheses, references, lowercase=lowercase) for score in (bleu, chrf)]
    figures = {score.name: score.value for score in scores}
    return figures | {name: value for name, value in forced.items() if name.startswith("tf_bleu")}


def validation_samples(data: CorpusData, model: Transformer, job: TrainingJob) -> list[tuple[str, str, str]]:
    """Return a few sentences spread over the validation set, with translations and references."""
    sources, references = data.text("valid")
    few = range(0, len(sources), -(-len(sources) // _SHOWN))
    translations = _in_training(model, job).translate([sources[i] for i in few], beam_size=1)
    return [(sources[i], t.text, references[i]) for i, t in zip(few, translations, strict=True)]


def _in_training(model: Transformer, job: TrainingJob) -> Translator:
    """Return a translator with the current weights. It starts no processes, as other workers occupy the cores."""
    return Translator(
        model,
        *(Tokenizer.load(path) for path in (job.src_tokenizer, job.tgt_tokenizer)),
        max_extra_tokens=job.decoding.max_extra_tokens,
        batch_size=job.decoding.batch_size,
        workers=1,
        config=dict(job.model_extra),
    )
