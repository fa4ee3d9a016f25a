"""Translation: sentence pairs, the encoder-decoder, cross-entropy of the target tokens; measured by BLEU and chrF of
free-running decoding, with teacher-forced figures next to them."""

import statistics
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from repose.config.experiment import CorpusConfig, Experiment, TrainingConfig
from repose.data.bpe_dropout import BpeDropout
from repose.data.check import names_columns
from repose.data.dataset import PairDataset
from repose.data.input_warning import warnings_for_pairs
from repose.data.language import UNKNOWN, is_language, names_of_pair
from repose.data.mixture import Mixture
from repose.data.normalization import normalization_to
from repose.data.readers import PairReader, TextPairs, kind_of
from repose.data.scripts import scripts_in
from repose.data.tokenised_text import detokeniser, form_of
from repose.data.tokenizer import END, PAD, START, UNK, Tokenizer
from repose.decoding.load import is_export, load
from repose.decoding.options import SETTINGS
from repose.decoding.translator import LOOKS_AHEAD, MODEL_KIND, Translator
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
from repose.model.transformer import Transformer, build
from repose.runs.folder import RunFolder
from repose.runs.records import Records
from repose.saved_model import directory
from repose.system.device import one_thread
from repose.system.errors import CheckpointError, ConfigError
from repose.tasks import more_corpora
from repose.tasks.base import Card, Decoding, Task, position_table
from repose.tasks.choice import FEWEST, choose
from repose.tasks.corpus import CorpusData, prepare_pairs
from repose.tasks.corpus_files import is_pretokenized, languages_of
from repose.tasks.corpus_of_run import text_of_run
from repose.training.feed import filled_up, to_device, usual, usual_targets
from repose.training.job import TrainingJob
from repose.training.loop import Evaluate, Samples
from repose.training.loss import TokenSums, cross_entropy, token_losses
from repose.training.r_drop import r_drop

_SHOWN = 3  # sentences of the validation set
_USUAL = 98
"""Percentile of the lengths of training sources beyond which a translator splits sentences: `benchmarks/splitting.py`,
docs/own-corpus.md."""


class PairPart(NamedTuple):
    """Sentence pairs as tensors."""

    src: Tensor
    """(B, S) token ids."""
    tgt: Tensor
    """(B, T) decoder input."""
    labels: Tensor
    """(N,) the token after each real token of `tgt`, in row-major order."""
    tagged: Tensor | None = None
    """(B,) 1 where a source begins with a tag, else 0; None: none does."""
    cells: Tensor | None = None
    """(N,) where each label's token is in `tgt.flatten()`, if not all labels are real ones."""


