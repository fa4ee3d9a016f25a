"""Tokenizers: text to token ids and back, as Hugging Face `tokenizers` objects stored in a tokenizer.json.

Four kinds, each trained here on lines of text:

- `wordpiece`: as in the papers. Words are split into a first piece and ## pieces. A word that cannot be built from
  pieces, or is longer than 100 characters, becomes a single [UNK]. Its learner:
  docs/decisions/001-wordpiece-learner.md.
- `wordlevel`: words and runs of punctuation that occur at least `min_frequency` times; any other is [UNK].
- `bpe`, `unigram`: over the 256 bytes and without normalizer: decode(encode(x)) == x, and [UNK] never occurs.

Text never yields [PAD], [START] or [END], whatever it contains: a literal "[END]" is split up like any other word.

Importing this module sets TOKENIZERS_PARALLELISM=false unless the variable is set already, because the library's
threads do not survive a fork (its versions before 0.22 print a warning then). A large corpus is encoded by several of
our own threads.
"""

import hashlib
import json
import operator
import os
import re
import unicodedata
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from itertools import accumulate, islice, pairwise
from pathlib import Path
from typing import Any, Literal, get_args

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

from repose.data.normalization import Normalization
from repose.data.token_labels import byte_labels, piece_labels
from repose.system.errors import ConfigError, DataError, unknown
from repose.system.files import write_file
from repose.system.numbers import is_whole
from repose.system.token_ids import END, MOST_TOKENS, PAD, START, UNK, check_tag

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

Kind = Literal["wordpiece", "wordlevel", "bpe", "unigram"]
SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[START]", "[END]")  # index = id
BYTES = sorted(pre_tokenizers.ByteLevel.alphabet())  # the library's 256 printable stand-ins for the 256 bytes

_CONTINUATION = "##"
_MAX_CHARS_PER_WORD = 100  # WordPiece: longer words are [UNK]
_MAX_PIECE_BYTES = 48  # Unigram: SentencePiece's 16 characters, of up to three bytes
_LINES_PER_FEED = 1000
_RUN_CHARS = 256
_JAMO = {chr(code) for code in range(0x1160, 0x1200)}
"""Korean vowels and final consonants, which NFC composes with the consonant before them."""
_LONG_RUN = re.compile(rf"\S{{{_RUN_CHARS}}}|\s{{{_RUN_CHARS}}}")

_KINDS: dict[str, Kind] = {"WordPiece": "wordpiece", "WordLevel": "wordlevel", "BPE": "bpe", "Unigram": "unigram"}


