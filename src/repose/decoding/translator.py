"""Text in, text out: a model with its tokenizers, which translates and scores sentences."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from operator import index
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import NDArray

from repose.config.experiment import LENGTH_PENALTY
from repose.data.language import UNKNOWN, checked_language, names_of_pair
from repose.data.tags import with_tag
from repose.data.tokenizer import Tokenizer
from repose.decoding.engine import Engine, Forced, Precision
from repose.decoding.ensemble import Ensemble
from repose.decoding.options import DEFAULTS, SETTINGS, SearchOptions, checked_settings
from repose.decoding.pool import OnProgress, Pool, telling
from repose.decoding.sampling import Sampling, checked
from repose.decoding.search import TokenHypothesis
from repose.decoding.worker import Batch
from repose.graphs import folder as graphs
from repose.model.architecture import Architecture
from repose.saved_model import card, directory
from repose.saved_model.directory import SRC_TOKENIZER, TGT_TOKENIZER, UNNAMED_TASK, ModelKind
from repose.system.device import check_workers, usual_workers
from repose.system.errors import CheckpointError, ConfigError, DataError, naming_extras
from repose.system.files import checked_path
from repose.system.numbers import is_whole
from repose.system.token_ids import END, PAD, START

if TYPE_CHECKING:
    import torch

    from repose.model.transformer import Transformer


def _transformer(architecture: Architecture, config: Mapping[str, Any]) -> "Transformer":
    from repose.model.transformer import Transformer

    return Transformer(architecture, src_vocab_size=config["src_vocab_size"], tgt_vocab_size=config["tgt_vocab_size"])


MODEL_KIND = ModelKind(UNNAMED_TASK, {SRC_TOKENIZER: "src_vocab_size", TGT_TOKENIZER: "tgt_vocab_size"}, _transformer)
"""Model directories of translation models."""
_OF_THE_TEXT = (
    *("src_lang", "tgt_lang", "tag", "also", "synthetic_tag", "max_src_tokens", "split_src_tokens", "src_scripts"),
    "src_normalization",
)
"""Keys of config.json that describe the text that a model was trained on."""
LOOKS_AHEAD = (
    "This model's decoder normalises over the whole target sentence and so sees the tokens that it has to predict: "
    "its teacher-forced loss and accuracy do not measure translation, and it cannot translate."
)


@dataclass(frozen=True)
class Hypothesis:
    """One translation of a sentence.

    `tokens`: target tokens without START and END, as the vocabulary writes them; `Translator.labels` makes them
    readable. `score`: sum of log-probabilities in nats, END's included if it was reached. It equals what
    `Translator.force` gives for these tokens, and `Translator.score` for a text that is encoded to them. `normalised`:
    score over length penalty, by which hypotheses are ranked. `finished`: whether END was reached within the length
    limit.
    """

    text: str
    tokens: tuple[str, ...] = field(repr=False)
    score: float
    normalised: float
    finished: bool


@dataclass(frozen=True)
class Translation:
    """The translation of one sentence.

    `text`: the best hypothesis, empty for a blank sentence, and `score` its score in nats. `hypotheses`: the best ones,
    best first; none for a blank sentence. `src_tokens`: source tokens as the model read them, START and END included.
    `truncated`: whether the source was cut at the model's longest length. `attention`: cross-attention of the best
    hypothesis if asked for, (layers, heads, target tokens + 1, source tokens). Row t shows where the model looked when
    it wrote token t. The last row shows where it looked after the last token, when it wrote END (if it did); a
    hypothesis as long as the model's max_length has no such row. Comparisons of translations ignore attention.
    """

    text: str
    score: float
    hypotheses: tuple[Hypothesis, ...] = field(repr=False)
    src_tokens: tuple[str, ...] = field(repr=False)
    truncated: bool
    attention: NDArray[np.float32] | None = field(default=None, compare=False, repr=False)


class Translator:
    """Translates with one model; `repose.load` makes one from a directory.

    Searches greedily (`beam_size` 1) or with a beam. `length_penalty`: GNMT's alpha (Wu et al. 2016, eq. 14); None:
    0.6. `batch_size`: sentences per batch. Decoding settings that are not given have the defaults shown, whatever
    `config` says: only `repose.load` uses those that the model was saved with, from `decoding` in its config.json.

    `workers`: maximum number of processes, this one included; by default one per core on a CPU, and one on any other
    device. They are started by a `translate` that is worth it, and end with `close`, with a `with` block, and with this
    object. Translations do not depend on the number of processes, nor on which sentences are translated together. In
    int8, a few translations do: a batch shares the scales of its activations.

    Values derived from the weights are kept between calls. Weights that were replaced, or written to in place, are
    noticed. Writes that torch does not count, through `tensor.data` or another library, are not: call `refresh` after
    them.

    Raises ConfigError for settings out of range, for fewer than one worker or more than the machine can run, for
    several workers on a device other than a CPU, for a model that does not translate, and for a tokenizer whose number
    of tokens differs from the model's.
    """

    def __init__(
        self,
        model: "Transformer | Engine",
        src_tokenizer: Tokenizer,
        tgt_tokenizer: Tokenizer,
        *,
        beam_size: int = DEFAULTS.beam_size,
        length_penalty: float | None = DEFAULTS.length_penalty,
        no_repeat_ngram_size: int = DEFAULTS.no_repeat_ngram_size,
        max_extra_tokens: int = DEFAULTS.max_extra_tokens,
        batch_size: int = DEFAULTS.batch_size,
        workers: int | None = None,
        config: dict[str, Any] | None = None,
    ) -> None:
        for side, tokenizer in (("source", src_tokenizer), ("target", tgt_tokenizer)):
            if not isinstance(tokenizer, Tokenizer):
                kind = type(tokenizer).__name__
                raise ConfigError(
                    f"the {side} tokenizer is a repose.Tokenizer, not {kind}: Tokenizer.load(file) makes one"
                )
        self.engine = _engine_of(model, src_tokenizer, tgt_tokenizer)
        """The engine that computes: the model itself, or graphs that were exported from it."""
        self.config = config or {}
        """config.json of the model directory, if the model came from one: run id, versions, languages."""
        self._tokenizers = src_tokenizer, tgt_tokenizer
        self.src_tokenizer = directory.source_tokenizer(src_tokenizer, self.config)
        self.tgt_tokenizer = tgt_tokenizer
        settings = checked_settings(
            beam_size=beam_size,
            length_penalty=length_penalty,
            max_extra_tokens=max_extra_tokens,
            batch_size=batch_size,
            no_repeat_ngram_size=no_repeat_ngram_size,
        )
        self.beam_size = settings.beam_size
        # None: the value is chosen after training.
        self.length_penalty = LENGTH_PENALTY if settings.length_penalty is None else settings.length_penalty
        self.no_repeat_ngram_size = settings.no_repeat_ngram_size
        self.max_extra_tokens, self.batch_size = settings.max_extra_tokens, settings.batch_size
        self.tag: str | None = self.config.get("tag")
        """The tag that the model reads before a source by default, one of `src_tokenizer.tags`."""
        self.folder: Path | None = None
        """Folder that the model was loaded from."""
        self.why_torch: str | None = None
        """Why the engine auto fell back to torch where it would have used graphs; None if it did not."""
        self._model: Transformer | None = None
        self._pool = Pool(_num_workers(workers, self.engine))

    def __repr__(self) -> str:
        what = f"engine={self.engine.name!r}, precision={self.precision!r}, workers={self.workers}"
        others = f" and {len(self.engine.engines) - 1} more" if isinstance(self.engine, Ensemble) else ""
        return f"<repose.Translator of {self.folder or 'a model in memory'}{others}: {what}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the other processes, if any. A later `translate` starts new ones."""
        self._pool.close()

    def refresh(self) -> None:
        """Recompute what is derived from the weights, after a write to them that torch does not count."""
        self._pool.forget()
        self.engine.refresh()

    @property
    def workers(self) -> int:
        """Maximum number of processes that translate, this one included."""
        return self._pool.processes

    @property
    def precision(self) -> Precision:
        """Precision of the products with weights."""
        return self.engine.precision

    @property
    @naming_extras()
    def model(self) -> "Transformer":
        """The torch model that the engine computes with; for the engine onnx, a copy, which has no effect when changed.

        Raises ConfigError for an export, which has no torch model, and for an ensemble, which has several;
        CheckpointError if the folder now holds another model.
        """
        if isinstance(self.engine, Ensemble):
            raise ConfigError("this needs one model, and an ensemble has several: load one of them alone")
        if self.folder is not None and graphs.is_graph_folder(self.folder):
            raise ConfigError("this needs the torch model, which an export does not hold: load the model directory")
        from repose.decoding.torch_engine import TorchEngine

        if isinstance(self.engine, TorchEngine):
            return self.engine.model
        if self._model is None:
            assert self.folder is not None, "only torch computes without a folder"
            loaded = directory.load(self.folder, MODEL_KIND)
            if any(loaded.config[name] != self.config[name] for name in ("architecture", "sha256")):
                raise CheckpointError(f"{self.folder} was replaced since it was read: load it again")
            self._model = loaded.model
        return self._model

    def save(self, folder: str | Path, *, src_lang: str | None = None, tgt_lang: str | None = None) -> None:
        """Write a model directory, as training does, which all functions and commands can read.

        It holds the current weights, both tokenizers, the search settings, and what `config` says about the text, but
        no run id. `src_lang`, `tgt_lang`: language codes such as "pt"; None: those of `config`. Raises ConfigError for
        an invalid code, and as `model` does; CheckpointError if the folder is in a run directory, or holds something
        other than a model; and WriteError if it cannot be written.
        """
        place, model = checked_path("folder", folder), self.model
        if (place.resolve().parent / "metrics.jsonl").exists():
            raise CheckpointError(f"{folder} is in a run directory: choose a folder elsewhere")
        given = {"src_lang": src_lang, "tgt_lang": tgt_lang}
        codes = {name: checked_language(name, code) for name, code in given.items() if code is not None}
        kept = {name: value for name, value in self.config.items() if name in _OF_THE_TEXT and value is not None}
        extra = {"src_lang": UNKNOWN, "tgt_lang": UNKNOWN} | kept | codes
        src, tgt = names_of_pair((str(extra["src_lang"]), str(extra["tgt_lang"])))
        title = f"# Translation{f' from {src} to {tgt}' if src and tgt else ''}\n\n"
        fields = {"pipeline_tag": "translation", "tags": ["repose"]}
        header = card.head((str(extra[name]) for name in given if extra[name] != UNKNOWN), fields)
        loading = card.loading(card.TRANSLATE, card.TRANSLATE_IN_PYTHON)
        extra["decoding"] = {name: getattr(self, name) for name in SETTINGS}
        directory.save(
            place,
            MODEL_KIND,
            model,
            [tokenizer.json for tokenizer in self._tokenizers],
            card=f"{header}\n{title}Saved by repose. Its training is not recorded here.\n\n{loading}",
            extra=extra,
            warning=LOOKS_AHEAD if model.architecture.looks_ahead else None,
        )

    @property
    def device(self) -> "torch.device":
        """Device of the torch model."""
        return next(self.model.parameters()).device

    @property
    def max_length(self) -> int:
        """Longest sequence in tokens, START and END included."""
        return self.engine.max_length

    def translate(
        self,
        texts: Iterable[str],
        *,
        beam_size: int | None = None,
        num_hypotheses: int = 1,
        length_penalty: float | None = None,
        no_repeat_ngram_size: int | None = None,
        attention: bool = False,
        to: str | None = None,
        sampling: Sampling | None = None,
        on_progress: OnProgress = lambda _: None,
    ) -> list[Translation]:
        """Return one translation per text, in order. The translation of a blank text is empty.

        Each text is read as one sentence, as in training: `repose.translate_text` splits longer ones.

        `beam_size`, `length_penalty`, `no_repeat_ngram_size`: None takes the translator's own, with a beam of at least
        `num_hypotheses`. `num_hypotheses`: number of hypotheses of the beam to return. `no_repeat_ngram_size`: no
        n-gram of this many tokens occurs twice in a translation; 0: repeats are allowed. A hypothesis has at most
        `max_extra_tokens` tokens more than its source, and no more than the model's max_length. `attention`: also
        return cross-attention (`Translation.attention`) for each text. `to`: the tag to use, for a model that was
        trained with several, such as the language to translate into. `sampling`: draw one translation of each text
        instead of searching for the best. `on_progress`: is called now and then with the share that is done, from 0
        to 1.

        Raises ConfigError for settings out of range, for a `to` that the model does not have, and for anything but
        texts; DataError for a text with a lone surrogate and for a token that the tokenizer does not have.
        """
        texts = _sentences("translate", texts)
        if sampling is not None and not (beam_size is None and num_hypotheses == 1):
            raise ConfigError(
                "sampling draws one translation of each text: leave beam_size and num_hypotheses out, and for several "
                "draws give the text several times"
            )
        if beam_size is None:
            beam_size = max(self.beam_size, num_hypotheses if is_whole(num_hypotheses) else 1)
        options = SearchOptions(
            beam_size,
            self.length_penalty if length_penalty is None else length_penalty,
            num_hypotheses,
            self.no_repeat_ngram_size if no_repeat_ngram_size is None else no_repeat_ngram_size,
        )
        limit = self.max_length
        encoded = self.encode(texts, to=to)
        sources = [_cut(ids, limit) for ids in encoded]
        nothing = 2 if self.tag is None and to is None else 3  # START, a tag and END; not only for blank texts
        blank = [
            len(ids) <= nothing or not self.src_tokenizer.normalized(text).strip()
            for ids, text in zip(encoded, texts, strict=True)
        ]
        batches = list(self._batches([i for i in range(len(texts)) if not blank[i]], [len(ids) for ids in sources]))
        longest = [min(len(ids) + self.max_extra_tokens, limit) for ids in sources]
        sampling = None if sampling is None else checked(sampling, len(texts))
        work = [
            Batch([sources[i] for i in batch], [longest[i] for i in batch], options, sampling, batch)
            for batch in batches
        ]
        searched = self._pool.search(self.engine, work, on_progress)
        results = dict(zip(chain.from_iterable(batches), chain.from_iterable(searched), strict=True))
        return [
            self._translation(sources[i], results.get(i, []), truncated=len(ids) > limit, attention=attention)
            for i, ids in enumerate(encoded)
        ]

    def score(self, sources: Iterable[str], targets: Iterable[str], *, to: str | None = None) -> list[float]:
        """Return each target's log-probability in nats given its source, END included. `to`: see `translate`.

        An empty source or target is scored as it is; `repose score` prints nan for it. A source longer than the model's
        max_length is cut (`truncated` in the result of `force` says which).

        Raises ConfigError for anything but lists of texts; DataError if the counts differ, a target is longer than the
        model's max_length, or a text has a lone surrogate.
        """
        sources, targets = _sentences("score", sources), _sentences("score", targets)
        tokens = [self.tgt_tokenizer.encode(target) for target in targets]
        return [forced.total for forced in self.force(sources, tokens, to=to)]

    def force(
        self,
        sources: Sequence[str],
        targets: Sequence[Sequence[int]],
        *,
        to: str | None = None,
        on_progress: OnProgress = lambda _: None,
    ) -> list[Forced]:
        """Return log-probabilities of given targets, each ids from START to END (teacher forcing).

        `to`, `on_progress` and the cut of a source longer than max_length: as in `translate`. Raises DataError for a
        target that is longer, for one with START alone, and for ids beyond the vocabulary; ConfigError as `score` does.
        """
        sources, limit = _sentences("force", sources), self.max_length
        vocab_size = self.tgt_tokenizer.vocab_size
        tgt = _checked_targets(targets, num_sources=len(sources), max_length=limit, vocab_size=vocab_size)
        encoded = self.encode(sources, to=to)
        src = [_cut(ids, limit) for ids in encoded]
        lengths = [max(len(s), len(t)) for s, t in zip(src, tgt, strict=True)]
        self._pool.renew(self.engine)
        forced: dict[int, Forced] = {}
        batches = list(self._batches(list(range(len(src))), lengths))
        sizes = [sum(lengths[i] for i in batch) for batch in batches]
        for batch in telling(batches, sizes, on_progress):
            of_batch = self.engine.force([src[i] for i in batch], [tgt[i] for i in batch])
            forced.update(zip(batch, of_batch, strict=True))
        return [forced[i]._replace(truncated=len(ids) > limit) for i, ids in enumerate(encoded)]

    def labels(self, translation: Translation) -> tuple[list[str], list[str]]:
        """Return source and target tokens as readable text: "cach", "·orro" instead of the "Ġcach", "Ã©" of bytes.

        Target tokens are those of the best hypothesis, if any. A dot stands before a token that continues the word of
        the previous one (`repose.data.token_labels`). Raises ConfigError for anything but a Translation.
        """
        if not isinstance(translation, Translation):
            raise ConfigError(f"labels takes one Translation, not {type(translation).__name__}")
        target = translation.hypotheses[0].tokens if translation.hypotheses else ()
        sides = ((self.src_tokenizer, translation.src_tokens), (self.tgt_tokenizer, target))
        source_labels, target_labels = (tokenizer.labels(tokenizer.ids(tokens)) for tokenizer, tokens in sides)
        return source_labels, target_labels

    def encode(self, sources: Sequence[str], *, to: str | None = None) -> list[list[int]]:
        """Return ids of sources as the model reads them, from START to END, with the model's tag or `to`; not cut.

        Raises ConfigError for an unknown tag and for anything but texts; DataError for a lone surrogate.
        """
        sources = _sentences("encode", sources)
        if to is not None and not isinstance(to, str):
            raise ConfigError(f"to is {to!r}, but must be the name of a tag")
        tag = self.tag if to is None else to
        if tag is not None and not self.src_tokenizer.tags:  # the model's own tag always exists
            raise ConfigError("this model has no tags: leave `to` (--to) out")
        return [with_tag(self.src_tokenizer, ids, tag) for ids in self.src_tokenizer.encode_batch(sources)]

    def _translation(
        self, source: list[int], results: list[TokenHypothesis], *, truncated: bool, attention: bool
    ) -> Translation:
        target, attended = self.tgt_tokenizer, None
        if attention and results:
            attended = self.engine.attention(source, [START, *results[0].tokens][: self.max_length])
        hypotheses = tuple(
            Hypothesis(target.decode(h.tokens), tuple(target.tokens(h.tokens)), h.score, h.normalised, h.finished)
            for h in results
        )
        return Translation(
            text=hypotheses[0].text if hypotheses else "",
            score=hypotheses[0].score if hypotheses else 0.0,
            hypotheses=hypotheses,
            src_tokens=tuple(self.src_tokenizer.tokens(source)),
            truncated=truncated,
            attention=attended,
        )

    def _batches(self, indices: list[int], lengths: Sequence[int]) -> Iterator[list[int]]:
        """Yield batches of sentences of similar length: there is little padding, and all end at about the same step."""
        ordered = sorted(indices, key=lambda i: -lengths[i])
        for start in range(0, len(ordered), self.batch_size):
            yield ordered[start : start + self.batch_size]


