"""Identify the language of a text offline, with py3langid's naive Bayes over bytes (Lui and Baldwin 2012).

Also find the languages that file names state, by ISO 639 codes: all of part 1, with their three-letter codes, and those
of part 3 that are common in small corpora (`languages.tsv`).
"""

import difflib
import re
from collections.abc import Sequence
from functools import cache
from importlib import resources
from pathlib import PurePath
from typing import Any

from repose.system.errors import ConfigError

UNKNOWN = "und"
"""ISO 639's code for a language that is not stated."""

_PACKED = (".gz", ".xz", ".bz2", ".zst", ".txt")
_CODE = re.compile(r"[A-Za-z]{2,3}([-_]([A-Za-z]{2}|[A-Za-z]{4}))?")
_STATED = re.compile(r"[A-Za-z]{1,4}([-_][A-Za-z0-9]{1,8})*")
"""As in BCP 47, but also with four letters: some corpora have codes of their own, such as "aztr"."""
_PAIR = re.compile(r"(?:^|[._])(?!to_)([a-z]{2,3})[-_](?:to[-_])?([a-z]{2,3})$")
"""Does not match "to_en", where "to" hardly ever means Tongan."""


def identify(text: str) -> tuple[str, float]:
    """Return a language code such as "en" and its probability, from 0 to 1. The first call takes seconds."""
    language, probability = _identifier().classify(text)
    return language, probability


def other_language(text: str, language: str, least: float) -> str | None:
    """Return the language of a text if it is probably another one than `language`, else None.

    The probability must be at least `least`. If `language` cannot be identified, any text in it would be mistaken for
    another language, so the result is None then, too.
    """
    base = base_code(language)
    if base not in known_languages() or _unnormalised().classify(text)[0] == base:  # cheaper than `identify`
        return None
    found, probability = identify(text)
    return found if probability >= least else None


def rank(text: str, languages: Sequence[str]) -> list[tuple[str, float]]:
    """Rank languages by the probability that a text is in each, given that it is in one of them; the best first.

    All `languages` must be among `known_languages`.
    """
    ranked = [(language, probability) for language, probability in _identifier().rank(text) if language in languages]
    total = sum(probability for _, probability in ranked) or 1.0
    return [(language, probability / total) for language, probability in ranked]


@cache
def known_languages() -> frozenset[str]:
    """Return the codes of the languages that can be identified."""
    return frozenset(_identifier().labels)


@cache
def _identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


@cache
def _unnormalised() -> Any:
    """Return the same model without normalised probabilities, which is faster."""
    from py3langid.langid import LanguageIdentifier

    of = _identifier()
    return LanguageIdentifier(of.nb_ptc, of.nb_pc, of.nb_classes, of.tk_nextmove, of.tk_output, tk_row=of.tk_row)


@cache
def _names() -> dict[str, str]:
    text = resources.files("repose.data").joinpath("languages.tsv").read_text(encoding="utf-8")
    rows = [line.split("\t") for line in text.splitlines()]
    return {code: name for *codes, name in rows for code in codes if code != "-"}


def language_name(code: str) -> str:
    """Return the English name for a code such as "pt", "por" or "pt-BR"; the code itself if it is not known."""
    return _names().get(base_code(code), code)


def name_with_code(code: str) -> str:
    """Return a language as text for people: "Portuguese (pt)"; the code alone if its name is not known."""
    name = language_name(code)
    return code if name == code else f"{name} ({code})"


def names_of_pair(codes: tuple[str, str]) -> tuple[str | None, str | None]:
    """Return the English names of source and target language; None for one that is not stated.

    If both are variants with the same name, the names include the codes.
    """
    src, tgt = (None if code == UNKNOWN else language_name(code) for code in codes)
    return (f"{src} ({codes[0]})", f"{tgt} ({codes[1]})") if src == tgt and codes[0] != codes[1] else (src, tgt)


def base_code(code: str) -> str:
    """Return the language of a code without region or script: "pt" for "pt-BR", "por" for "por_Latn"."""
    return re.split("[-_]", code.lower())[0]


def short_code(code: str) -> str:
    """Return the two-letter code of a code's language if it has one, else its `base_code`: "pt" for "por_Latn"."""
    return _short_codes().get(base_code(code), base_code(code))


@cache
def _short_codes() -> dict[str, str]:
    short: dict[str, str] = {}
    for code, name in sorted(_names().items(), key=lambda entry: len(entry[0])):
        short.setdefault(name, code)
    return {code: short[name] for code, name in _names().items()}


def is_language(code: str) -> bool:
    """Return whether a code is known here."""
    return base_code(code) in _names()


def names_language(text: str) -> bool:
    """Return whether a text is a language code, possibly with a region or script, or a language's English name, which
    more may follow in brackets: "English (en)"."""
    return (_CODE.fullmatch(text) is not None and is_language(text)) or _name_in(text) in _english_names()


def code_of(text: str) -> str:
    """Return the code for a language's English name; return any other text unchanged."""
    return _english_names().get(_name_in(text), text)


def _name_in(text: str) -> str:
    return re.sub(r" +\([^()]*\)$", "", text.casefold())


def stated_code(text: str) -> str | None:
    """Return the code that a text states: a code, known or not, or that of an English name; None for any other text."""
    found = text if is_language(text) else code_of(text)
    return found if _STATED.fullmatch(found) else None


def checked_language(name: str, given: object) -> str:
    """Return the code of a language given by its code or its English name. `name` is the setting's name in errors.

    Raises ConfigError for anything else.
    """
    text = given if isinstance(given, str) else ""
    if (code := stated_code(text)) is not None:
        return code
    near = difflib.get_close_matches(text.casefold(), _english_names(), n=1, cutoff=0.75)
    hint = f": did you mean {language_name(code_of(near[0]))!r}?" if near else ""
    raise ConfigError(f"{name} should be a code such as 'pt', not {given!r}{hint}")


@cache
def _english_names() -> dict[str, str]:
    return {name.casefold(): code for code, name in reversed(_names().items())}


def languages_in_names(files: Sequence[PurePath], fields: tuple[str, str]) -> tuple[str, str]:
    """Guess source and target language from the names of a corpus's files or fields; "und" if they do not say.

    Examples are two files "train.pt" and "train.en" (or .pt.gz), a file "news.pt-en.tsv" or several for the same pair,
    or fields "pt" and "en", "Portuguese" and "English", or "translation.pt". If only one of two names is a code, both
    are ignored: they might mean something else.
    """
    guesses: list[tuple[str, ...]] = []
    if len(files) == 2:
        guesses.append(tuple(_unpacked(path).rpartition(".")[2] for path in files))
    guesses.append(tuple(code_of(field.rpartition(".")[2]) for field in fields))
    pairs = {match.groups() if (match := _PAIR.search(_stem(path))) else None for path in files}
    guesses += [pair for pair in pairs if pair is not None and len(pairs) == 1]
    for src, tgt in guesses:
        if is_language(src) and is_language(tgt):
            return src, tgt
    return UNKNOWN, UNKNOWN


def _stem(path: PurePath) -> str:
    return _unpacked(path).rpartition(".")[0] or _unpacked(path)


def _unpacked(path: PurePath) -> str:
    """Return the file name without endings for compression and ".txt"."""
    name = path.name
    while name.lower().endswith(_PACKED):
        name = name.rpartition(".")[0]
    return name
