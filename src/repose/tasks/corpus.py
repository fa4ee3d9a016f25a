"""Prepare a corpus for training: split it, train tokenizers, and write token ids.

Everything lies in one folder, `<cache>/prepared/<key>`, whose key is a digest of the corpus's bytes and of the settings
that shape the data. Runs of the same corpus and settings share it; a finished one is reused at once.

    text/train.src, train.tgt, valid.src, ...   sentence pairs as read, one per line (of tasks that read pairs)
    check.json                                  what a look at the files found (of tasks that read pairs)
    tokenizer.src.json, tokenizer.tgt.json      the same one twice, for tasks with a single tokenizer
    train/, valid/, test/                       token ids (pairs: `repose.data.dataset`; others: `repose.data.columns`)
    report.json                                 what was read, dropped, split off and cut, by reason; written last
"""

import hashlib
import json
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from itertools import chain
from pathlib import Path

from pydantic import ValidationError

from repose.config.experiment import (
    TASK_SETTINGS,
    UNUSED_WITH_READY_TOKENIZER,
    CorpusConfig,
    Experiment,
    TokenizerConfig,
)
from repose.data import advice, corpora, phrasebook
from repose.data.pairs import TextPairs, write_pairs
from repose.data.prepare import LengthLimits, prepare
from repose.data.readers import PairReader, UnequalLinesError, kind_of
from repose.data.splits import hold_out
from repose.data.tags import TaggingEncoder, check_tags, tag_pairs
from repose.data.tokenizer import Tokenizer
from repose.saved_model.directory import tokenizer_paths
from repose.system.errors import ConfigError, DataError
from repose.system.files import (
    check_writable,
    checksums,
    name_when_whole,
    remove_half_written,
    sealed,
    unsealed,
    write_json,
)
from repose.system.locks import locked, making_lock, remove_held, share_lock, using_lock
from repose.system.terminal import Say, counted, quoted
from repose.tasks import more_corpora
from repose.tasks.corpus_files import (
    PHRASEBOOK,
    SPLITS,
    check_files,
    files_of,
    is_pretokenized,
    languages_of,
    languages_of_part,
    parts_of,
    reader_of,
    takes_published_test,
)
from repose.tasks.prepared import CHECK, CorpusData, digest_of, tokenizer_file
from repose.tasks.registry import get_task

REPORT = "report.json"
_LOCK = ".lock"
"""Lock file, held while a folder chosen by the user is being filled."""
_VERSION = 1
"""Version of the keys of prepared folders: increase it when the same files and settings give different data."""
_READY = ("src_file", "tgt_file")
SET_NAMES = {"train": "training", "valid": "validation", "test": "test"}
HELD_OUT_SHARE, MOST_HELD_OUT = 0.05, 500  # share and maximum of pairs to hold out if there is no valid or test set


def kept_corpus(key: str) -> CorpusData | None:
    """Return the cached corpus with this key, or None. It stays in the cache while the result exists.

    Raises DataError if it has changed since it was made.
    """
    place = corpora.prepared_home() / key
    if not key or not place.is_dir():
        return None
    with locked(making_lock(place)):
        data = _finished(place, key)
        if data is not None:
            share_lock(using_lock(place), data)
    return data


def prepare_corpus(
    experiment: Experiment, *, folder: Path | None = None, workers: int = 1, say: Say = lambda _: None
) -> CorpusData:
    """Read, split and tokenise a corpus, in `folder` or in the cache. `workers`: number of threads that tokenise.

    A corpus in the cache stays there while the result exists (`repose.tasks.cache`).

    Raises DataError and ConfigError for an unusable corpus or settings, DataError also if an earlier preparation has
    changed since, and WriteError if the folder cannot be written.
    """
    experiment = _with_ready_tokenizers(experiment)
    key = _key(experiment)
    place = corpora.prepared_home() / key if folder is None else folder.absolute()
    lock = making_lock(place)
    if folder is not None:
        check_writable(place)
        lock = place / _LOCK  # inside the folder, because files beside a user's folder are not ours
    waiting = "another process prepares this corpus: waiting for it"
    with locked(lock, on_wait=lambda: say(waiting)):
        try:
            data = _finished(place, key) or _build(experiment, place, key, workers, in_cache=folder is None)
        finally:
            if folder is not None:
                remove_held(lock)
        if folder is None:
            share_lock(using_lock(place), data)
    for sentence in (*data.report, *advice.summary(data.check, pretokenized=is_pretokenized(experiment.corpus))):
        say(sentence)
    return data