def _engine_of(model: "Transformer | Engine", src_tokenizer: Tokenizer, tgt_tokenizer: Tokenizer) -> Engine:
    if isinstance(model, Engine):
        return model
    from repose.decoding.torch_engine import TorchEngine
    from repose.model.transformer import Transformer

    if not isinstance(model, Transformer):
        kind = type(model).__name__
        raise ConfigError(f"Translator takes a model that translates, not {kind}: repose.load(folder) makes one")
    sizes = ("source", src_tokenizer, model.src_vocab_size), ("target", tgt_tokenizer, model.tgt_vocab_size)
    for side, tokenizer, size in sizes:
        if tokenizer.vocab_size != size:
            raise ConfigError(
                f"the {side} tokenizer has {tokenizer.vocab_size} tokens, and the model is built for {size}: use its "
                "own, or build the model with the tokenizer's vocab_size"
            )
    return TorchEngine(model)


def _num_workers(requested: int | None, engine: Engine) -> int:
    if requested is None:
        return usual_workers(engine.device_type)
    check_workers(requested)
    requested = int(requested)
    if requested > 1 and engine.device_type != "cpu":
        raise ConfigError(
            f"workers = {requested}, but only a CPU is shared by several: leave workers out on {engine.device_type}"
        )
    return requested


