"""Corpus BLEU (Papineni et al. 2002) and chrF (Popović 2015) by sacreBLEU (Post 2018), each with its signature.

Values are percentages, 0 to 100. References are the raw text of the corpus unless the name of a score says otherwise;
then its signature says so, too, in a last field that sacreBLEU itself does not write.
"""

import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import chain

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from repose.data.scripts import script_of
from repose.system.errors import ConfigError, DataError

_UNSPACED = {"Han", "Thai", "Lao", "Khmer", "Myanmar", "Tibetan"}
"""Scripts that do not put spaces between words."""
_KANA = ("HIRAGANA", "KATAKANA")
_LONGEST_WORDS = 4.0
"""Most letters between spaces, on average, for text in these scripts to count as split into words. Split text has about
two letters between spaces."""
_INSTALL = {"ja-mecab": "'sacrebleu[ja]'", "ko-mecab": "'sacrebleu[ko]'"}  # all others that need a package: spm


@dataclass(frozen=True)
class Score:
    """A score with the information needed to compare it."""

    name: str
    """`bleu` or `chrf`, plus any difference from scoring raw text (`bleu_tok_none`, `chrf_round_trip`)."""
    value: float
    """The score in percent."""
    signature: str
    """sacreBLEU's signature, such as `nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0`."""
    brevity_penalty: float | None = None
    """The factor in corpus BLEU, at most 1, that penalises translations shorter than their references."""


GREEDY = "greedy"


def decoding_name(beam_size: int) -> str:
    """Return the name of a decoding method in files and tables: "greedy", "beam4"."""
    return GREEDY if beam_size == 1 else f"beam{beam_size}"


def tokenizer_for(references: Sequence[str]) -> str:
    """Choose sacreBLEU's tokenizer for references: `13a` for text with spaces between words.

    In text without spaces, `13a` would take a whole sentence for one word. The choice is then `zh` for Chinese and
    `char` for Japanese, Thai and others.
    """
    letters = Counter(chain.from_iterable(references))
    scripts = Counter[str]()
    for letter, number in letters.items():
        scripts[script_of(letter) or ""] += number
    del scripts[""]
    unspaced = sum(scripts[script] for script in _UNSPACED)
    if 2 * unspaced <= scripts.total() or _has_words_apart(references, {x for x in letters if script_of(x)}):
        return "13a"
    kana = sum(number for letter, number in letters.items() if unicodedata.name(letter, "").startswith(_KANA))
    return "zh" if 2 * scripts["Han"] > unspaced and 20 * kana < unspaced else "char"


def _has_words_apart(lines: Sequence[str], letters: set[str]) -> bool:
    """Return whether text in scripts without spaces has spaces between its words.

    Lines as short as one word do not count.
    """
    counts = [(sum(letter in letters for letter in line), len(line.split())) for line in lines]
    counts = [(num_letters, num_words) for num_letters, num_words in counts if num_letters > _LONGEST_WORDS]
    return sum(num for num, _ in counts) <= _LONGEST_WORDS * sum(num for _, num in counts) if counts else False


def bleu(
    hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool = False, tokenize: str | None = None
) -> Score:
    """Return corpus BLEU with sacreBLEU's exponential smoothing, one reference for each hypothesis.

    `tokenize` is one of sacreBLEU's tokenizers: `13a`, `intl`, `none` for text that is tokenised already, `char`, `zh`
    for Chinese, and, if the packages they need are installed, `ja-mecab`, `ko-mecab` and `flores200`. None stands for
    the choice of `tokenizer_for`. Raises ConfigError for a tokenizer that is unknown or not installed, DataError if the
    counts differ or are zero.
    """
    _check(hypotheses, references)
    metric = bleu_metric(tokenize or tokenizer_for(references), lowercase=lowercase)
    score = metric.corpus_score(list(hypotheses), [list(references)])
    return Score("bleu", float(score.score), str(metric.get_signature()), float(score.bp))


def bleu_metric(tokenize: str, *, lowercase: bool = False, references: Sequence[str] | None = None) -> BLEU:
    """Return sacreBLEU's BLEU metric, which cuts `references` into n-grams only once if they are given.

    Raises ConfigError for a tokenizer that is unknown or not installed.
    """
    if tokenize not in BLEU.TOKENIZERS:
        raise ConfigError(f"tokenize is '{tokenize}', but must be one of {', '.join(sorted(BLEU.TOKENIZERS))}")
    try:
        # `force` silences advice to detokenize: pretokenized corpora are scored both ways.
        cached = None if references is None else [list(references)]
        return BLEU(lowercase=lowercase, tokenize=tokenize, force=True, references=cached)
    except (ImportError, RuntimeError, OSError) as error:
        needed = _INSTALL.get(tokenize, "sentencepiece")
        raise ConfigError(
            f"sacreBLEU cannot load its tokenizer '{tokenize}': pip install {needed}, or choose another such as 'char'"
        ) from error