class TranslationTask(Task):
    """Sentence pairs (`repose.data.dataset`). Losses are per target token."""

    name = "translation"
    kind = MODEL_KIND
    look_ahead_warning = LOOKS_AHEAD
    can_replay = True

    def prepare(self, experiment: Experiment, folder: Path, workers: int) -> Iterator[str]:
        return prepare_pairs(experiment, folder, workers)

    def open(self, folder: Path) -> PairDataset:
        return PairDataset.open(folder)

    def part(self, examples: PairDataset, indices: NDArray[np.int64], device: torch.device) -> PairPart:
        """Source, decoder input, and labels without their padding."""
        batch = examples.batch(indices)
        arrays = [batch.src, batch.tgt, batch.labels[batch.tgt != 0], *_tagged(batch.src, examples)]
        return PairPart(*to_device(arrays, device))

    def usual_part(self, examples: PairDataset, indices: NDArray[np.int64], device: torch.device) -> PairPart:
        """With pairs of padding alone, padding at the ends, and spare labels."""
        batch = examples.batch(indices)
        tgt, labels, cells = usual_targets(batch.tgt, batch.labels[batch.tgt != 0], examples.longest_tgt)
        src = filled_up(batch.src, (len(tgt), usual(batch.src.shape[1], examples.longest_src)))
        *tensors, places = to_device([src, tgt, labels, *_tagged(src, examples), cells], device)
        return PairPart(*tensors)._replace(cells=places)

    def new_model(self, job: TrainingJob) -> Transformer:
        src, tgt = (tokenizer.vocab_size for tokenizer in self.tokenizers(job))
        table, seed = position_table(job), job.training.seed
        return build(job.architecture, src_vocab_size=src, tgt_vocab_size=tgt, seed=seed, position_table=table)

    def sampler(self, examples: PairDataset, job: TrainingJob) -> Callable[[int], PairDataset]:
        """The pairs, with `bpe_dropout` in other pieces in each epoch. They know which ids are tags."""
        config, (src, tgt) = job.training, self.tokenizers(job)
        tags = tuple(src.tags.values())
        if not config.bpe_dropout:
            tagged = replace(examples, tags=tags)
            return lambda _: tagged
        limits = (config.max_src_tokens, config.max_tgt_tokens)
        drawn = BpeDropout(examples, (src, tgt), dropout=config.bpe_dropout, limits=limits)
        return lambda epoch: replace(drawn.epoch(config.seed, epoch), tags=tags)

    def mixture(self, examples: PairDataset, job: TrainingJob) -> Mixture | None:
        """Several corpora in the shares that are asked for."""
        return more_corpora.mixture(examples, self.tokenizers(job)[0], job.training, job.synthetic_tag)

    def sums(self, model: Transformer, part: PairPart, config: TrainingConfig) -> TokenSums:
        """Cross-entropy of the labels, of two passes with `r_drop`; tokens are hidden with `word_dropout`."""
        src, tgt, labels, tagged, cells = part
        twice = 2 if config.r_drop else 1
        if config.r_drop and cells is not None:
            cells = torch.cat([cells, cells + tgt.numel()])
        src = _hide(src.repeat(twice, 1), config.word_dropout, None if tagged is None else tagged.repeat(twice))
        tgt = _hide(tgt.repeat(twice, 1), config.word_dropout)
        hidden, output = model.hidden(src, tgt, cells), model.output
        smoothing = config.label_smoothing
        if config.r_drop:
            first, second = hidden.chunk(2)
            return r_drop(
                first, second, output.weight, output.bias, labels, label_smoothing=smoothing, alpha=config.r_drop
            )
        return cross_entropy(hidden, output.weight, output.bias, labels, label_smoothing=smoothing)

    def losses(self, model: Transformer, part: PairPart) -> tuple[Tensor, Tensor]:
        """Of every target token, given the reference's earlier ones."""
        return token_losses(model.hidden(part.src, part.tgt), model.output.weight, model.output.bias, part.labels)

    def mismatched(self, part: PairPart) -> PairPart:
        """Each target with the source of the pair before it in the batch."""
        return part._replace(src=part.src.roll(1, 0))

    def card(self, experiment: Experiment) -> Card:
        codes = languages_of(experiment.corpus)
        src, tgt = names_of_pair(codes)
        title = "Translation between languages that are not stated" if src is None or tgt is None else f"{src} → {tgt}"
        direction = "" if src is None or tgt is None else f" from {src} into {tgt}"
        limits = (
            f"It translates sentences{direction} of the kind that it was trained on, one by one; "
            "`repose translate` splits text that is longer. Expect worse of other domains and styles.",
            "A translation can be fluent and wrong: names, numbers and negations above all. Have somebody who reads "
            "both languages check whatever matters.",
            "What the training text says about people and groups, the model may repeat.",
        )
        return Card(
            title,
            "A translation model",
            "echo 'A sentence.' | repose translate FOLDER",
            languages=tuple(code for code in codes if code != UNKNOWN),
            pipeline="translation",
            limits=limits,
            in_python='repose.load("FOLDER").translate(["A sentence."])[0].text',
        )

    def model_extra(self, experiment: Experiment) -> Mapping[str, object]:
        """Languages and how to search."""
        src_lang, tgt_lang = languages_of(experiment.corpus)
        decoding = {name: getattr(experiment.decoding, name) for name in SETTINGS}
        corpus = experiment.corpus
        tag = {} if corpus.tag is None else {"tag": corpus.tag}
        if corpus.synthetic and corpus.synthetic_tag:
            tag["synthetic_tag"] = corpus.synthetic_tag
        return {"src_lang": src_lang, "tgt_lang": tgt_lang, **tag, "decoding": decoding}

    def seen(self, experiment: Experiment, data: CorpusData) -> Mapping[str, object]:
        """The scripts of the sources, so that a translator can say what it has never seen, the characters that it puts
        in the place of others, the tokens of the longest, and those beyond which it splits. What the model that it
        began with has seen counts, too."""
        texts = data.folder / "text"
        names = ["train", *sorted(path.stem for path in texts.glob("also*.src"))]

        def sources() -> Iterator[str]:
            return (src for name in names for src, _ in TextPairs(texts, name))

        start = experiment.training.init_from
        before = {} if start is None else directory.read_config(Path(start))
        lengths, most = PairDataset.open(data.ids("train")).src_lengths, before.get("max_src_tokens", 0)
        longest, usual = (int(length) for length in np.percentile(lengths, (100, _USUAL)))
        found: dict[str, object] = {"max_src_tokens": max(longest, most)}
        found["split_src_tokens"] = max(usual, before.get("split_src_tokens", most))
        if start is None or isinstance(before.get("src_scripts"), list):
            found["src_scripts"] = sorted({*scripts_in(sources()), *before.get("src_scripts", [])})
        to_those = directory.source_normalization(before)
        if start is None or to_those is not None:
            to_these = normalization_to(sources())
            found["src_normalization"] = (to_these if to_those is None else to_these & to_those).to_json()
        return found

    def validation_figures(self, experiment: Experiment, data: CorpusData) -> Evaluate | None:
        """BLEU and chrF, where `bleu_every_epochs` is set or chrF decides."""
        c = experiment.training
        return ValidationBleu(data) if c.bleu_every_epochs or c.best_by == "chrf" else None

    def validation_samples(self, data: CorpusData) -> Samples:
        """Greedy translations of three sentences."""
        return ValidationSamples(data)

    def score_run(self, experiment: Experiment, data: CorpusData, folder: Path, device: str) -> None:
        """Greedy and with the experiment's beam; hypotheses go with the scores."""
        run, texts = RunFolder(folder), data.text(data.measured)
        means = over_validations(run.records(may_be_empty=True), experiment.training.bleu_mean_over)
        if means:
            num_sentences = len(data.text("valid")[0][: experiment.training.bleu_sentences])
            means = {"over_validations": {"num_sentences": num_sentences, **means}}
        beam_size, about = experiment.decoding.beam_size, dict(means)
        if experiment.decoding.length_penalty is None:
            asked = asdict(experiment.decoding)  # which a training that starts from this model asks for again
            (sources, references), start = data.text("valid"), experiment.training.init_from
            if start is None or len(sources) >= FEWEST:
                with load(folder, device, engine="torch") as translator, one_thread():
                    choice = choose(translator, sources, references, experiment.decoding)
                settings, about["decoding_chosen"] = choice.settings, choice.to_json()
            else:  # too few to choose by: as the model that it began with
                before = directory.read_config(Path(start)).get("decoding", {})
                names = ("beam_size", "length_penalty", "no_repeat_ngram_size")
                settings = {name: before[name] for name in names if before.get(name) is not None}
            directory.change_config(folder, {"decoding": {**asked, **settings}, "decoding_asked": asked})
        translator = load(folder, device, engine="torch")
        decoding = Decoding(beam_sizes=(1, beam_size))
        _score(translator, *texts, data.measured, decoding, is_pretokenized(experiment.corpus), about, folder)

    def score_model(
        self, folder: Path, files: Sequence[Path] | None, split: str, out: Path | None, device: str, decoding: Decoding
    ) -> dict[str, Any]:
        """On two aligned files, or on a set of the run's own corpus. Pairs that cannot be used are left out and counted
        under `dropped`, by reason; under `input_warnings` stands what either side is instead of what the model reads
        and writes, and under `column_names` a first pair that may name columns. An export to ONNX is measured on files
        alone."""
        exported = is_export(folder)
        if exported and not files:
            raise ConfigError("name source and reference files: an export has no set of its own")
        engine = decoding.engine or ("onnx" if exported else "torch")
        translator = load(folder, device, decoding.workers, decoding.precision, engine)
        decoding = decoding.resolved(translator.config)
        if files:
            stored = translator.config
            languages = str(stored.get("src_lang", UNKNOWN)), str(stored.get("tgt_lang", UNKNOWN))
            if UNKNOWN in languages and kind_of(files[0]) == "tmx" and None in (decoding.src_field, decoding.tgt_field):
                raise ConfigError(
                    f"the model does not know its languages: say which {files[0]} is to be read in, with "
                    "--src-field and --tgt-field"
                )
            reader = PairReader(files, **_fields_of(folder, decoding), languages=languages)
            pairs = list(reader)
            texts, pretokenized = ([a for a, _ in pairs], [b for _, b in pairs]), False
            about: dict[str, Any] = {"dropped": reader.counts.dropped} if reader.counts.dropped else {}
            if names_columns(pairs[0]):
                about["column_names"] = list(pairs[0])
            if warnings := warnings_for_pairs(translator.config, pairs, decoding.to):
                about["input_warnings"] = [warning.to_json() for warning in warnings]
        else:
            run, about = RunFolder(folder), {}
            texts, pretokenized = text_of_run(run, split), is_pretokenized(run.config().experiment.corpus)
        return _score(translator, *texts, split, decoding, pretokenized, about, out)


