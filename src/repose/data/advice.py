"""Sentences about the findings of a corpus check: what was found, where, and what to do about it."""

import re
from collections.abc import Iterable
from itertools import groupby

from repose.data.findings import IN_TWO_SETS, CorpusCheck, Finding, Kind, worst_first
from repose.data.tables import BY_FIELDS
from repose.system.terminal import counted

FEW_PAIRS = 500
"""With fewer training pairs than this, no recipe trains a usable translator."""

_SETS = {"train": "training", "valid": "validation", "test": "test", "synthetic": "synthetic"}
_SIDES = {"src": "source", "tgt": "target", "": "pair"}
_BY_LANGUAGES, _BY_A_LINE = ", or --src-lang and --tgt-lang", ", or a first line that names both columns"
_OTHERWISE = dict.fromkeys(("tmx", "jsonl", "parquet"), _BY_LANGUAGES) | dict.fromkeys(("csv", "tsv"), _BY_A_LINE)
_OTHERWISE[""] = ", or corpus.src_field and corpus.tgt_field among settings"


def name_sides(kind: str = "") -> str:
    """Return advice for a file that holds both sides in the wrong order.

    `kind` is the kind of file (`data.readers.kind_of`); "" stands for any.
    """
    return f"say which side is the source (--src-field and --tgt-field{_OTHERWISE.get(kind, '')})"