def _with_ready_tokenizers(experiment: Experiment) -> Experiment:
    """Take the initial model's tokenizers, if there is one and no others are named."""
    start = experiment.training.init_from
    if start is None or experiment.tokenizer.src_file is not None:
        return experiment
    src, tgt = tokenizer_paths(Path(start))
    try:
        return replace(experiment, tokenizer=TokenizerConfig(src_file=str(src), tgt_file=str(tgt)))
    except ValidationError as error:
        sentence = error.errors(include_url=False)[0]["ctx"]["error"]
        raise ConfigError(f"training.init_from = {start!r} brings a tokenizer for each side: {sentence}") from None


def _build(experiment: Experiment, folder: Path, key: str, workers: int, *, in_cache: bool) -> CorpusData:
    others = [path for path in folder.iterdir() if path.name != _LOCK] if folder.exists() else []
    is_begun = [path.name for path in others] == ["text"] and not any((folder / "text").iterdir())
    if others and not is_begun and not _is_ours(folder, experiment):
        raise DataError(f"{folder} holds other files: name an empty or new folder")
    (folder / "text").mkdir(parents=True, exist_ok=True)
    for place in (folder, folder / "text"):
        remove_half_written(place)
    (folder / REPORT).unlink(missing_ok=True)
    try:
        report = list(get_task(experiment.training.task).prepare(experiment, folder, workers))
    except (ConfigError, DataError):
        if in_cache:  # or every failed attempt would leave the corpus's text there
            shutil.rmtree(folder, ignore_errors=True)
        raise
    (folder / CHECK).unlink(missing_ok=True)
    if TASK_SETTINGS[experiment.training.task].translates:
        write_json(folder / CHECK, check_files(experiment.corpus).to_json())
    corpus = experiment.corpus
    of = corpus.name or ", ".join(Path(path).name for path in corpus.train)  # for `repose cache`
    write_json(folder / REPORT, sealed({"key": key, "of": of, "report": report, "crc32": checksums(folder)}))
    return CorpusData(folder, tuple(report))


_TEXT = re.compile(r"(train|valid|test|also\d+|synthetic)\.(src|tgt)")


def _is_ours(folder: Path, experiment: Experiment) -> bool:
    """Return whether a folder holds a preparation, finished or not, so that it may be overwritten."""
    corpus, text, ready = experiment.corpus, folder / "text", experiment.tokenizer
    further = (str(path) for part in parts_of(corpus) for path in part.files)
    files = (*corpus.train, *corpus.valid, *corpus.test, *further, *filter(None, (ready.src_file, ready.tgt_file)))
    texts = list(text.iterdir()) if text.is_dir() else []
    written = bool(texts) and all(_TEXT.fullmatch(name_when_whole(path.name) or path.name) for path in texts)
    return written and not any(Path(path).resolve().is_relative_to(folder.resolve()) for path in files)


def _finished(folder: Path, key: str) -> CorpusData | None:
    """Return the corpus in a folder if it was finished with this key."""
    try:
        record = json.loads((folder / REPORT).read_text(encoding="utf-8"))
        if record["key"] != key or unsealed(record) is None:
            return None
        report, expected = tuple(map(str, record["report"])), dict(record["crc32"])
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
    present = checksums(folder)
    if changed := [name for name, crc in expected.items() if present.get(name) != crc]:
        raise DataError(
            f"the prepared corpus {folder} has changed since it was made ({changed[0]}): delete that folder, and it is "
            "prepared again"
        )
    return CorpusData(folder, report)


def _key(experiment: Experiment) -> str:
    """Return a digest of the corpus's bytes and of every setting that shapes the data
    (`corpus_files.shaping_settings`)."""
    corpus, training, tokenizer = experiment.corpus, experiment.training, experiment.tokenizer
    parts = parts_of(corpus)
    files = {**files_of(corpus), **{part.name: part.files for part in parts}}
    ready = {name: path and digest_of(Path(path)) for name, path in asdict(tokenizer).items() if name in _READY}
    settings = {
        "version": _VERSION,
        "files": {name: [[kind_of(path), digest_of(path)] for path in paths] for name, paths in files.items()},
        "phrasebook": phrasebook.digest() if corpus.name == PHRASEBOOK else None,
        "fields": [corpus.src_field, corpus.tgt_field],
        # Languages decide which columns, fields and texts of a memory are read, and how lines are checked.
        "languages": [*languages_of(corpus), *(languages_of_part(corpus, part.files) for part in parts)],
        "splits": [corpus.splits, corpus.held_out_valid, corpus.held_out_test, corpus.split_seed],
        "tags": [corpus.tag, *(part.tag for part in parts)],
        "tokenizer": {**asdict(tokenizer), **ready},
        "limits": [training.max_src_tokens, training.max_tgt_tokens, training.long_pairs],
        "task": training.task,
    }
    return hashlib.sha256(json.dumps(settings, sort_keys=True).encode()).hexdigest()[:16]