class Tokenizer:
    """A tokenizer whose ids 0 to 3 are [PAD] [UNK] [START] [END]; immutable, and picklable through its JSON.

    `json` is the content of its tokenizer.json, which alone determines every property.
    """

    def __init__(self, text: str, *, name: str = "tokenizer.json") -> None:
        """`text` is the content of a tokenizer.json, and `name` its name in errors. Raises DataError as `load` does."""
        self.json = text
        self._backend = _backend(text, name)
        self._spec: dict[str, Any] = json.loads(self._backend.to_str())  # with the defaults that `text` may omit
        self._steps = _steps(self._spec["normalizer"])
        self._normalization, rest = Normalization.taken_from(self._steps)
        if len(rest) < len(self._steps):  # `normalized` runs in Python, in a tenth of the library's time
            self._backend.normalizer = _normalizer(rest)
        self.kind: Kind = _KINDS[self._spec["model"]["type"]]
        self.vocab_size: int = 1 + max(self._backend.get_vocab().values())  # at most what `train` was given
        self._encode_batch = getattr(self._backend, "encode_batch_fast", self._backend.encode_batch)

    @classmethod
    def train(
        cls,
        lines: Iterable[str],
        *,
        kind: Kind,
        vocab_size: int,
        lowercase: bool = False,
        strip_accents: bool = False,
        single_digits: bool = False,
        min_frequency: int = 1,
        tags: Sequence[str] = (),
    ) -> "Tokenizer":
        """Learn a vocabulary of at most `vocab_size` tokens; it is smaller if the text does not yield that many.

        `strip_accents` removes nonspacing marks (category Mn) after canonical decomposition (ż→z, й→и, but not ł) and
        composes the rest; `lowercase` is applied after it. With `single_digits`, no token holds more than one digit, so
        a model can copy any number. `min_frequency` counts words for `wordlevel`, and pairs of pieces for `bpe` and
        `wordpiece`; `unigram` has none. `wordpiece` holds all lines in memory, the others stream them. `tags` are
        reserved tokens in addition to the four special ones (`repose.data.tags`). The same lines give the same
        tokenizer, except for `unigram`: its learner adds floats in random order, so scores differ in their last digits,
        and occasionally a piece does.

        Raises ConfigError for settings that cannot be met, DataError for lines without text or with lone surrogates.
        """
        _check_several(lines)
        if isinstance(tags, str):
            raise ConfigError(f"tags = {tags!r}: give a list, as in [{tags!r}]")
        reserved = (*SPECIAL_TOKENS, *(f"[{check_tag(tag)}]" for tag in tags))
        if kind not in get_args(Kind):
            raise ConfigError(unknown("kind of tokenizer", kind, get_args(Kind)))
        if not is_whole(vocab_size) or vocab_size > MOST_TOKENS:
            raise ConfigError(f"vocab_size = {vocab_size!r}: give a whole number of tokens, at most {MOST_TOKENS:,}")
        if not is_whole(min_frequency) or min_frequency < 1:
            raise ConfigError(f"min_frequency = {min_frequency!r}: give a whole number, at least 1")
        if kind == "wordlevel" and single_digits:
            raise ConfigError(
                "a wordlevel tokenizer puts a space between tokens, digits too: use bpe for single_digits"
            )
        if kind == "unigram" and min_frequency != 1:
            raise ConfigError("a unigram tokenizer knows no min_frequency: leave it at 1, or use bpe")
        if kind != "wordpiece":  # its alphabet depends on the text
            _check_vocab_size(vocab_size, kind, alphabet_size=len(tags) + (0 if kind == "wordlevel" else len(BYTES)))
        first = reserved
        how = {"lowercase": lowercase, "strip_accents": strip_accents, "single_digits": single_digits}
        if kind == "wordpiece":
            # The library numbers ##-characters in the order of its hash map and breaks ties by number, so two trainings
            # differ. So the alphabet is learned separately, sorted, and passed back like special tokens.
            lines = list(lines)
            backend = _untrained(kind, **how)
            _feed(backend, lines, _trainer(kind, 0, min_frequency, reserved))
            first += tuple(sorted(set(backend.get_vocab()) - set(reserved)))
            _check_vocab_size(vocab_size, kind, alphabet_size=len(first) - len(SPECIAL_TOKENS))
        backend = _untrained(kind, **how)
        _feed(backend, lines, _trainer(kind, vocab_size, min_frequency, first))
        if backend.get_vocab_size() == len(reserved):
            raise ConfigError(f"no word is left at min_frequency {min_frequency}: lower it or add training text")
        special_ids = [("[START]", START), ("[END]", END)]
        backend.post_processor = processors.TemplateProcessing(single="[START] $A [END]", special_tokens=special_ids)
        spec = json.loads(backend.to_str())
        # Only our four special tokens and the tags stay special.
        spec["added_tokens"] = [token for token in spec["added_tokens"] if token["content"] in reserved]
        trained = cls(json.dumps(spec, indent=1, ensure_ascii=False))
        assert trained.lossless == (kind in ("bpe", "unigram") and not lowercase and not strip_accents)
        return trained

    @classmethod
    def load(cls, path: str | Path) -> "Tokenizer":
        """Read a tokenizer.json. Raises DataError if it is missing, damaged or lacks our special tokens."""
        path = Path(path)
        try:
            return cls(path.read_text(encoding="utf-8"), name=str(path))
        except UnicodeDecodeError as error:
            raise DataError(f"{path} is damaged: it is not UTF-8 text, so train or copy the tokenizer again") from error
        except OSError as error:
            raise DataError(f"no tokenizer can be read from {path}: {error.strerror}") from error

    def save(self, path: str | Path) -> None:
        """Write tokenizer.json, whole or not at all, with the same bytes as were loaded. Raises WriteError."""
        write_file(Path(path), self.json)

    def normalizing(self, normalization: Normalization) -> "Tokenizer":
        """Return a tokenizer that first applies `normalization` to every text; this one if it already does."""
        steps = normalization.steps()
        if self._steps[: len(steps)] == steps:
            return self
        spec = json.loads(self.json)
        spec["normalizer"] = {"type": "Sequence", "normalizers": [*steps, *self._steps]}
        return Tokenizer(json.dumps(spec, indent=1, ensure_ascii=False))

    @cached_property
    def digest(self) -> str:
        """SHA-256 (hex) of the JSON with sorted keys and without layout: the tokenizer's identity."""
        canonical = json.dumps(json.loads(self.json), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode("ascii")).hexdigest()

    @cached_property
    def tags(self) -> dict[str, int]:
        """Reserved tokens other than the four special ones, by name, with their ids; most tokenizers have none."""
        added = [token for token in self._spec["added_tokens"] if token["special"] and token["id"] > END]
        return {token["content"][1:-1]: token["id"] for token in added if re.fullmatch(r"\[.+\]", token["content"])}

    @cached_property
    def _unsaid(self) -> frozenset[int]:
        return frozenset((PAD, START, END, *self.tags.values()))

    @cached_property
    def lowercase(self) -> bool:
        """Whether text is lower-cased."""
        return any(step["type"] == "Lowercase" or bool(step.get("lowercase")) for step in self._steps)

    @cached_property
    def strip_accents(self) -> bool:
        """Whether accents are stripped (by default, BERT's normalizer strips them exactly when it lower-cases)."""

        def strips(step: dict[str, Any]) -> bool:
            setting = step.get("strip_accents")
            return step["type"] == "StripAccents" or bool(step.get("lowercase") if setting is None else setting)

        return any(strips(step) for step in self._steps)

    @cached_property
    def lossless(self) -> bool:
        """Whether decode(encode(x)) == x for every valid Unicode x; False if that is not certain."""
        model = self._spec["model"]
        splitter, decoder = self._spec["pre_tokenizer"] or {}, self._spec["decoder"] or {}
        if splitter.get("type") == "Sequence" and [part["type"] for part in splitter["pretokenizers"]] == [
            "Digits",
            "ByteLevel",
        ]:
            splitter = splitter["pretokenizers"][1]
        return (
            self.kind in ("bpe", "unigram")
            and not self._steps
            and splitter.get("type") == decoder.get("type") == "ByteLevel"
            and not splitter["add_prefix_space"]
            and splitter["use_regex"]  # keeps brackets separate from letters, so that no text can spell "[END]"
            and not model.get("continuing_subword_prefix")
            and not model.get("end_of_word_suffix")
            and all((self._backend.token_to_id(byte) or 0) > END for byte in BYTES)
            and all(token["special"] for token in self._spec["added_tokens"])
        )

    def normalized(self, text: str) -> str:
        """Return the text after the normalization that `normalizing` was given."""
        return self._normalization(text)

    def encode(self, text: str) -> list[int]:
        """Return the ids of one text between START and END. Raises DataError for a lone surrogate."""
        return self.encode_batch([text])[0]

    def encode_batch(self, texts: Iterable[str]) -> list[list[int]]:
        """Return the ids of each text between START and END.

        Raises DataError for a lone surrogate, and ConfigError for a single string instead of several.
        """
        _check_several(texts)
        texts = list(texts)
        check_unicode(texts)
        try:
            encodings = self._encode_batch([*map(self._normalization, texts)], add_special_tokens=False)
        except Exception as error:  # the library raises bare exceptions, for vocabularies made elsewhere
            raise DataError(f"this tokenizer cannot encode a text, so train another: {error}") from error
        # A vocabulary trained elsewhere may hold "[END]" as a word that text can spell: encode that as [UNK].
        return [
            [START, *(token if token > END or token == UNK else UNK for token in encoding.ids), END]
            for encoding in encodings
        ]

    @property
    def splits_into_words(self) -> bool:
        """Whether text is split into words that no token crosses, as `words` returns them."""
        return self._backend.pre_tokenizer is not None

    def words(self, text: str) -> list[str]:
        """Split a text into words that no token crosses, in the alphabet of the vocabulary's entries."""
        normal = self._normalization(text)
        normal = self._backend.normalizer.normalize_str(normal) if self._backend.normalizer else normal
        return [word for word, _ in self._backend.pre_tokenizer.pre_tokenize_str(normal)]

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of ids: [PAD], [START], [END] and tags are dropped, [UNK] stays visible.

        Inverts `encode` only if `lossless`. Bytes that are not UTF-8, as a model may emit, become U+FFFD. WordPiece and
        WordLevel put one space between words and punctuation marks ("Hi , you !") and do not restore contractions.
        """
        words = [i for i in self._checked(ids) if i not in self._unsaid]
        return str(self._backend.decode(words, skip_special_tokens=False))  # True would drop [UNK], too

    def tokens(self, ids: Sequence[int]) -> list[str]:
        """Return the vocabulary entry of each id, special ones included.

        Bytes appear as the JSON's stand-ins (Ġ: space).
        """
        return [self._backend.id_to_token(i) or "[UNK]" for i in self._checked(ids)]

    def ids(self, tokens: Sequence[str]) -> list[int]:
        """Return the id of each token, as the inverse of `tokens`.

        A token outside the vocabulary gets the id of [UNK].
        """
        return [UNK if (i := self._backend.token_to_id(token)) is None else int(i) for token in tokens]

    def labels(self, ids: Sequence[int]) -> list[str]:
        """Return a readable label for each id (`repose.data.token_labels`): "cach", "·orro"; special tokens by name."""
        tokens = self.tokens(ids)
        special = {UNK, *self._unsaid}
        texts = [None if i in special else token for i, token in zip(ids, tokens, strict=True)]
        if (self._spec["decoder"] or {}).get("type") == "ByteLevel":
            labels = byte_labels(texts)
        else:
            labels = piece_labels(texts, str(self._spec["model"].get("continuing_subword_prefix") or ""))
        return [token if text is None else label for token, text, label in zip(tokens, texts, labels, strict=True)]

    def spans(self, text: str) -> list[tuple[int, int]]:
        """Locate each token of `encode(text)` in the text: its first character and the one after its last.

        Surrounding white space is excluded. START and END are (0, 0) and (n, n), for n characters.
        """
        offsets = self._with_all_steps.encode(text, add_special_tokens=False).offsets
        starts = [*(start for start, _ in offsets), len(text)]
        whole = ((start, _with_marks(text, end, starts[bisect_left(starts, end)])) for start, end in offsets)
        return [(0, 0), *(_without_space(text, start, end) for start, end in whole), (len(text), len(text))]

    @cached_property
    def _with_all_steps(self) -> Any:
        """The library's object with all normalizers, which knows a token's place in the original text."""
        return _backend(self.json, "tokenizer.json") if self._normalization != Normalization() else self._backend

    def most_tokens(self, text: str) -> int:
        """Return an upper bound of the tokens of `encode(text)` without encoding: a token covers at least a byte."""
        grown = 1 if text.isascii() or self._backend.normalizer is None else 3  # lower-casing can lengthen text
        return 2 + grown * self._normalization.most_bytes(text)

    def decoded_spans(self, ids: Sequence[int]) -> list[tuple[int, int]]:
        """Locate each token in `decode(ids)`, without surrounding white space."""
        text = self.decode(ids)
        ends = accumulate((min(len(text), len(self.decode(ids[: n + 1]))) for n in range(len(ids))), max, initial=0)
        return [_without_space(text, start, end) for start, end in pairwise(ends)]

    def round_trip(self, text: str) -> str:
        """Return decode(encode(text)): what a perfect model's output would look like."""
        return self.decode(self.encode(text))

    def _checked(self, ids: Sequence[int]) -> list[int]:
        # The library skips unknown ids, which would hide a mismatch of model and tokenizer.
        try:
            checked = [operator.index(i) for i in ids]
        except TypeError:
            raise DataError(f"ids are whole numbers in a list, not {ids!r:.60}") from None
        foreign = next((i for i in checked if not 0 <= i < self.vocab_size), None)
        if foreign is not None:
            raise DataError(f"id {foreign} is not in this tokenizer of {self.vocab_size} tokens: use the model's own")
        return checked

    def __reduce__(self) -> tuple[type["Tokenizer"], tuple[str]]:
        return Tokenizer, (self.json,)

    def __repr__(self) -> str:
        return f"<Tokenizer {self.kind}, {self.vocab_size} tokens, {self.digest[:12]}>"