def bleu_sentence_mean(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """Return the mean of sentence BLEUs of space-separated words, unsmoothed: 0 for a sentence without a common 4-gram.

    It is a different measure than `bleu`, several points lower on the same translations. It exists to compare with
    figures that were computed this way (docs/decisions/014). Raises DataError if the counts differ or are zero.
    """
    _check(hypotheses, references)
    metric = BLEU(tokenize="none", smooth_method="none", force=True)
    values = [metric.corpus_score([h], [[r]]).score for h, r in zip(hypotheses, references, strict=True)]
    return Score("bleu_sentence_mean", sum(values) / len(values), f"{metric.get_signature()}|mean:sentences")


def chrf(hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool = False) -> Score:
    """Return corpus chrF2 (character n-grams up to 6, no word n-grams, beta 2, spaces left out), one reference each.

    Raises DataError if the counts differ or are zero.
    """
    _check(hypotheses, references)
    metric = CHRF(lowercase=lowercase)
    value = metric.corpus_score(list(hypotheses), [list(references)]).score
    return Score("chrf", float(value), str(metric.get_signature()))


def corpus_scores(
    hypotheses: Sequence[str],
    references: Sequence[str],
    *,
    lowercase: bool,
    pretokenized: bool,
    round_trip: Callable[[str], str] | None,
    strip_accents: bool,
    tokenize: str | None = None,
    detokenise: Callable[[str], str] | None = None,
) -> dict[str, Score]:
    """Return all scores of one decoded corpus by name: always `bleu` and `chrf` against raw references.

    Some corpora and tokenizers have further scores:

    - `bleu_tok_none` if the corpus's text is tokenised already (`pretokenized`);
    - `bleu_round_trip`, `chrf_round_trip` against references after `round_trip` (encode, then decode), which is given
      for a tokenizer that is not lossless, since its output cannot equal the raw text;
    - `bleu_no_accents` with combining marks removed from both sides, if the tokenizer strips accents;
    - `bleu_detokenised`, `chrf_detokenised` with both sides after `detokenise`, which is given for references that look
      tokenised or contain entities.

    `lowercase`: the tokenizer lower-cases, so all scores ignore case (`case:lc`). `tokenize`: as for `bleu`. Raises as
    `bleu` does.
    """
    tokenize = tokenize or tokenizer_for(references)

    def both(ours: Sequence[str], theirs: Sequence[str]) -> list[Score]:
        return [bleu(ours, theirs, lowercase=lowercase, tokenize=tokenize), chrf(ours, theirs, lowercase=lowercase)]

    scores = both(hypotheses, references)
    if pretokenized:
        score = bleu(hypotheses, references, lowercase=lowercase, tokenize="none")
        scores.append(replace(score, name="bleu_tok_none"))
    if round_trip is not None:
        passed = [round_trip(reference) for reference in references]
        scores += [_marked(score, "round_trip", "refs:round_trip") for score in both(hypotheses, passed)]
    if strip_accents:
        bare = [[without_accents(line) for line in side] for side in (hypotheses, references)]
        score = bleu(*bare, lowercase=lowercase, tokenize=tokenize)
        scores.append(_marked(score, "no_accents", "accents:no"))
    if detokenise is not None:
        plain = [[detokenise(line) for line in side] for side in (hypotheses, references)]
        scores += [_marked(score, "detokenised", "text:detokenised") for score in both(*plain)]
    return {score.name: score for score in scores}


def without_accents(text: str) -> str:
    """Return `text` without combining marks (Unicode Mn after NFD), as tokenizers strip them, composed again (NFC).

    It is composed because NFD also decomposes Hangul syllables, which stripping accents does not mean to do.
    """
    decomposed = unicodedata.normalize("NFD", text)
    bare = "".join(character for character in decomposed if unicodedata.category(character) != "Mn")
    return unicodedata.normalize("NFC", bare)


def _marked(score: Score, difference: str, field: str) -> Score:
    return replace(score, name=f"{score.name}_{difference}", signature=f"{score.signature}|{field}")


def _check(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    check_counts(len(hypotheses), len(references))
    if not hypotheses:
        raise DataError("there is nothing to score: 0 hypotheses and 0 references; give at least one line of each")


def check_counts(hypotheses: int, references: int) -> None:
    """Raise DataError if the numbers of hypotheses and references differ."""
    if hypotheses != references:
        raise DataError(
            f"the numbers of hypotheses and references differ ({hypotheses} and {references}): score one for each line"
        )