# Texts


def published_text(corpus: CorpusConfig, split: str) -> tuple[list[str], list[str]]:
    """Return sources and references of another set of a published corpus, such as test_2017_flickr. Raises DataError if
    there is no such set."""
    paths = [corpora.locate(str(corpus.name)) / f"{split}.{language}" for language in languages_of(corpus)]
    if not all(path.exists() for path in paths):
        known = [one.name for one in corpora.describe(str(corpus.name)).splits if one.name not in SPLITS]
        raise DataError(f"this corpus has no {split} set: choose one of {', '.join([*SPLITS, *known])}")
    pairs = list(PairReader(paths))
    return [src for src, _ in pairs], [tgt for _, tgt in pairs]


# Corpora of one file per set, and one tokenizer


def one_file_per_set(experiment: Experiment, what: str) -> dict[str, Path]:
    """Return each set's file, for tasks that read one `what` ("text") per set. Raises ConfigError for none or
    several."""
    for split in SPLITS:
        paths = getattr(experiment.corpus, split)
        if len(paths) > 1 or (not paths and split != "test"):
            raise ConfigError(
                f"training.task = {experiment.training.task!r} takes one {what} file as corpus.{split}, "
                f"not {len(paths)}: set corpus.{split} to it"
            )
    return {split: Path(path) for split in SPLITS for path in getattr(experiment.corpus, split)}


def one_tokenizer(config: TokenizerConfig, lines: Iterable[str], folder: Path, tags: Sequence[str] = ()) -> Tokenizer:
    """Train a tokenizer on `lines`, or take a ready one, and write it to both of its places in a prepared folder."""
    if config.src_file != config.tgt_file:
        raise ConfigError("this task has one tokenizer: set tokenizer.src_file and tokenizer.tgt_file to the same file")
    tokenizer = _tokenizer(config, config.src_file, lines, tags)
    for side in ("src", "tgt"):
        tokenizer.save(tokenizer_file(folder, side))
    return tokenizer


def _tokenizer(config: TokenizerConfig, ready: str | None, lines: Iterable[str], tags: Sequence[str]) -> Tokenizer:
    if ready is not None:
        return Tokenizer.load(Path(ready))
    return Tokenizer.train(lines, tags=tags, **{name: getattr(config, name) for name in UNUSED_WITH_READY_TOKENIZER})


# Corpora of sentence pairs


def prepare_pairs(experiment: Experiment, folder: Path, workers: int) -> Iterator[str]:
    """Write the texts, tokenizers and ids of a corpus of sentence pairs; yield sentences about them."""
    corpus, text = experiment.corpus, folder / "text"
    if (ready := experiment.tokenizer.src_file) is not None:  # before the corpus is read, which may take long
        check_tags(Tokenizer.load(Path(ready)), corpus.tags)
    yield from _write_texts(corpus, files_of(corpus), text)
    yield from more_corpora.write_parts(corpus, text)
    yield from _pair_tokenizers(experiment.tokenizer, corpus, folder)
    src, tgt = (Tokenizer.load(tokenizer_file(folder, side)) for side in ("src", "tgt"))
    sets = {
        "train": more_corpora.training_pairs(corpus, text),
        "valid": tag_pairs(TextPairs(text, "valid"), corpus.tag),
    }
    c = experiment.training
    limits = LengthLimits(c.max_src_tokens, c.max_tgt_tokens, c.long_pairs)
    for split, pairs in sets.items():
        try:
            counts = prepare(pairs, (TaggingEncoder(src), tgt), folder / split, limits, workers=workers)
        except DataError as error:
            raise DataError(f"{split}: {error}") from error
        yield f"{split}: {counts.describe()}"