def _with_marks(text: str, end: int, after: int) -> int:
    """Extend the end of a token over marks, or letters of a syllable, that were composed with its last letter.

    The library leaves them out. The next token begins at `after`.
    """
    while 0 < end < after and (text[end] in _JAMO or unicodedata.category(text[end]) in ("Mn", "Mc")):
        end += 1
    return end


def _without_space(text: str, start: int, end: int) -> tuple[int, int]:
    while start < end and text[start].isspace():
        start += 1
    while start < end and text[end - 1].isspace():
        end -= 1
    return start, end


def _backend(text: str, name: str) -> Any:
    """Load a tokenizer.json as the library's object, set up as our `encode` needs it."""
    try:
        backend = tokenizers.Tokenizer.from_str(text)
    except Exception as error:  # the library raises bare exceptions
        raise DataError(f"{name} is damaged or no tokenizer.json: {error}") from error
    vocabulary = backend.get_vocab()
    if any(vocabulary.get(token) != i for i, token in enumerate(SPECIAL_TOKENS)):
        raise DataError(f"{name} cannot be used: it needs {', '.join(SPECIAL_TOKENS)} as its ids 0, 1, 2, 3")
    if max(vocabulary.values()) >= 2 * len(vocabulary):
        raise DataError(
            f"{name} cannot be used: it numbers {len(vocabulary):,} tokens up to {max(vocabulary.values()):,}, "
            "so train or copy the tokenizer again"
        )
    backend.encode_special_tokens = True  # treat special tokens spelled out in a text as text; not stored in the JSON
    backend.no_truncation()
    backend.no_padding()
    if getattr(backend.model, "dropout", None) is not None:
        backend.model.dropout = None  # a tokenizer.json may enable BPE-dropout, which gives other ids at every call
    return backend


