"""Translation: sentence pairs, the encoder-decoder, and cross-entropy of the target tokens.
`repose.tasks.translation_scores` has the evaluation."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from repose.config.experiment import LENGTH_PENALTY, Experiment, TrainingConfig
from repose.data.bpe_dropout import BpeDropout
from repose.data.dataset import PairDataset
from repose.data.language import UNKNOWN, names_of_pair
from repose.data.mixture import Mixture
from repose.data.normalization import normalization_to
from repose.data.pairs import TextPairs
from repose.data.scripts import scripts_in
from repose.decoding.load import load
from repose.decoding.options import SETTINGS
from repose.decoding.translator import LOOKS_AHEAD, MODEL_KIND
from repose.model.transformer import Transformer, build
from repose.saved_model import directory
from repose.saved_model.card import TRANSLATE, TRANSLATE_IN_PYTHON
from repose.saved_run.folder import RunFolder
from repose.system.device import one_thread
from repose.system.terminal import Say, counted
from repose.system.token_ids import END, UNK
from repose.tasks import more_corpora
from repose.tasks.base import Card, EvaluationOptions, Task, position_table
from repose.tasks.corpus import SET_NAMES, prepare_pairs
from repose.tasks.corpus_files import is_pretokenized, languages_of, taught_also
from repose.tasks.decoding_choice import FEWEST, SENTENCES, choose_decoding
from repose.tasks.prepared import CorpusData
from repose.tasks.translation_scores import (
    EvaluationSet,
    over_validations,
    score_model,
    score_set,
    trained_on,
    validation_samples,
    validation_scores,
)
from repose.training.display import ProgressKind, shown
from repose.training.feed import bucketed_targets, pad_to, round_up_size, to_device
from repose.training.job import TrainingJob
from repose.training.loop import Evaluate, Samples
from repose.training.loss import TokenSums, cross_entropy, token_losses
from repose.training.r_drop import r_drop

_USUAL = 98
"""Percentile of training source lengths above which a translator splits sentences (`benchmarks/splitting.py`,
docs/little-data-experiments.md)."""


class PairBatch(NamedTuple):
    """Sentence pairs as tensors."""

    src: Tensor
    """(B, S): source ids."""
    tgt: Tensor
    """(B, T): decoder input."""
    labels: Tensor
    """(N,): the token after each real token of `tgt`, in row-major order."""
    tagged: Tensor | None = None
    """(B,): 1 if a source begins with a tag, else 0; None if none does."""
    label_positions: Tensor | None = None
    """(N,): index in `tgt.flatten()` of each label's position; None if each real token of `tgt` has a label."""


