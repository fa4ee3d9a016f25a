"""From a corpus, however it is named, to what a training reads: split texts, tokenizers and token ids.

Everything lies in one folder, `<cache>/prepared/<key>`, whose key is a digest of the corpus's bytes and of the settings
that shape the data. Runs of the same corpus and settings share it; a finished one is reused at once.

    text/train.src, train.tgt, valid.src, ...   the sentence pairs as read, one per line
    tokenizer.src.json, tokenizer.tgt.json
    train/, valid/                              token ids (`repose.data.dataset`; other tasks: `repose.data.columns`)
    report.json                                 what was read, dropped, split off and cut, by reason; written last
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from itertools import chain
from pathlib import Path

from repose._version import __version__
from repose.config.experiment import CorpusConfig, Experiment, TaskName, TokenizerConfig
from repose.data import columns, corpora
from repose.data.prepare import prepare
from repose.data.prepared_folder import read_meta
from repose.data.text_pairs import TextPairs
from repose.data.tokenizer import Tokenizer
from repose.saved_model import directory as model_dir
from repose.system.errors import ConfigError, DataError
from repose.system.files import locked
from repose.tasks.corpus_splits import PHRASEBOOK, SPLITS, write_texts
from repose.tasks.task_corpora import build_text, build_treebank, train_tokenizer

Say = Callable[[str], None]


@dataclass(frozen=True)
class CorpusData:
    """A prepared corpus."""

    folder: Path
    report: tuple[str, ...]
    """Sentences that say what became of the pairs."""

    @property
    def train(self) -> Path:
        """Token ids of the training pairs."""
        return self.folder / "train"

    @property
    def valid(self) -> Path:
        """Token ids of the validation pairs."""
        return self.folder / "valid"

    def tokenizer_path(self, side: str) -> Path:
        """The tokenizer of "src" or "tgt"."""
        return self.folder / f"tokenizer.{side}.json"

    @property
    def digests(self) -> dict[str, str]:
        """What the data is, as it enters a run's id."""
        ids = {split: _content_digest(self.folder / split) for split in ("train", "valid")}
        tokenizers = {side: Tokenizer.load(self.tokenizer_path(side)).digest for side in ("src", "tgt")}
        return {**ids, **tokenizers}

    def ids(self, split: str) -> Path:
        """Token ids of a split, for tasks without sentence pairs. Raises DataError where there is no such split."""
        if not (self.folder / split / columns.META_FILE).exists():
            raise DataError(f"this corpus has no {split} set: choose another")
        return self.folder / split

    @property
    def measured(self) -> str:
        """The split that a finished model is measured on: the test set, or without one the validation set."""
        has_test = self.has_text("test") or (self.folder / "test").is_dir()
        return "test" if has_test else "valid"

    def has_text(self, split: str) -> bool:
        """Whether the corpus has that split, as sentence pairs."""
        return (self.folder / "text" / f"{split}.src").exists()

    def text(self, split: str) -> tuple[list[str], list[str]]:
        """Sources and references of a split, as read. Raises DataError where the corpus has no such split."""
        if not self.has_text(split):
            known = ", ".join(name for name in SPLITS if self.has_text(name))
            if not known:
                raise DataError("this corpus is of a task without sentence pairs: it has no sources and references")
            raise DataError(f"this corpus has no {split} set: choose one of {known}")
        src, tgt = (
            (self.folder / "text" / f"{split}.{side}").read_text(encoding="utf-8").split("\n")[:-1]
            for side in ("src", "tgt")
        )
        return src, tgt


def prepare_corpus(
    experiment: Experiment, *, folder: Path | None = None, workers: int = 1, say: Say = lambda _: None
) -> CorpusData:
    """Reads, splits, tokenises; in `folder`, or in the cache under the data's key. `workers` processes tokenise.

    Raises DataError and ConfigError for a corpus or settings that cannot be used.
    """
    experiment = _with_ready_tokenizers(experiment)
    key = _key(experiment)
    folder = folder or corpora.cache_home() / "prepared" / key
    folder.parent.mkdir(parents=True, exist_ok=True)
    with locked(folder.with_name(f".{folder.name}.lock")):
        data = _finished(folder, key) or _build(experiment, folder, key, workers)
    for sentence in data.report:
        say(sentence)
    return data


def _with_ready_tokenizers(experiment: Experiment) -> Experiment:
    """A training that starts from a model takes its tokenizers too, unless others are named."""
    start = experiment.training.init_from
    if start is None or experiment.tokenizer.src_file is not None:
        return experiment
    src, tgt = model_dir.tokenizer_paths(Path(start))
    return replace(experiment, tokenizer=TokenizerConfig(src_file=str(src), tgt_file=str(tgt)))


def _build(experiment: Experiment, folder: Path, key: str, workers: int) -> CorpusData:
    if folder.exists() and any(folder.iterdir()) and not (folder / "text").is_dir():
        raise DataError(f"{folder} holds other files: name an empty or new folder")
    (folder / "text").mkdir(parents=True, exist_ok=True)
    (folder / "report.json").unlink(missing_ok=True)
    report = list(BUILDERS[experiment.training.task](experiment, folder, workers))
    (folder / "report.json").write_text(json.dumps({"key": key, "report": report}, indent=2, ensure_ascii=False))
    return CorpusData(folder, tuple(report))


def _build_pairs(experiment: Experiment, folder: Path, workers: int) -> Iterator[str]:
    yield from write_texts(experiment.corpus, _files(experiment.corpus), folder / "text")
    yield from _train_tokenizers(experiment.tokenizer, folder)
    yield from _prepare_ids(experiment, folder, workers)