def _steps(normalizer: dict[str, Any] | None) -> list[dict[str, Any]]:
    """Return a normalizer's steps in order, with nested sequences flattened."""
    if normalizer is None:
        return []
    if normalizer["type"] != "Sequence":
        return [normalizer]
    return [step for part in normalizer["normalizers"] for step in _steps(part)]


def _normalizer(steps: Sequence[Mapping[str, Any]]) -> Any:
    """Return the library's object for some steps; None if there are none."""
    if not steps:
        return None
    spec = {**json.loads(tokenizers.Tokenizer(models.BPE()).to_str()), "normalizer": {"type": "Sequence"}}
    spec["normalizer"]["normalizers"] = list(steps)
    return tokenizers.Tokenizer.from_str(json.dumps(spec)).normalizer


def _untrained(kind: Kind, *, lowercase: bool, strip_accents: bool, single_digits: bool) -> Any:
    """Build the pipeline around an empty model."""
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
    digits = [pre_tokenizers.Digits(individual_digits=True)] if single_digits else []
    backend.pre_tokenizer = pre_tokenizers.Sequence([*digits, splitter]) if digits else splitter
    if decoder is not None:  # without one, the library joins words with spaces
        backend.decoder = decoder
    words = kind == "wordpiece"  # remove control characters, and make each Chinese character a word
    # BERT's normalizer strips exactly Mn; the library's StripAccents would strip spacing vowel signs (Mc), too.
    bert = normalizers.BertNormalizer(words, words, strip_accents=strip_accents, lowercase=False)
    steps: list[Any] = [bert] if words or strip_accents else []
    if strip_accents:
        steps.append(normalizers.NFC())  # otherwise Hangul would stay decomposed
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


