"""Ensembles: the mean of several models, in every engine and process, and which models cannot be combined."""

import dataclasses
import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
import torch

from repose.data.tokenizer import Tokenizer
from repose.decoding.best import mean_of_probabilities
from repose.decoding.ensemble import Ensemble
from repose.decoding.load import load
from repose.decoding.torch_engine import TorchEngine
from repose.decoding.translator import MODEL_KIND, Translator
from repose.model.presets import preset
from repose.saved_model import directory
from repose.saved_model.api import build
from repose.system.errors import ConfigError, ReposeError
from repose.system.token_ids import END, PAD, START

WORDS = ["ka", "lo", "mi", "nu", "pe", "ra", "so", "ti"]
SIZES = {"d_token": 16, "num_heads": 2, "head_dim": 16, "d_ff": 32, "num_encoder_layers": 1, "num_decoder_layers": 1}
TEXTS = ["ka lo mi", "nu", "pe ra so ti ka", "ti ti", "so mi lo"]


@pytest.fixture(scope="module")
def folders(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Three models: of two architectures, with one tokenizer."""
    place = tmp_path_factory.mktemp("models")
    return [written(place / name, name, seed) for name, seed in (("reinforced", 0), ("baseline", 1), ("rotary", 2))]


def written(folder: Path, name: str, seed: int, *, words: Sequence[str] = WORDS, max_length: int = 24) -> Path:
    tokenizer = Tokenizer.train([" ".join(words)] * 3, kind="wordlevel", vocab_size=50)
    architecture = dataclasses.replace(preset(name), **SIZES, max_length=max_length, initialisation="xavier")
    size = tokenizer.vocab_size
    model = build(architecture, src_vocab_size=size, tgt_vocab_size=size, seed=seed)
    extra = {"run_id": name, "decoding": {"beam_size": 3, "max_extra_tokens": 4}}
    directory.save(folder, MODEL_KIND, model, [tokenizer.json] * 2, card="A test.", extra=extra)
    return folder


def mean_by_hand(translators: Sequence[Translator], source: list[int], tokens: Sequence[int]) -> np.ndarray:
    """Log of the mean probability of each next token after these, (V,): without cache, in double precision."""
    with torch.no_grad():
        src, tgt = torch.tensor([source]), torch.tensor([tokens])
        each = [t.model(src, tgt)[0, -1].double().softmax(0) for t in translators]
    return np.log(torch.stack(each).mean(0).numpy())


@pytest.mark.parametrize("engine", ["torch", "onnx"])
def test_greedy_search_takes_the_token_of_the_highest_mean_probability(folders: list[Path], engine: str) -> None:
    members = [load(folder, engine="torch", workers=1) for folder in folders]
    with load(folders, engine=engine, workers=1) as ensemble:
        translations = ensemble.translate(TEXTS, beam_size=1)
        sources = ensemble.encode(TEXTS)
    for source, translation in zip(sources, translations, strict=True):
        tokens, score = [START], 0.0
        while len(tokens) <= len(source) + 4 and tokens[-1] != END:
            log_probs = mean_by_hand(members, source, tokens)
            log_probs[[PAD, START]] = -math.inf
            tokens.append(int(log_probs.argmax()))
            score += log_probs[tokens[-1]]
        found = translation.hypotheses[0]
        assert list(members[0].tgt_tokenizer.ids(found.tokens)) == [x for x in tokens[1:] if x != END]
        assert found.score == pytest.approx(score, abs=1e-4)


def test_a_beam_a_forced_decode_and_other_processes_agree(folders: list[Path]) -> None:
    texts = TEXTS * 30
    with load(folders, engine="onnx", workers=1) as alone, load(folders, engine="onnx", workers=2) as shared:
        assert alone.beam_size == 3
        translations = alone.translate(texts)
        alone.batch_size = shared.batch_size = 10
        shared._pool.start(shared.engine)
        assert shared.translate(texts) == alone.translate(texts)
        targets = [[START, *alone.tgt_tokenizer.ids(t.hypotheses[0].tokens), END] for t in translations]
        forced = alone.force(texts, targets)
    for translation, of_it in zip(translations, forced, strict=True):
        if translation.hypotheses[0].finished:
            assert of_it.total == pytest.approx(translation.score, abs=1e-4)


def test_a_model_with_itself_is_the_model(folders: list[Path]) -> None:
    one, twice = load(folders[0], workers=1), load([folders[0]] * 2, workers=1)
    assert [t.text for t in twice.translate(TEXTS)] == [t.text for t in one.translate(TEXTS)]
    assert twice.score(TEXTS, TEXTS) == pytest.approx(one.score(TEXTS, TEXTS), abs=1e-4)
    assert not isinstance(load([folders[0]], workers=1).engine, Ensemble)


def test_the_mean_of_probabilities() -> None:
    rng = np.random.default_rng(0)
    arrays = [np.log(rng.dirichlet(np.full(6, 0.2), 4)).astype(np.float32) for _ in range(3)]
    arrays[0][0, 1], arrays[1][0, 1], arrays[2][0, 1] = -300.0, -200.0, -250.0
    arrays[0][1, 2] = -math.inf
    for array in arrays:
        array[2, 3] = -math.inf
    before = [array.copy() for array in arrays]
    exact = np.logaddexp.reduce([array.astype(np.float64) for array in arrays]) - math.log(3)
    for given in (
        arrays,
        [torch.from_numpy(array) for array in arrays],
        [arrays[0], *map(torch.from_numpy, arrays[1:])],
    ):
        np.testing.assert_allclose(mean_of_probabilities(given), exact, rtol=1e-5, atol=1e-6)
    assert all((array == copy).all() for array, copy in zip(arrays, before, strict=True))


def test_weights_that_change_are_noticed(folders: list[Path]) -> None:
    members = [load(folder, engine="torch", workers=1) for folder in folders[:2]]
    tokenizer = members[0].src_tokenizer
    ensemble = Translator(Ensemble([m.engine for m in members]), tokenizer, tokenizer, beam_size=1, workers=1)
    before, scores = ensemble.translate(TEXTS), ensemble.score(TEXTS, TEXTS)
    engine = members[1].engine
    assert isinstance(engine, TorchEngine)
    with torch.no_grad():
        for weight in engine.model.parameters():
            weight.mul_(-1.5)  # by -1, products of two would stay
    changed_scores, changed = ensemble.score(TEXTS, TEXTS), ensemble.translate(TEXTS)
    assert [t.score for t in changed] != [t.score for t in before]
    fresh = Translator(Ensemble([TorchEngine(m.model) for m in members]), tokenizer, tokenizer, beam_size=1, workers=1)
    assert changed == fresh.translate(TEXTS)
    assert changed_scores == fresh.score(TEXTS, TEXTS) != scores


def test_what_cannot_be_one_is_refused(folders: list[Path], tmp_path: Path) -> None:
    others = written(tmp_path / "others", "baseline", 0, words=[*WORDS, "un"])
    ahead = written(tmp_path / "ahead", "reinforced-lookahead", 0)
    for models, said in (
        ([folders[0], others], "has other tokenizers than"),
        ([folders[0], ahead], "looks ahead"),
        ([], "name one at least"),
        ([folders[0], tmp_path / "none"], "none"),
    ):
        with pytest.raises(ReposeError, match=said):
            load(models, workers=1)
    ensemble = load(folders, workers=1)
    with pytest.raises(ConfigError, match="attention"):
        ensemble.translate(TEXTS, attention=True)
    with pytest.raises(ConfigError, match="several"):
        assert ensemble.model


def test_the_shortest_of_their_longest_sentences_is_the_ensembles(folders: list[Path], tmp_path: Path) -> None:
    short = written(tmp_path / "short", "baseline", 0, max_length=6)
    with load([folders[0], short], workers=1) as ensemble:
        assert ensemble.max_length == 6
        assert ensemble.translate(["ka " * 20])[0].truncated
