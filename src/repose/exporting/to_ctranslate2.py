"""Target `ctranslate2`: a folder for `ctranslate2.Translator`, for architectures that it can express.

The folder is loaded again and compared with the model on random sentences: log-probabilities of given targets, and the
tokens that greedy search chooses. It is kept only if it agrees.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from repose.data.tokenizer import SPECIAL_TOKENS, Tokenizer
from repose.decoding.engine import padded
from repose.decoding.load import load
from repose.decoding.options import SETTINGS
from repose.decoding.translator import Translator
from repose.exporting.base import Exported, Options, usage
from repose.exporting.ctranslate2_spec import specification, why_not
from repose.graphs.coverage import SIZES_AND_TRAINING, not_listed
from repose.model.architecture import Architecture
from repose.model.transformer import Transformer
from repose.saved_model import directory
from repose.saved_model.description import write_description
from repose.saved_model.directory import SRC_TOKENIZER, TGT_TOKENIZER
from repose.system.errors import CheckpointError, ConfigError, of_extra
from repose.system.token_ids import END, PAD, START, UNK

NAME = "ctranslate2"
TOLERANCE = 1e-3
"""Largest allowed difference of a log-probability (in nats) in fp32."""

_SENTENCES, _LONGEST, _SEED = 24, 20, 1
_LONG = 128  # length of an additional sentence, for errors that only occur at long distances
_COMPUTE_TYPES = {"fp32": "float32", "int8": "int8"}
_USUAL_LENGTH = 15  # sentence length in tokens at which both length penalties are matched

_RANKS = (
    "CTranslate2 ranks the hypotheses of a beam by another length penalty (docs/export.md), so translations of a beam "
    "may differ from the model's"
)


@dataclass(frozen=True)
class Comparison:
    """How well an export agrees with its model."""

    sentences: int
    largest_difference: float
    """Largest difference (in nats) of a given target token's log-probability."""
    equal_greedy: int
    """Number of sentences in which every token chosen by greedy search is the model's most probable one."""
    worst_choice: float
    """Largest margin (in nats) by which the model prefers another token to one that greedy search chose."""


def export(model: Path, out: Path, options: Options) -> Exported:
    """See `repose.exporting.targets`."""
    architecture = directory.architecture_of(model)
    if (reason := why_not(architecture)) is not None:
        raise ConfigError(
            f"CTranslate2 cannot express this model: {reason}. Export it to onnx or web, or train one that it can, "
            "such as --preset small-rotary (docs/export.md has the others)"
        )
    with of_extra("ctranslate2", "this export needs CTranslate2"):
        import ctranslate2.specs
    translator = load(model, workers=1, engine="torch")
    loaded, tokenizers = translator.model, (translator.src_tokenizer, translator.tgt_tokenizer)
    vocabularies = [_vocabulary(tokenizer) for tokenizer in tokenizers]
    _write(loaded, vocabularies, out, None)
    compared = compare(loaded, vocabularies, out, "fp32")
    if not (worst := float(np.max([compared.largest_difference, compared.worst_choice]))) <= TOLERANCE:
        raise CheckpointError(
            f"what CTranslate2 computes differs from the model's log-probabilities by {worst:.1e}, so nothing was "
            f"exported: try another version of it than {ctranslate2.__version__}{_or_not_folded(architecture)}"
        )
    if options.precision == "int8":
        _write(loaded, vocabularies, out, "int8")
        compared = compare(loaded, vocabularies, out, "int8")
    for name, tokenizer in zip((SRC_TOKENIZER, TGT_TOKENIZER), tokenizers, strict=True):
        tokenizer.save(out / name)
    fields = _fields(translator, options.precision, compared)
    write_description(out, NAME, translator.config, {"ctranslate2": ctranslate2.__version__, **fields})
    return Exported(NAME, out, compared.largest_difference, notes=(_greedy_note(compared), _RANKS))


def _greedy_note(compared: Comparison) -> str:
    if compared.equal_greedy == compared.sentences:
        return f"with greedy search, the text of all {compared.sentences} random sentences is the model's"
    return (
        f"with greedy search, the text of {compared.equal_greedy} of {compared.sentences} random sentences is the "
        f"model's; the others have a token that it finds less likely than another, by at most "
        f"{compared.worst_choice:.1e} nats"
    )


def _or_not_folded(architecture: Architecture) -> str:
    """Say what else, besides CTranslate2's version, may cause a difference."""
    settings = ", ".join(f"{name} = {value!r}" for name, value in not_listed(architecture, {}, SIZES_AND_TRAINING))
    return f", or exporting/ctranslate2_spec.py does not fold a setting of this model: {settings}" if settings else ""


def _write(model: Transformer, vocabularies: Sequence[Sequence[str]], out: Path, quantization: str | None) -> None:
    spec = specification(model, *vocabularies)
    spec.validate()
    spec.optimize(quantization=quantization)
    spec.save(str(out))


def _vocabulary(tokenizer: Tokenizer) -> list[str]:
    """Return the text of each id; ids without a text get a unique name."""
    tokens = tokenizer.tokens(range(tokenizer.vocab_size))
    return [f"[unused {i}]" if token == SPECIAL_TOKENS[UNK] and i != UNK else token for i, token in enumerate(tokens)]