def _cut(ids: list[int], limit: int) -> list[int]:
    """Return at most `limit` tokens, START and END kept."""
    return ids if len(ids) <= limit else [*ids[: limit - 1], END]


def _sentences(verb: str, texts: Iterable[str]) -> list[str]:
    """Return texts as a list, without line breaks at their ends, which lines read from a file have. Raises ConfigError
    for a bare text, a mapping or a table instead, and if one of the items is not a text."""
    if isinstance(texts, str | bytes) or not (hasattr(texts, "__iter__") or hasattr(texts, "__getitem__")):
        raise ConfigError(f"{verb} takes a list of sentences, not {texts!r:.60}: write [text] for one")
    if isinstance(texts, Mapping) or hasattr(texts, "columns"):
        raise ConfigError(f"{verb} takes a list of sentences, not a {type(texts).__name__}: give one of its columns")
    if isinstance(texts, set | frozenset):
        raise ConfigError(f"{verb} takes a list of sentences, not a {type(texts).__name__}, which has no order")
    texts = list(texts)
    for place, text in enumerate(texts):
        if not isinstance(text, str):
            raise ConfigError(f"{verb} takes sentences, not {text!r:.50} (item {place})")
    return [text.rstrip("\r\n") for text in texts]


def _checked_targets(
    targets: Sequence[Sequence[int]], *, num_sources: int, max_length: int, vocab_size: int
) -> list[list[int]]:
    """Return targets as lists. Raises DataError unless there is one per source, each consists of valid ids after START,
    and none is longer than `max_length`."""
    try:
        ids = [list(map(index, target)) for target in targets]
    except TypeError:
        raise DataError(
            "a target is a list of the ids of its tokens, from START to END, as `tgt_tokenizer.encode` gives them: "
            "`score` takes texts"
        ) from None
    if num_sources != len(ids):
        raise DataError(
            f"the numbers of sources and targets differ ({num_sources} and {len(ids)}): give one target per source"
        )
    if (longest := max(map(len, ids), default=0) - 1) > max_length:
        raise DataError(
            f"a target of {longest} tokens is longer than the model's max_length of {max_length}: shorten it"
        )
    for target in ids:
        if len(target) < 2 or target[0] != START:
            raise DataError(f"a target has the ids {target}, but needs START and one more at least")
        if PAD in target:
            raise DataError(f"a target has padding in it (id {PAD}): leave it out")
        if wrong := [token for token in target if not 0 <= token < vocab_size]:
            raise DataError(
                f"id {wrong[0]} is not in the target vocabulary of {vocab_size} tokens: use the model's own"
            )
    return ids