def _check_vocab_size(vocab_size: int, kind: Kind, *, alphabet_size: int) -> None:
    minimum = alphabet_size + len(SPECIAL_TOKENS) + 1
    if vocab_size < minimum:
        parts = f"alphabet {alphabet_size}, special tokens {len(SPECIAL_TOKENS)}, and one more"
        raise ConfigError(f"vocab_size is {vocab_size}, but {kind} needs at least {minimum} for this text: {parts}")


def _feed(backend: Any, lines: Iterable[str], trainer: Any) -> None:
    """Train on lines. Raises DataError if none of them holds text."""
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
    """Cut a line inside very long runs without a word boundary, where learning takes quadratic time."""
    ends = [run.end() for run in _LONG_RUN.finditer(line)] if len(line) >= _RUN_CHARS else []
    return [line[start:end] for start, end in pairwise([0, *ends, len(line)])]


def _check_several(texts: Iterable[str]) -> None:
    """Raise ConfigError for a single string, whose characters would be taken for texts, or a non-iterable."""
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise ConfigError(f"a tokenizer takes a list of texts, not {texts!r:.60}: write [text] for one")


def check_unicode(texts: Iterable[str]) -> None:
    """Raise DataError for a lone surrogate, and ConfigError for a value that is not text."""
    # Some versions of the library would silently replace a surrogate with U+FFFD.
    for text in texts:
        if not isinstance(text, str):
            raise ConfigError(f"a text is expected, not {text!r:.60}")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise DataError(f"{text[:40]!r} holds a lone surrogate, which is not text: read it as UTF-8") from error