def _fields(translator: Translator, precision: str, compared: Comparison) -> dict[str, Any]:
    size = translator.no_repeat_ngram_size
    penalty = translator.length_penalty * _USUAL_LENGTH / (5 + _USUAL_LENGTH)
    search = f"beam_size={translator.beam_size}, length_penalty={penalty:g}, min_decoding_length=0"
    search += f", no_repeat_ngram_size={size}" if size else ""
    decoding = {
        "of_the_model": {name: getattr(translator, name) for name in SETTINGS},
        "beam_size": translator.beam_size,
        "no_repeat_ngram_size": size,
        "length_penalty": penalty,
        "length_penalty_note": "the model divides a score by ((5 + n) / 6) ** a, CTranslate2 by n ** b, n tokens "
        f"with END: b is chosen so that one more token weighs the same at n = {_USUAL_LENGTH}",
        "scores_note": "log-probabilities are of a vocabulary without [PAD] and [START], which are never chosen",
    }
    how_to_load = (
        "import ctranslate2, tokenizers",
        "",
        'source = tokenizers.Tokenizer.from_file(f"{FOLDER}/tokenizer.src.json")',
        'source.encode_special_tokens = True  # "[END]" in a text is text',
        'target = tokenizers.Tokenizer.from_file(f"{FOLDER}/tokenizer.tgt.json")',
        f'translator = ctranslate2.Translator(FOLDER, compute_type="{_COMPUTE_TYPES[precision]}")',
        "tokens = source.encode(text).tokens  # [START] ... [END]; the tag, if there is one, after [START]",
        f"longest = min(len(tokens) + {translator.max_extra_tokens}, {translator.max_length})  # as the model does",
        "# min_decoding_length = 0 allows empty translations; leave blank lines out",
        f"best = translator.translate_batch([tokens], {search}, max_decoding_length=longest)[0].hypotheses[0]",
        "target.decode([target.token_to_id(token) for token in best])",
    )
    return {
        **usage(decoding, *how_to_load),
        "precision": precision,
        "compute_type": _COMPUTE_TYPES[precision],
        "tokenizers": {"source": SRC_TOKENIZER, "target": TGT_TOKENIZER},
        "tag": translator.tag,
        "max_length": translator.max_length,
        "comparison": asdict(compared),
    }


@torch.no_grad()
def compare(model: Transformer, vocabularies: Sequence[Sequence[str]], folder: Path, precision: str) -> Comparison:
    """Compare an export with its model on random sentences."""
    import ctranslate2

    translator = ctranslate2.Translator(str(folder), compute_type=_COMPUTE_TYPES[precision], intra_threads=1)
    most = model.architecture.max_length
    longest = max(1, min(_LONGEST, most - 2))
    src, tgt = _random_sentences([len(vocabulary) for vocabulary in vocabularies], longest, most)
    src_texts, tgt_texts = map(_texts, (src, tgt), vocabularies)
    differences = []
    for some in (slice(_SENTENCES), slice(_SENTENCES, None)):  # the long one separately, as it would pad the others
        scored = translator.score_batch(src_texts[some], tgt_texts[some])
        for log_probs, target, one in zip(_log_probs(model, src[some], tgt[some]), tgt[some], scored, strict=True):
            theirs = torch.tensor(one.log_probs)
            differences.append(float((_chosen(log_probs, [*target, END]) - theirs).abs().max()))
    src, src_texts, limit = src[:_SENTENCES], src_texts[:_SENTENCES], min(longest + 1, most)
    results = translator.translate_batch(src_texts, beam_size=1, min_decoding_length=0, max_decoding_length=limit)
    numbers = {token: i for i, token in enumerate(vocabularies[1])}
    greedy = [[numbers[token] for token in result.hypotheses[0]] for result in results]
    choices = []
    for log_probs, chosen in zip(_log_probs(model, src, [row[: limit - 1] for row in greedy]), greedy, strict=True):
        said = chosen if len(chosen) == limit else [*chosen, END]  # a sentence at its limit has no END
        choices.append(float((log_probs[: len(said)].amax(1) - _chosen(log_probs, said)).max()))
    largest, worst = (float(np.max(found)) for found in (differences, choices))  # NaN if any is NaN
    return Comparison(_SENTENCES, largest, sum(choice == 0.0 for choice in choices), worst)


def _random_sentences(vocab_sizes: Sequence[int], longest: int, most: int) -> tuple[list[list[int]], list[list[int]]]:
    """Return sources, from START to END, and targets, without them: `_SENTENCES` of at most `longest` words, then a
    long one. `most`: the model's longest sequence."""
    generator = torch.Generator().manual_seed(_SEED)

    def words(vocab_size: int, length: int) -> list[int]:
        first = min(END + 1, vocab_size - 1)
        return torch.randint(first, vocab_size, (length,), generator=generator).tolist()

    def some_length() -> int:
        return int(torch.randint(1, longest + 1, (), generator=generator))

    src, tgt = ([words(size, some_length()) for _ in range(_SENTENCES)] for size in vocab_sizes)
    for side, size in zip((src, tgt), vocab_sizes, strict=True):
        side.append(words(size, max(1, min(_LONG, most) - 2)))
    # CTranslate2 does not translate a source of only START and END, so the shortest sources keep a word instead.
    src = [[START, *row, END] if most > 2 else [*row, END][:most] for row in src]
    return src, [row[: most - 1] for row in tgt]


def _texts(sentences: Sequence[Sequence[int]], vocabulary: Sequence[str]) -> list[list[str]]:
    return [[vocabulary[i] for i in ids] for ids in sentences]


def _log_probs(
    model: Transformer, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]
) -> list[torch.Tensor]:
    """Return, per sentence, the log-probabilities (T + 1, V) after START and after each target token, without PAD and
    START."""
    logits = model(
        torch.from_numpy(padded(sources)), torch.from_numpy(padded([[START, *target] for target in targets]))
    )
    logits[:, :, [PAD, START]] = -torch.inf
    return [row[: len(target) + 1].log_softmax(1) for row, target in zip(logits, targets, strict=True)]


def _chosen(log_probs: torch.Tensor, tokens: Sequence[int]) -> torch.Tensor:
    return log_probs[: len(tokens)].gather(1, torch.tensor(tokens)[:, None])[:, 0]
