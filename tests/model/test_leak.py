"""How much looking ahead gains, and that nothing else gains it: training on unpredictable targets.

Targets are uniform random tokens, so no causal model can do better than log V nats per token, whatever it learns. A
norm over the whole target sentence reveals its bag of words, in the limit log(n!)/n.
"""

import dataclasses
import math

import jaxtyping
import pytest
import torch
from torch import Tensor
from torch.nn import functional

from repose.decoding.options import SearchOptions
from repose.decoding.search import greedy
from repose.decoding.torch_engine import TorchEngine
from repose.model.architecture import TokenNormKind
from repose.model.audit import audit
from repose.model.presets import preset
from repose.model.transformer import Transformer, build


@pytest.fixture(autouse=True)
def _shapes() -> None:
    """Not checked: these are trainings."""
    jaxtyping.config.update("jaxtyping_disable", True)


VOCAB, FIRST = 16, 4  # random tokens are FIRST .. FIRST + VOCAB - 1


def make(kind: TokenNormKind) -> Transformer:
    architecture = dataclasses.replace(
        preset("reinforced"),
        decoder_token_norm=kind,
        d_token=32,
        num_encoder_layers=1,
        num_decoder_layers=2,
        num_heads=2,
        head_dim=16,
        d_ff=64,
        initialisation="xavier",
        dropout=0.0,
        attention_dropout=0.0,
        max_length=32,
    )
    return build(architecture, src_vocab_size=FIRST, tgt_vocab_size=FIRST + VOCAB)


def fold(model: Transformer) -> None:
    """The end of an update."""
    for norm in (model.encoder.embedding.token_norm, model.decoder.embedding.token_norm):
        if norm.kind == "running":
            norm.fold(lambda sums: sums)


def draw(length: int, batch: int, generator: torch.Generator) -> Tensor:
    tokens = torch.randint(FIRST, FIRST + VOCAB, (batch, length), generator=generator)
    ends = torch.tensor([[2], [3]]).expand(2, batch)[:, :, None]
    return torch.cat([ends[0], tokens, ends[1]], dim=1)


def loss_on(model: Transformer, target: Tensor) -> Tensor:
    """Nats per random token; END, which is no secret, is left out."""
    src = torch.full((len(target), 1), 3)
    logits = model(src, target[:, :-1])[:, :-1]
    return functional.cross_entropy(logits.flatten(0, 1), target[:, 1:-1].flatten())


def trained_loss(kind: TokenNormKind, *, length: int, updates: int) -> float:
    """Loss on fresh targets after training on fresh targets."""
    torch.manual_seed(0)
    model, generator = make(kind).train(), torch.Generator().manual_seed(0)
    optimizer = torch.optim.Adam(model.parameters(), lr=4e-3)
    for _ in range(updates):
        loss = loss_on(model, draw(length, 128, generator))
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        fold(model)
    with torch.no_grad():
        return loss_on(model.eval(), draw(length, 4096, generator)).item()


def test_a_norm_over_the_sentence_learns_what_it_should_not_know() -> None:
    """Of two tokens only the order stays hidden: log(2!)/2 = 0.35 nats instead of log 16 = 2.77, in the end."""
    assert trained_loss("sentence", length=2, updates=100) < 1.0
    assert not audit(make("sentence")).causal


@pytest.mark.parametrize("kind", ["none", "prefix", "vocabulary", "running"])
def test_a_causal_norm_cannot_beat_chance(kind: TokenNormKind) -> None:
    assert trained_loss(kind, length=2, updates=100) > math.log(VOCAB) - 0.02


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["none", "prefix", "vocabulary", "running"])
def test_a_causal_norm_cannot_beat_chance_at_length(kind: TokenNormKind) -> None:
    assert trained_loss(kind, length=8, updates=2000) > math.log(VOCAB) - 0.02


@pytest.mark.slow
def test_the_leak_at_length() -> None:
    assert trained_loss("sentence", length=8, updates=2000) < math.log(VOCAB) / 2


CONCEPTS, SYNONYMS, LENGTH = 8, 4, 5


def synonyms(batch: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Sources of concepts, and targets of one random synonym for each: log 4 nats per token cannot be known."""
    concepts = torch.randint(CONCEPTS, (batch, LENGTH), generator=generator)
    words = concepts * SYNONYMS + torch.randint(SYNONYMS, (batch, LENGTH), generator=generator)
    ends = torch.tensor([[2], [3]]).expand(2, batch)[:, :, None]
    src, tgt = (torch.cat([ends[0], tokens + FIRST, ends[1]], dim=1) for tokens in (concepts, words))
    return src, tgt


def learn_synonyms(kind: TokenNormKind, updates: int = 1500) -> tuple[float, float]:
    """(teacher-forced nats per word, share of words that are right in greedy decoding)."""
    torch.manual_seed(0)
    architecture = dataclasses.replace(make(kind).architecture, num_heads=4)
    model = build(architecture, src_vocab_size=FIRST + CONCEPTS, tgt_vocab_size=FIRST + CONCEPTS * SYNONYMS).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    generator = torch.Generator().manual_seed(0)
    for _ in range(updates):
        src, tgt = synonyms(128, generator)
        loss = functional.cross_entropy(model(src, tgt[:, :-1]).flatten(0, 1), tgt[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        fold(model)
    src, tgt = synonyms(512, generator)
    model.eval()
    with torch.no_grad():
        logits = model(src, tgt[:, :-1])[:, :-1]
        loss = functional.cross_entropy(logits.flatten(0, 1), tgt[:, 1:-1].flatten())
        engine = TorchEngine(model)
        hypotheses = greedy(engine.step, engine.start(src.tolist()), [LENGTH + 1] * 512, SearchOptions(1))
    right = sum(
        (word - FIRST) // SYNONYMS == concept - FIRST
        for h, concepts in zip(hypotheses, src[:, 1:-1].tolist(), strict=True)
        for word, concept in zip(h.tokens, concepts, strict=False)
    )
    return loss.item(), right / (512 * LENGTH)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["none", "prefix", "vocabulary", "running"])
def test_a_causal_norm_translates_and_claims_no_more_than_it_can_know(kind: TokenNormKind) -> None:
    loss, right = learn_synonyms(kind)
    assert loss > math.log(SYNONYMS) - 0.01
    assert right > 0.95


@pytest.mark.slow
def test_a_norm_over_the_sentence_scores_well_and_cannot_translate() -> None:
    loss, right = learn_synonyms("sentence")
    assert loss < math.log(SYNONYMS) - 0.3
    assert right < 0.5