def _write_texts(corpus: CorpusConfig, files: Mapping[str, list[Path]], folder: Path) -> Iterator[str]:
    """Write `<split>.src` and `<split>.tgt`; yield sentences about what was dropped and held out."""
    for stale in folder.glob("*"):
        stale.unlink()
    if corpus.name == PHRASEBOOK:
        if corpus.valid or corpus.test:
            raise ConfigError(
                "the phrasebook has validation and test sets of its own: leave corpus.valid and corpus.test out, or "
                "measure the trained model on files with `repose evaluate`"
            )
        wanted = SPLITS if takes_published_test(corpus) else SPLITS[:2]
        shipped = {split: pairs for split, pairs in phrasebook.read().items() if split in wanted}
        for split, pairs in shipped.items():
            write_pairs(folder, split, pairs)
        yield f"phrasebook: {', '.join(f'{len(p):,} {SET_NAMES[split]}' for split, p in shipped.items())} pairs"
    for split, paths in files.items():
        reader = reader_of(corpus, paths, split)
        try:
            write_pairs(folder, split, reader)
        except UnequalLinesError as error:
            named = " ".join(quoted(path) for path in paths)
            raise DataError(f"{error}; to see where they diverge, run `repose check {named}`") from error
        yield f"{split}: {reader.counts.describe()}"
    if corpus.splits == "merged":
        _merge(folder)
    has_valid, has_test = ((folder / f"{split}.src").exists() for split in ("valid", "test"))
    asked = (has_valid, "valid", corpus.held_out_valid), (has_test, "test", corpus.held_out_test)
    for has_set, split, number in asked:
        if has_set and number is not None:
            yield f"corpus.held_out_{split} is not used: the corpus has its own {SET_NAMES[split]} set"
    wants_test = corpus.splits == "given" and corpus.held_out_test  # beside a validation set only on request
    if not has_valid or (wants_test and not has_test):
        yield _hold_out(corpus, folder)


def _merge(folder: Path) -> None:
    """Merge all sets into `train`."""
    sets = [TextPairs(folder, split) for split in SPLITS if (folder / f"{split}.src").exists()]
    write_pairs(folder, "train", chain.from_iterable(sets))  # replaces `train` after all sets are read
    for path in (path for split in ("valid", "test") for path in TextPairs(folder, split).paths):
        path.unlink(missing_ok=True)


def _hold_out(corpus: CorpusConfig, folder: Path) -> str:
    """Hold out validation and test pairs from `train`, unless these sets exist."""
    pairs = TextPairs(folder, "train")
    total = sum(1 for _ in pairs)
    has_valid, has_test = ((folder / f"{split}.src").exists() for split in ("valid", "test"))
    result = hold_out(
        pairs,
        num_valid=0 if has_valid else _num_held_out(corpus.held_out_valid, total),
        num_test=0 if has_test else _num_held_out(corpus.held_out_test, total),
        seed=corpus.split_seed,
        apart_from=TextPairs(folder, "valid") if has_valid else TextPairs(folder, "test") if has_test else (),
    )
    write_pairs(folder, "train", result.train)
    for split, held_out in (("valid", result.valid), ("test", result.test)):
        if held_out:
            write_pairs(folder, split, held_out)
    taken = f"{len(result.valid):,} validation and {counted(len(result.test), 'test pair')}"
    return f"held out: {taken}, {result.num_train:,} left to train on" + (
        f", {counted(result.duplicates, 'repetition')} of held-out pairs dropped" if result.duplicates else ""
    )


def _num_held_out(wanted: float | None, total: int) -> int:
    """Return how many pairs to hold out of `total`: `wanted` as a number or share, or the default."""
    if wanted is None:
        return min(MOST_HELD_OUT, max(1, int(total * HELD_OUT_SHARE)))
    return max(1, round(wanted * total)) if isinstance(wanted, float) else wanted


def _pair_tokenizers(config: TokenizerConfig, corpus: CorpusConfig, folder: Path) -> Iterator[str]:
    """Train both tokenizers on the training text, or take ready files. Tags belong to the source tokenizer only."""
    sides = more_corpora.training_text(corpus, folder / "text")
    if config.src_file is None and config.sharing == "shared":
        sizes = [one_tokenizer(config, chain(*sides), folder, corpus.tags).vocab_size] * 2
    else:
        sizes = []
        for side, ready, lines in zip(("src", "tgt"), (config.src_file, config.tgt_file), sides, strict=True):
            tokenizer = _tokenizer(config, ready, lines, corpus.tags if side == "src" else ())
            tokenizer.save(tokenizer_file(folder, side))
            sizes.append(tokenizer.vocab_size)
    if config.src_file is None:
        too_short = f" (the text allows no more, though {config.vocab_size:,} were asked for)"
        yield f"tokenizers: {config.kind}, {sizes[0]:,} source and {sizes[1]:,} target tokens" + (
            too_short if max(sizes) < config.vocab_size else ""
        )