class TranslationTask(Task):
    """Translation of sentence pairs (`repose.data.dataset`). Losses are per target token."""

    name = "translation"
    kind = MODEL_KIND
    look_ahead_warning = LOOKS_AHEAD
    allows_cuda_graphs = True

    def prepare(self, experiment: Experiment, folder: Path, workers: int) -> Iterator[str]:
        return prepare_pairs(experiment, folder, workers)

    def open(self, folder: Path) -> PairDataset:
        return PairDataset.open(folder)

    def micro_batch(self, examples: PairDataset, indices: NDArray[np.int64], device: torch.device) -> PairBatch:
        """Return sources, decoder input, and labels without padding."""
        batch = examples.batch(indices)
        arrays = [batch.src, batch.tgt, batch.labels[batch.tgt != 0], *_tagged(batch.src, examples)]
        return PairBatch(*to_device(arrays, device))

    def bucketed_micro_batch(
        self, examples: PairDataset, indices: NDArray[np.int64], device: torch.device
    ) -> PairBatch:
        """Return the micro-batch with additional pairs of padding, padding at the ends, and spare labels."""
        batch = examples.batch(indices)
        tgt, labels, label_positions = bucketed_targets(batch.tgt, batch.labels[batch.tgt != 0], examples.longest_tgt)
        src = pad_to(batch.src, (len(tgt), round_up_size(batch.src.shape[1], examples.longest_src)))
        *tensors, positions = to_device([src, tgt, labels, *_tagged(src, examples), label_positions], device)
        return PairBatch(*tensors)._replace(label_positions=positions)

    def new_model(self, job: TrainingJob) -> Transformer:
        src, tgt = (tokenizer.vocab_size for tokenizer in self.tokenizers(job))
        table, seed = position_table(job), job.training.seed
        return build(job.architecture, src_vocab_size=src, tgt_vocab_size=tgt, seed=seed, position_table=table)

    def sampler(self, examples: PairDataset, job: TrainingJob) -> Callable[[int], PairDataset]:
        """Return the pairs, which know the ids of tags; with `bpe_dropout`, they are segmented anew in each epoch."""
        config, (src, tgt) = job.training, self.tokenizers(job)
        tags = tuple(src.tags.values())
        if not config.bpe_dropout:
            tagged = replace(examples, tags=tags)
            return lambda _: tagged
        limits = (config.max_src_tokens, config.max_tgt_tokens)
        drawn = BpeDropout(examples, (src, tgt), dropout=config.bpe_dropout, limits=limits)
        return lambda epoch: replace(drawn.epoch(config.seed, epoch), tags=tags)

    def mixture(self, examples: PairDataset, job: TrainingJob) -> Mixture | None:
        """Mix several corpora in the requested shares."""
        return more_corpora.mixture(examples, self.tokenizers(job)[0], job.training, job.synthetic_tag)

    def training_loss(self, model: Transformer, batch: PairBatch, config: TrainingConfig) -> TokenSums:
        """Return the cross-entropy of the labels; over two passes with `r_drop`, with hidden tokens with
        `word_dropout`."""
        src, tgt, labels, tagged, label_positions = batch
        twice = 2 if config.r_drop else 1
        if config.r_drop and label_positions is not None:
            label_positions = torch.cat([label_positions, label_positions + tgt.numel()])
        src = _hide(src.repeat(twice, 1), config.word_dropout, None if tagged is None else tagged.repeat(twice))
        tgt = _hide(tgt.repeat(twice, 1), config.word_dropout)
        hidden, output = model.hidden(src, tgt, label_positions), model.output
        smoothing = config.label_smoothing
        if config.r_drop:
            first, second = hidden.chunk(2)
            return r_drop(
                first, second, output.weight, output.bias, labels, label_smoothing=smoothing, alpha=config.r_drop
            )
        return cross_entropy(hidden, output.weight, output.bias, labels, label_smoothing=smoothing)

    def token_losses(self, model: Transformer, batch: PairBatch) -> tuple[Tensor, Tensor]:
        """Return every target token's loss given the reference's earlier tokens, and whether it is predicted
        correctly."""
        return token_losses(model.hidden(batch.src, batch.tgt), model.output.weight, model.output.bias, batch.labels)

    def with_wrong_sources(self, batch: PairBatch) -> PairBatch:
        """Give each target the source of the previous pair in the batch."""
        return batch._replace(src=batch.src.roll(1, 0))

    def card(self, experiment: Experiment) -> Card:
        codes = languages_of(experiment.corpus)
        src, tgt = names_of_pair(codes)
        title = "Translation between languages that are not stated" if src is None or tgt is None else f"{src} → {tgt}"
        direction = "" if src is None or tgt is None else f" from {src} into {tgt}"
        limits = (
            f"It translates sentences{direction} of the kind that it was trained on, one by one; "
            "`repose translate` splits longer text. Expect worse translations in other domains and styles.",
            "A translation can be fluent and wrong, above all in names, numbers and negations. Have somebody who reads "
            "both languages check whatever matters.",
            "The model may repeat what the training text says about people and groups.",
        )
        return Card(
            title,
            "A translation model",
            TRANSLATE,
            languages=tuple(code for code in codes if code != UNKNOWN),
            pipeline="translation",
            limits=limits,
            in_python=TRANSLATE_IN_PYTHON,
        )

    def model_extra(self, experiment: Experiment) -> Mapping[str, object]:
        """Return languages and decoding settings."""
        src_lang, tgt_lang = languages_of(experiment.corpus)
        decoding = {name: getattr(experiment.decoding, name) for name in SETTINGS}
        corpus = experiment.corpus
        tag = {} if corpus.tag is None else {"tag": corpus.tag}
        if corpus.synthetic and corpus.synthetic_tag:
            tag["synthetic_tag"] = corpus.synthetic_tag
        also = [one._asdict() for one in taught_also(corpus)]
        more = {"also": also} if also else {}
        return {"src_lang": src_lang, "tgt_lang": tgt_lang, **tag, **more, "decoding": decoding}

    def seen(self, experiment: Experiment, data: CorpusData) -> Mapping[str, object]:
        """Return facts on the training sources, including those of the initial model: their scripts, so that a
        translator can warn of others; characters to replace by others; the longest length in tokens; and the length
        above which to split."""
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
        """Compute BLEU and chrF if `bleu_every_epochs` is set or weights are chosen by chrF."""
        c = experiment.training
        return partial(validation_scores, data) if c.bleu_every_epochs or c.best_by == "chrf" else None

    def validation_samples(self, data: CorpusData) -> Samples:
        """Return greedy translations of three sentences."""
        return partial(validation_samples, data)

    def score_run(
        self, experiment: Experiment, data: CorpusData, folder: Path, device: str, progress: ProgressKind, say: Say
    ) -> None:
        """Evaluate greedily and with the experiment's beam; write hypotheses and scores."""
        records = RunFolder(folder).records(may_be_empty=True)
        about: dict[str, Any] = {}
        if means := over_validations(records, experiment.training.bleu_mean_over):
            num_sentences = len(data.text("valid")[0][: experiment.training.bleu_sentences])
            about["over_validations"] = {"num_sentences": num_sentences, **means}
        if experiment.decoding.length_penalty is None:
            asked = asdict(experiment.decoding)  # a training that starts from this model uses these again
            (sources, references), start = data.text("valid"), experiment.training.init_from
            if start is None or len(sources) >= FEWEST:
                say(f"choosing how to search, on {counted(min(len(sources), SENTENCES), 'validation sentence')}")
                with (
                    load(folder, device, engine="torch") as translator,
                    one_thread(),
                    shown("choosing how to search", progress, say) as on_progress,
                ):
                    choice = choose_decoding(translator, sources, references, experiment.decoding, on_progress)
                settings, about["decoding_chosen"] = choice.settings, choice.to_json()
            else:  # too few sentences to choose by: use the initial model's settings
                before = directory.read_config(Path(start)).get("decoding", {})
                names = ("beam_size", "length_penalty", "no_repeat_ngram_size")
                settings = {"length_penalty": LENGTH_PENALTY}  # if that model has no chosen settings either
                settings |= {name: before[name] for name in names if before.get(name) is not None}
            directory.change_config(folder, {"decoding": {**asked, **settings}, "decoding_asked": asked})
        measured = EvaluationSet(*data.text(data.measured), data.measured, is_pretokenized(experiment.corpus))
        about |= trained_on(folder, measured.sources)
        say(f"translating {counted(len(measured.sources), f'{SET_NAMES[data.measured]} sentence')} to score the model")
        translator = load(folder, device, engine="torch")
        options = EvaluationOptions(beam_sizes=(1, experiment.decoding.beam_size), progress=progress, say=say)
        score_set(translator, measured, options, about, folder)

    def score_model(
        self, folder: Path, files: Sequence[Path] | None, split: str, out: Path | None, options: EvaluationOptions
    ) -> dict[str, Any]:
        """Evaluate on two aligned files, or on a set of the run's own corpus; an export to ONNX on files only. Unusable
        pairs are left out and counted by reason in `dropped`. `input_warnings` says if a side is not in the language
        that the model reads or writes, `column_names` holds a first pair that looks like a header, and `trained_on` the
        number of sources that the model was trained on, if it is large."""
        return score_model(folder, files, split, out, options)


def _tagged(src: NDArray[np.int64], examples: PairDataset) -> list[NDArray[np.int64]]:
    """Return which sources begin with a tag, if there are tags."""
    return [np.isin(src[:, 1], examples.tags).astype(np.int64)] if examples.tags and src.size else []


def _hide(ids: Tensor, probability: float, tagged: Tensor | None = None) -> Tensor:
    """Replace each real token by [UNK] with this probability, except the tags of `tagged` rows."""
    if not probability:
        return ids
    hidden = (torch.rand(ids.shape, device=ids.device) < probability) & (ids > END)
    if tagged is not None:
        hidden[:, 1] &= tagged == 0
    return ids.masked_fill(hidden, UNK)


TASK = TranslationTask()
