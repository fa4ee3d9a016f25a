"""The cache of decoding: what a decoder keeps from one step to the next, in a slot per component."""

from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TypeAlias, TypeVar, cast

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

GROWTH = 8
"""Number of steps by which the room for keys and values grows at a time."""
FEWEST = 0.75
"""When the share of sentences still being decoded falls to this, the other sentences' tensors are dropped."""


T = TypeVar("T")
Constants: TypeAlias = dict[nn.Module, object]
"""What components derive from their weights, by component."""


class Beams:
    """The rows of a decoding, grouped by sentence: (R, X) becomes (N, W, X), where W is the most rows of a sentence.

    All rows of a sentence (the hypotheses of its beam) read the same memory. So the memory's keys and values are kept
    once per sentence, not once per row.
    """

    def __init__(self, sentences: Int[Tensor, " R"], num_sentences: int) -> None:
        self.sentences, self.num_sentences = sentences, num_sentences
        """Index of each row's sentence."""

    @cached_property
    def _is_plain(self) -> bool:
        rows = torch.arange(self.num_sentences, device=self.sentences.device)
        return len(self.sentences) == self.num_sentences and bool((self.sentences == rows).all())

    @cached_property
    def _cells(self) -> tuple[Int[Tensor, " R"], int]:
        """Each row's place n · W + w, and W."""
        ordered, order = self.sentences.sort(stable=True)
        counts = torch.bincount(ordered, minlength=self.num_sentences)
        width = int(counts.max())
        rank = torch.arange(len(ordered), device=ordered.device) - (counts.cumsum(0) - counts)[ordered]
        cells = torch.empty_like(order)
        cells[order] = ordered * width + rank
        return cells, width

    def by_sentence(self, rows: Float[Tensor, "R X"]) -> Float[Tensor, "N W X"]:
        """Return the rows grouped by sentence. Places without a row hold arbitrary finite numbers."""
        if self._is_plain:
            return rows[:, None]
        cells, width = self._cells
        row_of_cell = cells.new_zeros(self.num_sentences * width)
        row_of_cell[cells] = torch.arange(len(cells), device=cells.device)
        return rows.index_select(0, row_of_cell).unflatten(0, (-1, width))

    def to_rows(self, grid: Float[Tensor, "N W X"]) -> Float[Tensor, "R X"]:
        """Invert `by_sentence`."""
        flat = grid.flatten(0, 1)
        return flat if self._is_plain else flat.index_select(0, self._cells[0])


class Cache:
    """The tensors that decoding keeps between steps, each under the component that owns it.

    Tensors kept per row (keys and values of self-attention, running statistics of a token norm) are reordered together,
    so that beam search cannot forget one. Tensors kept per sentence (keys and values of the memory) are never
    reordered.
    """

    def __init__(self, src_mask: Bool[Tensor, "N S"], constants: Constants | None = None) -> None:
        """`constants`: the constants of an earlier decoding with the same weights, to reuse and extend."""
        self.length = 0
        """Number of target tokens read so far, the same for every row. It grows by one at the end of a step."""
        self.src_bias: Float[Tensor, "N 1 1 1 S"] | None = None
        """Added to the scores of source tokens: 0 for real ones, -inf for padding; 0 if all of a source is padding."""
        self.has_source: Float[Tensor, "N 1 1 1 1"] | None = None
        """0 for a source of padding alone, 1 for others; None if there is no such source."""
        if not bool(src_mask.all()):
            some = src_mask.any(1, keepdim=True)
            bias = torch.zeros(src_mask.shape, dtype=torch.float32, device=src_mask.device)
            bias.masked_fill_(~src_mask & some, -torch.inf)
            self.src_bias = bias[:, None, None, None]
            self.has_source = None if bool(some.all()) else some.to(bias)[:, :, None, None, None]
        self.beams = Beams(torch.arange(len(src_mask), device=src_mask.device), len(src_mask))
        """The sentence of each row."""
        self._slots: dict[object, tuple[Tensor, ...]] = {}
        self._histories: dict[object, tuple[Tensor, ...]] = {}
        self._memory: dict[object, tuple[Tensor, ...]] = {}
        self._constants = {} if constants is None else constants

    def get(self, component: nn.Module) -> tuple[Tensor, ...] | None:
        """Return what the component put last, in the current order of rows; None if it has put nothing."""
        return self._slots.get(component)

    def put(self, component: nn.Module, *tensors: Tensor) -> None:
        """Replace the component's slot. Each tensor is (R, ...)."""
        self._slots[component] = tensors

    def extend(self, owner: object, *new: Float[Tensor, "R G _"]) -> tuple[Tensor, ...]:
        """Append the tensors of the token being read. Return all tokens' tensors so far, each (R, G, length + 1, c)."""
        known = self._histories.get(owner)
        if known is None or known[0].shape[2] == self.length:
            grown = tuple(x.new_empty(*x.shape[:2], self.length + GROWTH, x.shape[2]) for x in new)
            for buffer, old in zip(grown, known or (), strict=known is not None):
                buffer[:, :, : self.length] = old
            known = self._histories[owner] = grown
        for buffer, x in zip(known, new, strict=True):
            buffer[:, :, self.length] = x
        return tuple(buffer[:, :, : self.length + 1] for buffer in known)

    def of_memory(self, owner: object, make: Callable[[], Sequence[Tensor]]) -> tuple[Tensor, ...]:
        """Return what is kept of the memory under this owner, made at the first call. Each tensor is (N, ...)."""
        if owner not in self._memory:
            self._memory[owner] = tuple(make())
        return self._memory[owner]

    def once(self, component: nn.Module, make: Callable[[], T]) -> T:
        """Return what the component derives from its weights, which no reordering changes; made at the first call.

        An example is the statistics of the embedding table. If several threads make it at the same time, the first one
        counts.
        """
        if component not in self._constants:
            self._constants.setdefault(component, make())
        return cast(T, self._constants[component])

    def select(self, rows: Int[Tensor, " R"]) -> None:
        """Replace row i by row `rows[i]`, for every i: reorder, repeat or drop rows of everything kept per row."""
        for kept in (self._slots, self._histories):
            for owner, tensors in kept.items():
                kept[owner] = tuple(tensor.index_select(0, rows) for tensor in tensors)
        self.beams = Beams(self.beams.sentences[rows], self.beams.num_sentences)
        live, sentences = self.beams.sentences.unique(return_inverse=True)
        if self._memory and len(live) <= FEWEST * self.beams.num_sentences:
            self.src_bias = None if self.src_bias is None else self.src_bias[live]
            self.has_source = None if self.has_source is None else self.has_source[live]
            for owner, tensors in self._memory.items():
                self._memory[owner] = tuple(tensor.index_select(0, live) for tensor in tensors)
            self.beams = Beams(sentences, len(live))