WITHOUT_NUMBERS = r"sed -E 's/^ *\(?[0-9]+[.):[:space:]]+//'"
"""A shell command that removes the numbers at the beginning of lines."""
_NOT_ITS_LANGUAGE = "Remove these pairs or translate them: a model learns to answer like them."
_SENTENCES: dict[Kind, tuple[str, str]] = {
    Kind.SLIPPED: (
        "Misaligned: lengths and numbers fit better when the targets are moved",
        "Look just before the first line for a missing or extra line on one side, and align the files again.",
    ),
    Kind.SAME_LANGUAGE: (
        "Both sides are in the same language",
        f"Name the source file first and its translation second; in one file, {name_sides()}.",
    ),
    Kind.SWAPPED: (
        "In the language of the other side",
        "The files seem to be swapped, or named wrongly: name the source file first and its translation second; in one "
        f"file, {name_sides()}.",
    ),
    Kind.MISNAMED: (
        "Not in the language that the corpus is said to be in",
        "Correct the language (--src-lang and --tgt-lang, corpus.src_lang and corpus.tgt_lang among settings, or the "
        "names of files, columns or fields), or name the right files. If the two languages are closely related and the "
        "stated one is right, nothing is wrong.",
    ),
    Kind.REVERSED: (
        "In the opposite direction to most: each side is in the script of the other",
        "Swap source and target of these pairs, or of all others if these are right: a model learns one direction.",
    ),
    Kind.LANGUAGE: ("Not in the language of the rest of the side", _NOT_ITS_LANGUAGE),
    Kind.SCRIPT: ("Not in the script of the rest of the side", _NOT_ITS_LANGUAGE),
    Kind.OTHER_SCRIPT: (
        "Not in the script of the training set",
        "Check whether its two files are swapped: name the sources first, as for the training set.",
    ),
    Kind.IDENTICAL: (
        "Source and target are the same",
        "Remove them, except for names and numbers: a model learns to copy instead of to translate.",
    ),
    Kind.COPIED: (
        "The target repeats most of its source",
        "Check whether they are translated at all, and remove those that are not.",
    ),
    Kind.TRAINED_ON: (
        "Also in the training set",
        "Remove them from the training set: reciting is not translating, and scores come out too high.",
    ),
    Kind.HALF_TRAINED_ON: (
        "One side also in the training set",
        "Scores are somewhat too high. Without validation and test files, training holds out pairs that share no "
        "sentence with the rest.",
    ),
    Kind.VALIDATED_ON: (
        "Also in the validation set",
        "Give another test set, or take these pairs out of one of the two: a model is chosen by its validation set, so "
        "its score on the same sentences comes out too high.",
    ),
    Kind.ENTITIES: (
        "HTML entities",
        "Replace them by what they stand for, such as &amp; by & (html.unescape in Python): a model learns to write "
        "them, and BLEU counts their pieces as words, which inflates it.",
    ),
    Kind.QUOTED: (
        "Quoted as by a spreadsheet",
        "Rename a table to .csv, where such quotes are understood (tabs between columns are recognised), or remove "
        'them from text files: a model learns to write them, and "" for each quote inside.',
    ),
    Kind.TOKENISED: (
        "Tokenised already: spaces separate words from punctuation",
        "Detokenise it (sacremoses -l en detokenize), since people do not type like this and BLEU would be inflated; "
        "or keep it with --set corpus.pretokenized=true.",
    ),
    Kind.MARKUP: ("Tags", "Remove the tags, and the lines that hold nothing else."),
    Kind.NUMBERED: (
        "Lines are numbered",
        f"Remove the numbers, since a model learns to write them: from a text file with `{WITHOUT_NUMBERS} OLD > NEW`, "
        "from a table in the spreadsheet.",
    ),
    Kind.PREFIX: (
        "The same beginning",
        "Cut it off, unless the sentences really begin so, or it is a language tag that you mean to type before each.",
    ),
    Kind.CONTROL: (
        "Control characters, invisible marks, or text decoded wrongly",
        "Replace tabs and line separators by a space and remove the others; text such as Ã© was UTF-8 and has to be "
        "decoded as such.",
    ),
    Kind.LOST: (
        "Text decoded wrongly: question marks instead of letters",
        "Save it again in UTF-8 with the program that wrote it (from a spreadsheet as CSV UTF-8): no conversion brings "
        "these letters back.",
    ),
    Kind.DECOMPOSED: (
        "Letters and accents as separate characters",
        'Compose them (unicodedata.normalize("NFC", line) in Python), in all files alike: to a model and to BLEU, é in '
        "one character and é in two are different letters.",
    ),
    Kind.COLUMN_NAMES: (
        "The first line seems to name the columns",
        "It is read as a pair: delete it, unless it is one.",
    ),
    Kind.REPEATED: (
        "Repetitions of an earlier pair",
        "Keep one of each: the others only make the corpus look larger, and a few sentences weigh too much.",
    ),
    Kind.RETRANSLATED: (
        "A sentence again, with another translation",
        "Fine if it is meant, but check that the files are aligned: a score knows only one translation.",
    ),
    Kind.ALTERNATIVES: (
        "Several sentences with / or | between them, on one side only",
        "Make a pair of each of them, with the same other side: a model learns to write several translations at once.",
    ),
    Kind.EXPLAINED: (
        "Brackets at the end that the other side does not have",
        "Remove explanations with their brackets: a model learns to write them, and nobody types them into a source.",
    ),
    Kind.UNEQUAL: (
        "One side is far longer than the other",
        "Check whether they are only partly translated or split in another place, and remove those that are.",
    ),
    Kind.LONG: (
        "Longer than a sentence",
        "Split them into sentences: pairs beyond training.max_src_tokens or max_tgt_tokens are dropped or cut.",
    ),
    Kind.WORDLESS: ("Neither letter nor digit on a side", "Remove them: there is nothing to translate."),
    Kind.UNUSABLE: (
        "Left out by training",
        "Fix these lines on both sides, or delete them from both.",
    ),
}
_PLACED = ", first on "
"""In the reason why a line of a table is left out because of its columns: the place follows."""
_OF_COLUMNS = {
    "row": "More columns come from a separator inside a cell that is not in quotes.",
    "": "More columns come from a tab inside a sentence, and lines without a tab from a line break inside a cell: the "
    "line between two of them is then a wrong pair.",
}
"""Further advice on lines of a table that are left out because of their columns."""


def what(finding: Finding) -> str:
    """Describe in a few words what was found."""
    return _SENTENCES[finding.kind][0]


def what_to_do(finding: Finding, *, pretokenized: bool = False) -> str:
    """Advise in a sentence or two what to do about a finding. `pretokenized`: the corpus is meant to be tokenised."""
    if finding.kind is Kind.TOKENISED and pretokenized:
        return "As corpus.pretokenized says: BLEU is also shown with tok:none."
    if finding.kind is Kind.UNUSABLE and finding.places == "unit":
        return f"Nothing, if a unit is not translated yet; for texts in another language, name it with {BY_FIELDS}."
    more = f" {_OF_COLUMNS[finding.places]}" if finding.kind is Kind.UNUSABLE and _PLACED in finding.detail else ""
    return _SENTENCES[finding.kind][1] + more


