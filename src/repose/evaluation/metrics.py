"""Corpus BLEU (Papineni et al. 2002) and chrF (Popović 2015) by sacreBLEU (Post 2018), each with its signature.

Values are percentages, 0 to 100. References are the raw text of the corpus unless the name of a score says otherwise;
then its signature says so too, in a last field that sacreBLEU itself does not write.
"""

import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from sacrebleu.metrics.bleu import BLEU
from sacrebleu.metrics.chrf import CHRF

from repose.data.scripts import script_of
from repose.system.errors import ConfigError, DataError

_UNSPACED = {"Han", "Thai", "Lao", "Khmer", "Myanmar", "Tibetan"}
"""Scripts whose words have no spaces between them."""
_KANA = ("HIRAGANA", "KATAKANA")
_LONGEST_WORDS = 4.0
"""Letters between spaces, on average, up to which such text has its words apart: about two where it has."""
_INSTALL = {"ja-mecab": "'sacrebleu[ja]'", "ko-mecab": "'sacrebleu[ko]'"}  # all others that need something: spm


@dataclass(frozen=True)
class Score:
    """One figure with what is needed to compare it."""

    name: str
    """`bleu` or `chrf`, and what differs from scoring raw text (`bleu_tok_none`, `chrf_round_trip`)."""
    value: float
    """The score in percent."""
    signature: str
    """sacreBLEU's, such as `nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0`."""
    brevity_penalty: float | None = None
    """The factor in a corpus BLEU, at most 1, for translations that are shorter than their references."""


GREEDY = "greedy"


def decoding_name(beam_size: int) -> str:
    """What a decoding is called in files and tables: "greedy", "beam4"."""
    return GREEDY if beam_size == 1 else f"beam{beam_size}"


def tokenizer_for(references: Sequence[str]) -> str:
    """sacreBLEU's tokenizer for references that are written without spaces between words, which `13a` takes for one
    word a sentence: `zh` for Chinese, `char` for Japanese, Thai and others; `13a` for all that have spaces."""
    letters = Counter[str]()
    for line in references:
        letters.update(line)
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
    """Whether spaces stand between the words of such scripts. A line of a word's length says nothing of it."""
    counts = [(sum(letter in letters for letter in line), len(line.split())) for line in lines]
    counts = [(num_letters, num_words) for num_letters, num_words in counts if num_letters > _LONGEST_WORDS]
    return sum(num for num, _ in counts) <= _LONGEST_WORDS * sum(num for _, num in counts) if counts else False


def bleu(
    hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool = False, tokenize: str | None = None
) -> Score:
    """Corpus BLEU with sacreBLEU's exponential smoothing, one reference for each hypothesis.

    `tokenize` is one of sacreBLEU's tokenizers: `13a`, `intl`, `none` for text that is tokenised already, `char`, `zh`
    for Chinese, and, with what sacreBLEU needs for them installed, `ja-mecab`, `ko-mecab` and `flores200`; None is
    what `tokenizer_for` says. Raises ConfigError for a tokenizer that is unknown or not installed, DataError if the
    counts differ or are zero.
    """
    _check(hypotheses, references)
    metric = bleu_metric(tokenize or tokenizer_for(references), lowercase=lowercase)
    score = metric.corpus_score(list(hypotheses), [list(references)])
    return Score("bleu", float(score.score), str(metric.get_signature()), float(score.bp))


def bleu_metric(tokenize: str, *, lowercase: bool = False) -> BLEU:
    """sacreBLEU's metric. Raises ConfigError for a tokenizer that is unknown or not installed."""
    if tokenize not in BLEU.TOKENIZERS:
        raise ConfigError(f"tokenize is '{tokenize}', but must be one of {', '.join(sorted(BLEU.TOKENIZERS))}")
    try:
        # `force` silences advice to detokenize: pretokenized corpora are scored both ways.
        return BLEU(lowercase=lowercase, tokenize=tokenize, force=True)
    except (ImportError, RuntimeError, OSError) as error:
        needed = _INSTALL.get(tokenize, "sentencepiece")
        raise ConfigError(
            f"sacreBLEU cannot load its tokenizer '{tokenize}': pip install {needed}, or choose another such as 'char'"
        ) from error


