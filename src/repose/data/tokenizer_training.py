"""Learning a tokenizer: lines of text to the content of a tokenizer.json."""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice, pairwise
from typing import Any, Literal, get_args

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from repose.system.errors import ConfigError, DataError, unknown

Kind = Literal["wordpiece", "wordlevel", "bpe", "unigram"]
PAD, UNK, START, END = 0, 1, 2, 3
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[START]", "[END]")  # index = id
BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())  # the library's 256 printable stand-ins for the 256 bytes

_CONTINUATION = "##"
_MAX_CHARS_PER_WORD = 100  # WordPiece: longer words are [UNK]
_MAX_PIECE_BYTES = 48  # Unigram: SentencePiece's 16 characters, of up to three bytes
_LINES_PER_FEED = 1000
_RUN_CHARS = 256
_LONG_RUN = re.compile(rf"\S{{{_RUN_CHARS}}}|\s{{{_RUN_CHARS}}}")


def learn(
    lines: Iterable[str], *, kind: Kind, vocab_size: int, lowercase: bool, strip_accents: bool, min_frequency: int
) -> str:
    """The JSON of a tokenizer of that kind; settings and errors as for `Tokenizer.train`."""
    if kind not in get_args(Kind):
        raise ConfigError(unknown("tokenizer kind", kind, get_args(Kind)))
    if min_frequency < 1:
        raise ConfigError(f"min_frequency is {min_frequency}: it must be at least 1")
    if kind == "unigram" and min_frequency != 1:
        raise ConfigError("a unigram tokenizer knows no min_frequency: leave it at 1, or use bpe")
    if kind != "wordpiece":  # whose alphabet the text decides
        _check_vocab_size(vocab_size, kind, alphabet_size=0 if kind == "wordlevel" else len(BYTES))
    first: tuple[str, ...] = SPECIAL_TOKENS
    if kind == "wordpiece":
        # The library numbers ##-characters as its hash map happens to give them, and breaks ties by number: two
        # trainings differ. So the alphabet is learned alone, sorted, and handed back like special tokens.
        lines = list(lines)
        backend = _untrained(kind, lowercase=lowercase, strip_accents=strip_accents)
        _feed(backend, lines, _trainer(kind, 0, min_frequency, SPECIAL_TOKENS))
        first += tuple(sorted(set(backend.get_vocab()) - set(SPECIAL_TOKENS)))
        _check_vocab_size(vocab_size, kind, alphabet_size=len(first) - len(SPECIAL_TOKENS))
    backend = _untrained(kind, lowercase=lowercase, strip_accents=strip_accents)
    _feed(backend, lines, _trainer(kind, vocab_size, min_frequency, first))
    if backend.get_vocab_size() == len(SPECIAL_TOKENS):
        raise ConfigError(f"no word is left at min_frequency {min_frequency}: lower it or add training text")
    special_ids = [("[START]", START), ("[END]", END)]
    backend.post_processor = processors.TemplateProcessing(single="[START] $A [END]", special_tokens=special_ids)
    return _without_extra_tokens(backend.to_str(pretty=True))


def _untrained(kind: Kind, *, lowercase: bool, strip_accents: bool) -> Any:
    """The pipeline around an empty model."""
    model: Any
    splitter: Any = pre_tokenizers.ByteLevel(add_prefix_space=False)
    decoder: Any = decoders.ByteLevel()
    match kind:
        case "wordpiece":
            model = models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=_MAX_CHARS_PER_WORD)
            splitter = pre_tokenizers.BertPreTokenizer()
            # cleanup would delete spaces before punctuation and turn "do not" into "don't".
            decoder = decoders.WordPiece(prefix=_CONTINUATION, cleanup=False)
        case "wordlevel":
            model, splitter, decoder = models.WordLevel(unk_token="[UNK]"), pre_tokenizers.Whitespace(), None
        case "bpe":
            model = models.BPE()
        case "unigram":
            model = models.Unigram()
    backend: Any = tokenizers.Tokenizer(model)
    backend.pre_tokenizer = splitter
    if decoder is not None:  # without one, the library joins words by spaces
        backend.decoder = decoder
    words = kind == "wordpiece"  # clean control characters away, and make each Chinese character a word
    # BERT's normalizer strips exactly Mn; the library's StripAccents would take spacing vowel signs (Mc) too.
    bert = normalizers.BertNormalizer(words, words, strip_accents=strip_accents, lowercase=False)
    steps: list[Any] = [bert] if words or strip_accents else []
    if strip_accents:
        steps.append(normalizers.NFC())  # otherwise Hangul would stay in letters
    if lowercase:
        steps.append(normalizers.Lowercase())
    if steps:
        backend.normalizer = normalizers.Sequence(steps)
    return backend


def _trainer(kind: Kind, vocab_size: int, min_frequency: int, special_tokens: Sequence[str]) -> Any:
    common: dict[str, Any] = {"vocab_size": vocab_size, "special_tokens": list(special_tokens), "show_progress": False}
    match kind:
        case "wordpiece":
            return trainers.WordPieceTrainer(**common, min_frequency=min_frequency)
        case "wordlevel":
            return trainers.WordLevelTrainer(**common, min_frequency=min_frequency)
        case "bpe":
            return trainers.BpeTrainer(**common, min_frequency=min_frequency, initial_alphabet=BYTES)
        case "unigram":
            pieces: dict[str, Any] = {"initial_alphabet": BYTES, "max_piece_length": _MAX_PIECE_BYTES}
            return trainers.UnigramTrainer(**common, **pieces, unk_token="[UNK]")


def _without_extra_tokens(text: str) -> str:
    """The JSON with none but our four marked as special."""
    spec = json.loads(text)
    spec["added_tokens"] = [token for token in spec["added_tokens"] if token["content"] in SPECIAL_TOKENS]
    return json.dumps(spec, indent=1, ensure_ascii=False)


def _check_vocab_size(vocab_size: int, kind: Kind, *, alphabet_size: int) -> None:
    minimum = alphabet_size + len(SPECIAL_TOKENS) + 1
    if vocab_size < minimum:
        parts = f"alphabet {alphabet_size}, special tokens {len(SPECIAL_TOKENS)}, and one more"
        raise ConfigError(f"vocab_size is {vocab_size}, but {kind} needs at least {minimum} for this text: {parts}")


def _feed(backend: Any, lines: Iterable[str], trainer: Any) -> None:
    """Train on lines; raises DataError when none holds text."""
    has_text = False

    def feeds() -> Iterator[list[str]]:
        nonlocal has_text
        rest = iter(lines)
        while feed := list(islice(rest, _LINES_PER_FEED)):
            check_unicode(feed)
            has_text = has_text or any(line.strip() for line in feed)
            yield [piece for line in feed for piece in _cut(line)]

    backend.train_from_iterator(feeds(), trainer)
    if not has_text:
        raise DataError("the tokenizer has no text to train on: every line is empty")


def _cut(line: str) -> list[str]:
    """The line, cut inside runs without a word boundary that are too long: learning takes quadratic time in them."""
    ends = [run.end() for run in _LONG_RUN.finditer(line)] if len(line) >= _RUN_CHARS else []
    return [line[start:end] for start, end in pairwise([0, *ends, len(line)])]


def check_unicode(texts: Iterable[str]) -> None:
    """Raises DataError for a lone surrogate."""
    # Some versions of the library would put U+FFFD in the place of a surrogate without a word.
    for text in texts:
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise DataError(f"{text[:40]!r} holds a lone surrogate, which is no text: read it as UTF-8") from error