def all_to_do(alike: Iterable[Finding], *, pretokenized: bool = False) -> list[str]:
    """Return what to do about findings of one name, each advice once: sets can be files of different kinds."""
    advised = dict.fromkeys(what_to_do(finding, pretokenized=pretokenized) for finding in alike)
    return [one for one in advised if not any(one != other and other.startswith(one) for other in advised)]


def where(finding: Finding) -> str:
    """Say in which set and on which side a problem was found, how often, and give an example."""
    line = f"{finding.places or 'line'} {finding.line:,}"
    example = {
        Kind.SLIPPED: f"from {line} on, {_moved(finding.amount)}",
        Kind.UNUSABLE: finding.detail if _PLACED in finding.detail else f"{finding.detail}, first {line}",
    }.get(finding.kind, f"first {line}" + (f": {finding.detail}" if finding.detail else ""))
    noun = place(finding)
    number = counted(finding.count, noun)
    if finding.is_joined:
        number = f"{finding.count:,} of {counted(finding.of, 'sample')} of several short {noun}s"
    elif finding.kind in (Kind.LANGUAGE, Kind.SAME_LANGUAGE, Kind.SWAPPED, Kind.MISNAMED):
        number = f"{finding.count:,} of {counted(finding.of, f'long {noun}')}"
    if finding.kind in IN_TWO_SETS and finding.amount:
        number += f" of {finding.amount} or more characters"
    return f"{number} ({share(finding)}; {example})"


def place(finding: Finding) -> str:
    """Name the set and the side that a finding is about, such as "training source"."""
    return f"{_set(finding.split)} {_SIDES[finding.side]}"


def in_short(finding: Finding) -> str:
    """Describe in a few words what was found, with the reason for lines that are left out."""
    return f"{what(finding)}: {finding.detail}" if finding.kind is Kind.UNUSABLE else what(finding)


def _set(split: str) -> str:
    """Return the name of a set as users know it. Further corpora are named by their place in the experiment file."""
    return _SETS.get(split) or re.sub(r"^also(\d+)$", r"corpus.also[\1]", split)


def _moved(lines: int) -> str:
    return f"{counted(abs(lines), 'line')} too {'late' if lines > 0 else 'early'}"


def share(finding: Finding) -> str:
    """Format the share of lines or pairs with this problem, in percent with at least two digits."""
    percent = 100 * finding.share
    return f"{percent:.0f} %" if percent >= 10 else f"{percent:#.2g} %"


def sizes(check: CorpusCheck) -> str:
    """Say how many pairs of each set were checked."""
    *others, (split, count) = check.looked_at.items()
    parts = [f"{number:,} {_set(other)}" for other, number in others]
    return ", ".join([*parts, counted(count, f"{_set(split)} pair")])


def too_few(num_pairs: int) -> str | None:
    """Warn that there are too few training pairs; return None if there are enough."""
    few = f"{counted(num_pairs, 'pair')}: too few to learn from: the result will not be a translator"
    return few if num_pairs < FEW_PAIRS else None


_SPOILS_ALL = (Kind.SLIPPED, Kind.SAME_LANGUAGE, Kind.SWAPPED)
"""Kinds of findings that make training useless, so the summary gives the advice at once."""


def summary(check: CorpusCheck, *, pretokenized: bool = False) -> list[str]:
    """Return the few lines shown before training; an empty list if nothing was found.

    `pretokenized`: the corpus is meant to be tokenised, so that it is no finding.
    """
    lines = []
    findings = [finding for finding in check.findings if not (pretokenized and finding.kind is Kind.TOKENISED)]
    for name, same in groupby(worst_first(findings), key=what):
        first, *others = same
        more = f", and in {counted(len(others), 'more place')}" if others else ""
        lines.append(f"check: {name}: {where(first)}{more}")
        if first.kind in _SPOILS_ALL:
            lines.append(f"check: {what_to_do(first)}")
    if lines:
        lines.append("check: `repose check`, with the same files, says what to do about it")
    return lines