def bleu_sentence_mean(hypotheses: Sequence[str], references: Sequence[str]) -> Score:
    """The mean of sentence BLEUs of space-separated words, unsmoothed: 0 for a sentence without a common 4-gram.

    Another unit than `bleu`, several points below it on the same translations; it is here for figures that were made
    so (docs/decisions/014). Raises DataError if the counts differ or are zero.
    """
    _check(hypotheses, references)
    metric = BLEU(tokenize="none", smooth_method="none", force=True)
    values = [metric.corpus_score([h], [[r]]).score for h, r in zip(hypotheses, references, strict=True)]
    return Score("bleu_sentence_mean", sum(values) / len(values), f"{metric.get_signature()}|mean:sentences")


def chrf(hypotheses: Sequence[str], references: Sequence[str], *, lowercase: bool = False) -> Score:
    """Corpus chrF2 (character n-grams up to 6, no word n-grams, beta 2, spaces left out), one reference each.

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
    """All scores of one decoded corpus by name: `bleu` and `chrf` against raw references, and also

    - `bleu_tok_none` if the corpus's text is tokenised already (`pretokenized`);
    - `bleu_round_trip`, `chrf_round_trip` against references after `round_trip` (encode, then decode), which is given
      for a tokenizer that does not invert, as its output cannot equal the raw text;
    - `bleu_no_accents` with combining marks taken from both sides, if the tokenizer strips accents;
    - `bleu_detokenised`, `chrf_detokenised` with both sides after `detokenise`, which is given for references that look
      tokenised or hold entities.

    `lowercase`: the tokenizer lower-cases, so all scores ignore case (`case:lc`). `tokenize`: as for `bleu`.
    Raises as `bleu` does.
    """
    tokenize = tokenize or tokenizer_for(references)
    scores = [
        bleu(hypotheses, references, lowercase=lowercase, tokenize=tokenize),
        chrf(hypotheses, references, lowercase=lowercase),
    ]
    if pretokenized:
        score = bleu(hypotheses, references, lowercase=lowercase, tokenize="none")
        scores.append(replace(score, name="bleu_tok_none"))
    if round_trip is not None:
        passed = [round_trip(reference) for reference in references]
        score = bleu(hypotheses, passed, lowercase=lowercase, tokenize=tokenize)
        scores.append(_marked(score, "round_trip", "refs:round_trip"))
        scores.append(_marked(chrf(hypotheses, passed, lowercase=lowercase), "round_trip", "refs:round_trip"))
    if strip_accents:
        bare = [[without_accents(line) for line in side] for side in (hypotheses, references)]
        score = bleu(*bare, lowercase=lowercase, tokenize=tokenize)
        scores.append(_marked(score, "no_accents", "accents:no"))
    if detokenise is not None:
        plain = [[detokenise(line) for line in side] for side in (hypotheses, references)]
        score = bleu(*plain, lowercase=lowercase, tokenize=tokenize)
        scores += [
            _marked(each, "detokenised", "text:detokenised") for each in (score, chrf(*plain, lowercase=lowercase))
        ]
    return {score.name: score for score in scores}


def without_accents(text: str) -> str:
    """`text` without combining marks (Unicode Mn after NFD), as tokenizers strip them, composed again (NFC).

    Composed, because NFD also takes Hangul syllables apart, which no tokenizer's accent stripping means.
    """
    decomposed = unicodedata.normalize("NFD", text)
    bare = "".join(character for character in decomposed if unicodedata.category(character) != "Mn")
    return unicodedata.normalize("NFC", bare)


def _marked(score: Score, difference: str, field: str) -> Score:
    return replace(score, name=f"{score.name}_{difference}", signature=f"{score.signature}|{field}")


def _check(hypotheses: Sequence[str], references: Sequence[str]) -> None:
    if len(hypotheses) != len(references):
        raise DataError(
            f"there are {len(hypotheses)} hypotheses but {len(references)} references: score one for each line"
        )
    if not hypotheses:
        raise DataError("there is nothing to score: 0 hypotheses and 0 references; give at least one line of each")