Builder = Callable[[Experiment, Path, int], Iterator[str]]
BUILDERS: Mapping[TaskName, Builder] = {
    "translation": _build_pairs,
    "language_modelling": build_text,
    "parsing": build_treebank,
}
"""What a corpus becomes, by task: each fills a folder, with so many processes, and yields sentences about it."""


def _content_digest(folder: Path) -> str:
    """Of prepared pairs or columns."""
    return str(columns.read_meta(folder)["digest"]) if columns.is_columns(folder) else read_meta(folder).digest


def _finished(folder: Path, key: str) -> CorpusData | None:
    try:
        found = json.loads((folder / "report.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return None
    return CorpusData(folder, tuple(found["report"])) if found.get("key") == key else None


def _key(experiment: Experiment) -> str:
    """Digest of the corpus's bytes and of every setting that shapes the data."""
    corpus, training = experiment.corpus, experiment.training
    files = {split: [_digest(path) for path in paths] for split, paths in _files(corpus).items()}
    tokenizer = asdict(experiment.tokenizer)
    for name in ("src_file", "tgt_file"):
        if tokenizer[name] is not None:
            tokenizer[name] = _digest(Path(tokenizer[name]))
    settings = {
        "corpus": files or f"{corpus.name} {__version__}",  # the shipped pairs may change with the package
        "fields": [corpus.src_field, corpus.tgt_field],
        "held_out": [corpus.held_out_valid, corpus.held_out_test, corpus.split_seed],
        "tokenizer": tokenizer,
        "limits": [training.max_src_tokens, training.max_tgt_tokens, training.long_pairs],
    }
    if corpus.splits != "given":
        settings["splits"] = corpus.splits  # a later setting: without it, folders made before keep their keys
    if training.task != "translation":
        settings["task"] = training.task  # likewise
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


def _digest(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise DataError(f"{path} cannot be read ({error.strerror}): check the path") from error


def _files(corpus: CorpusConfig) -> dict[str, list[Path]]:
    """The files of each split; empty for the phrasebook, which is shipped."""
    if corpus.name is None:
        if not corpus.train:
            raise ConfigError(
                "there is no corpus: give source and target files, or set corpus.name or corpus.train in the config"
            )
        return {split: [Path(p) for p in getattr(corpus, split)] for split in SPLITS if getattr(corpus, split)}
    if corpus.name == PHRASEBOOK:
        return {}
    folder, languages = corpora.locate(corpus.name), languages_of(corpus)
    found = {}
    for split in SPLITS:
        own = getattr(corpus, split)
        names = [split, *(s.name for s in corpora.describe(corpus.name).splits if s.name.startswith(split))]
        published = ([folder / f"{name}.{language}" for language in languages] for name in names)
        paths = [Path(p) for p in own] or next((p for p in published if all(path.exists() for path in p)), [])
        if paths:
            found[split] = paths
    if "train" not in found:
        raise DataError(
            f"corpus {corpus.name} has no pair {languages[0]}-{languages[1]}: set corpus.src_lang and tgt_lang"
        )
    return found


def languages_of(corpus: CorpusConfig) -> tuple[str, str]:
    """Source and target language: as set, or the first pair that a named corpus is used for."""
    if corpus.src_lang != "und" and corpus.tgt_lang != "und":
        return corpus.src_lang, corpus.tgt_lang
    if corpus.name == PHRASEBOOK:
        return "pt", "en"
    if corpus.name is not None:
        return corpora.describe(corpus.name).pairs[0]
    return corpus.src_lang, corpus.tgt_lang


def is_pretokenized(corpus: CorpusConfig) -> bool:
    """Whether the text is tokenised already, by the config or by the catalogue."""
    named = corpus.name is not None and corpus.name != PHRASEBOOK
    return corpus.pretokenized or (named and corpora.describe(str(corpus.name)).tokenised)


def _train_tokenizers(config: TokenizerConfig, folder: Path) -> Iterator[str]:
    """Both tokenizers, trained on the training text or taken from ready files."""
    paths = {side: folder / f"tokenizer.{side}.json" for side in ("src", "tgt")}
    if config.src_file is not None and config.tgt_file is not None:
        for side, file in (("src", config.src_file), ("tgt", config.tgt_file)):
            Tokenizer.load(Path(file)).save(paths[side])
        return
    pairs = TextPairs(folder / "text", "train")
    sides: dict[str, Iterable[str]] = {"src": (a for a, _ in pairs), "tgt": (b for _, b in pairs)}
    if config.sharing == "shared":
        sides = {"src": chain(sides["src"], sides["tgt"])}
    for side, lines in sides.items():
        trained = train_tokenizer(config, lines)
        for target in paths if config.sharing == "shared" else [side]:
            trained.save(paths[target])
    sizes = {side: Tokenizer.load(path).vocab_size for side, path in paths.items()}
    yield f"tokenizers: {config.kind}, {sizes['src']:,} source and {sizes['tgt']:,} target tokens" + (
        f" (the text allows no more than these of the {config.vocab_size:,} asked for)"
        if max(sizes.values()) < config.vocab_size
        else ""
    )


def _prepare_ids(experiment: Experiment, folder: Path, workers: int) -> Iterator[str]:
    src, tgt = (Tokenizer.load(folder / f"tokenizer.{side}.json") for side in ("src", "tgt"))
    training = experiment.training
    for split in ("train", "valid"):
        report = prepare(
            TextPairs(folder / "text", split),
            src,
            tgt,
            folder / split,
            max_src_tokens=training.max_src_tokens,
            max_tgt_tokens=training.max_tgt_tokens,
            long_pairs=training.long_pairs,
            workers=workers,
        )
        yield f"{split}: {report.counts.describe()}"
