"""Which language a text is in: py3langid's naive Bayes over bytes (Lui and Baldwin 2012), offline.

And which one a file's name speaks of, by the codes of ISO 639: all of part 1, with their three letters, and of part 3
those that corpora of little data are often in (`languages.tsv`).
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
"""ISO 639's code where a language is not stated."""

_PACKED = (".gz", ".xz", ".bz2", ".zst", ".txt")
_CODE = re.compile(r"[A-Za-z]{2,3}([-_]([A-Za-z]{2}|[A-Za-z]{4}))?")
_STATED = re.compile(r"[A-Za-z]{1,4}([-_][A-Za-z0-9]{1,8})*")
"""As BCP 47 has them; of four letters, too, since corpora have codes of their own, such as "aztr"."""
_PAIR = re.compile(r"(?:^|[._])(?!to_)([a-z]{2,3})[-_](?:to[-_])?([a-z]{2,3})$")
"""Not "to_en", which is hardly ever Tongan."""


def identify(text: str) -> tuple[str, float]:
    """Language code such as "en", and how probable it is, from 0 to 1. The first call takes seconds."""
    language, probability = _identifier().classify(text)
    return language, probability


def other_language(text: str, language: str, least: float) -> str | None:
    """The language that a text is in instead of this one, with a probability of at least so much; None where it is in
    none. A language that cannot be identified would always be taken for another: for it, too, None."""
    base = base_code(language)
    if base not in known_languages() or _unnormalised().classify(text)[0] == base:  # which costs less than `identify`
        return None
    found, probability = identify(text)
    return found if probability >= least else None


def rank(text: str, languages: Sequence[str]) -> list[tuple[str, float]]:
    """Ranks these languages, all known, by how probably the text is in each if it is in one of them; the best first."""
    ranked = [(language, probability) for language, probability in _identifier().rank(text) if language in languages]
    total = sum(probability for _, probability in ranked) or 1.0
    return [(language, probability / total) for language, probability in ranked]


@cache
def known_languages() -> frozenset[str]:
    """Codes of the languages that can be identified."""
    return frozenset(_identifier().labels)


@cache
def _identifier() -> Any:
    from py3langid.langid import MODEL_FILE, LanguageIdentifier

    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)


@cache
def _unnormalised() -> Any:
    """The same model, without the probabilities of all the languages that a text is not in."""
    from py3langid.langid import LanguageIdentifier

    of = _identifier()
    return LanguageIdentifier(of.nb_ptc, of.nb_pc, of.nb_classes, of.tk_nextmove, of.tk_output, tk_row=of.tk_row)


@cache
def _names() -> dict[str, str]:
    text = resources.files("repose.data").joinpath("languages.tsv").read_text(encoding="utf-8")
    rows = [line.split("\t") for line in text.splitlines()]
    return {code: name for *codes, name in rows for code in codes if code != "-"}


def language_name(code: str) -> str:
    """The English name of a code such as "pt", "por" or "pt-BR"; the code itself where it is not known."""
    return _names().get(base_code(code), code)


def names_of_pair(codes: tuple[str, str]) -> tuple[str | None, str | None]:
    """The English names of source and target language, with the codes where two variants have one name; None of one
    that is not stated."""
    src, tgt = (None if code == UNKNOWN else language_name(code) for code in codes)
    return (f"{src} ({codes[0]})", f"{tgt} ({codes[1]})") if src == tgt and codes[0] != codes[1] else (src, tgt)


def base_code(code: str) -> str:
    """The language of a code that may name a region or a script, too: "pt" of "pt-BR", "por" of "por_Latn"."""
    return re.split("[-_]", code.lower())[0]


def short_code(code: str) -> str:
    """The language of a code as `base_code` gives it, by its two letters where it has such: "pt" of "por_Latn"."""
    return _short_codes().get(base_code(code), base_code(code))


@cache
def _short_codes() -> dict[str, str]:
    short: dict[str, str] = {}
    for code, name in sorted(_names().items(), key=lambda entry: len(entry[0])):
        short.setdefault(name, code)
    return {code: short[name] for code, name in _names().items()}


def is_language(code: str) -> bool:
    """Whether a code is one that is known here."""
    return base_code(code) in _names()


def names_language(text: str) -> bool:
    """Whether a text is nothing but the code of a language, a region's or script's with it, or its English name."""
    return (_CODE.fullmatch(text) is not None and is_language(text)) or text.casefold() in _english_names()


def code_of(text: str) -> str:
    """The code of a language by its English name; another text as it is."""
    return _english_names().get(text.casefold(), text)


def stated_code(text: str) -> str | None:
    """The code of a language that is stated by a code, known here or not, or by its English name; None for another
    text."""
    found = text if is_language(text) else code_of(text)
    return found if _STATED.fullmatch(found) else None


def checked_language(name: str, given: object) -> str:
    """The code of the language that is given as `name`, by its code or its English name. Raises ConfigError for
    anything else."""
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
    """Source and target language as a corpus's files are named, or its two fields; "und" where that does not say it.

    Two files "train.pt" and "train.en" (or .pt.gz), a file "news.pt-en.tsv" or several such of one pair, fields "pt"
    and "en", "Portuguese" and "English" or "translation.pt". Names of which only one is a code say nothing: they might
    mean something else.
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
    """The name without endings that say how the file is packed."""
    name = path.name
    while name.lower().endswith(_PACKED):
        name = name.rpartition(".")[0]
    return name