def _fields_of(folder: Path, decoding: Decoding) -> dict[str, str]:
    """What the sides are called in files with names: as asked for, or as a run says; a model directory does not."""
    try:
        corpus = RunFolder(folder).config().experiment.corpus
    except CheckpointError:
        corpus = CorpusConfig()
    src, tgt = decoding.src_field or corpus.src_field, decoding.tgt_field or corpus.tgt_field
    return {"src_field": src, "tgt_field": tgt}


def _tagged(src: NDArray[np.int64], examples: PairDataset) -> list[NDArray[np.int64]]:
    """Which sources begin with a tag, where there are tags."""
    return [np.isin(src[:, 1], examples.tags).astype(np.int64)] if examples.tags and src.size else []


def _hide(ids: Tensor, probability: float, tagged: Tensor | None = None) -> Tensor:
    """Ids with each real token replaced by [UNK] with this probability; of the rows that are `tagged`, not the tag."""
    if not probability:
        return ids
    hidden = (torch.rand(ids.shape, device=ids.device) < probability) & (ids > END)
    if tagged is not None:
        hidden[:, 1] &= tagged == 0
    return ids.masked_fill(hidden, UNK)


@dataclass(frozen=True)
class ValidationBleu:
    """Figures of translations of (the first sentences of) the validation set, for the training loop: `bleu` and `chrf`
    of greedy ones, and with `bleu_every_epochs` the `tf_bleu*` that `teacher_forced` explains."""

    data: CorpusData

    def __call__(self, model: Transformer, job: TrainingJob) -> dict[str, float]:
        src, references = (side[: job.training.bleu_sentences] for side in self.data.text("valid"))
        training = model.training
        translator = _in_training(model, job)
        try:
            hypotheses = [t.text for t in translator.translate(src, beam_size=1)]
            forced = teacher_forced(translator, src, references) if job.training.bleu_every_epochs else {}
        finally:
            model.train(training)
        lowercase = translator.tgt_tokenizer.lowercase
        scores = [score(hypotheses, references, lowercase=lowercase) for score in (bleu, chrf)]
        figures = {score.name: score.value for score in scores}
        return figures | {name: value for name, value in forced.items() if name.startswith("tf_bleu")}


