"""What the encoder hands to the decoder."""

from dataclasses import dataclass

from jaxtyping import Float
from torch import Tensor

from repose.model.kernels.packing import Packing


@dataclass(frozen=True)
class Memory:
    """Packed rows of source tokens."""

    hidden: Float[Tensor, "R D"]
    """Output of the last encoder layer: the keys of cross-attention."""
    values: Float[Tensor, "R M"]
    """What cross-attention takes its values from: `hidden`, or the normalised source token embeddings."""
    packing: Packing
    """Where the rows belong; its mask (B, S) is True at real source tokens."""

    def select(self, rows: Tensor) -> "Memory":
        """The memory of the sentences `rows`, which may repeat."""
        packing = Packing(self.packing.mask[rows])
        hidden, values = (packing.pack(self.packing.pad(x)[rows]) for x in (self.hidden, self.values))
        return Memory(hidden, values, packing)