@dataclass(frozen=True)
class ValidationSamples:
    """A few sentences of the validation set, spread over it, for whoever watches the training."""

    data: CorpusData

    def __call__(self, model: Transformer, job: TrainingJob) -> list[tuple[str, str, str]]:
        sources, references = self.data.text("valid")
        few = range(0, len(sources), -(-len(sources) // _SHOWN))
        translations = _in_training(model, job).translate([sources[i] for i in few], beam_size=1)
        return [(sources[i], t.text, references[i]) for i, t in zip(few, translations, strict=True)]


def _in_training(model: Transformer, job: TrainingJob) -> Translator:
    """A translator with the present weights; the other workers wait, and have the cores."""
    return Translator(
        model,
        *(Tokenizer.load(path) for path in (job.src_tokenizer, job.tgt_tokenizer)),
        max_extra_tokens=job.decoding.max_extra_tokens,
        batch_size=job.decoding.batch_size,
        workers=1,
        config=dict(job.model_extra),
    )


def _score(
    translator: Translator,
    sources: Sequence[str],
    references: Sequence[str],
    split: str,
    decoding: Decoding,
    pretokenized: bool,
    about: Mapping[str, Any],
    out: Path | None,
) -> dict[str, Any]:
    """All figures of one model on one set, `about` among them, written to the run directory `out` with the hypotheses:
    raw text, translated once for each beam size, and teacher-forced. Raises DataError where there is nothing to score.

    Beside the scores of each decoding stand its translations that did not end (reached the length limit before END)
    and those that loop (`repose.evaluation.looping`) where their references do not.
    """
    tokenizer = translator.tgt_tokenizer
    decoded: dict[str, dict[str, Any]] = {}
    hypotheses: dict[str, list[str]] = {}
    truncated = 0
    if decoding.tokenize is not None:
        bleu_metric(decoding.tokenize)  # refused here, not after all is translated
    form = form_of(references)
    wanted = decoding.to if decoding.to is not None and is_language(decoding.to) else None
    language = wanted or str(translator.config.get("tgt_lang", UNKNOWN))
    detokenise = detokeniser(language) if form.inflates_bleu else None
    with translator, one_thread():
        for beam_size in dict.fromkeys(decoding.beam_sizes):
            name = decoding_name(beam_size)
            translations = translator.translate(sources, beam_size=beam_size, to=decoding.to)
            hypotheses[name] = [t.text for t in translations]
            truncated = sum(t.truncated for t in translations)
            scores = corpus_scores(
                hypotheses[name],
                references,
                lowercase=tokenizer.lowercase,
                pretokenized=pretokenized,
                round_trip=None if tokenizer.lossless else tokenizer.round_trip,
                strip_accents=tokenizer.strip_accents,
                tokenize=decoding.tokenize,
                detokenise=detokenise,
            )
            pairs = zip(hypotheses[name], references, strict=True)
            decoded[name] = {
                "unfinished": sum(not t.hypotheses[0].finished for t in translations if t.hypotheses),
                "looping": sum(loops(hypothesis) and not loops(reference) for hypothesis, reference in pairs),
                **{score.name: _score_json(score) for score in scores.values()},
            }
        forced = teacher_forced(translator, sources, references, to=decoding.to)
    too_long = sum(len(ids) - 1 > translator.max_length for ids in tokenizer.encode_batch(list(references)))
    result = {
        "run_id": translator.config.get("run_id"),
        "split": split,
        "looks_ahead": translator.engine.looks_ahead,
        "decoding": _how(translator, decoding.to),
        **about,
        "num_sentences": len(sources),
        "truncated_sources": truncated,  # cut at the model's max_length
        **({"truncated_references": too_long} if too_long else {}),  # in what is teacher-forced
        "references": {"tokenised": form.tokenised, "entities": form.entities},  # lines of them that look so
        "decoded": decoded,
        "teacher_forced": forced,
    }
    if out is not None:
        RunFolder(out).write_scores(split, result, hypotheses)
    return result


def _how(translator: Translator, to: str | None) -> dict[str, Any]:
    """How a set was translated, beside the beams; what is usual is left out."""
    others = {
        "no_repeat_ngram_size": translator.no_repeat_ngram_size,
        "to": to,
        "engine": translator.engine.name if translator.engine.name != "torch" else None,
        "precision": translator.precision if translator.precision != "fp32" else None,
    }
    usual = {name: getattr(translator, name) for name in ("length_penalty", "max_extra_tokens")}
    return usual | {name: value for name, value in others.items() if value}


def _score_json(score: Score) -> dict[str, Any]:
    penalty = {} if score.brevity_penalty is None else {"brevity_penalty": score.brevity_penalty}
    return {"value": score.value, "signature": score.signature, **penalty}


def teacher_forced(
    translator: Translator, sources: Sequence[str], references: Sequence[str], *, to: str | None = None
) -> dict[str, float]:
    """Figures of the most probable token at each place, given the reference's own earlier tokens. `to` as for
    `Translator.translate`.

    `tf_loss` (nats per target token), `tf_accuracy` (0 to 1), `tf_bleu` (corpus BLEU against the raw references, in
    percent) and `tf_bleu_sentence_mean`: that of the words that encoding and decoding leave, [UNK] dropped from both
    sides. The last is what hyunwoongko/transformer's `evaluate` prints, presumably the Enhanced paper's BLEU
    (arXiv 2310.10930, Table 1).
    Differs from the code: no predictions after the reference's END; the mean is over sentences, not over batches.
    """
    tokenizer, limit = translator.tgt_tokenizer, translator.max_length
    targets = [ids[: limit + 1] for ids in tokenizer.encode_batch(list(references))]
    forced = translator.force(sources, targets, to=to)
    num_tokens = sum(len(f.predictions) for f in forced)
    loss = -sum(float(f.log_probs.astype(np.float64).sum()) for f in forced) / num_tokens
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
    """Mean and standard deviation (n - 1; none of a single one) of BLEU over the last `number` translations.

    Empty where the validation set was never translated during training.
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


TASK = TranslationTask()
