"""The engine `torch`: computes with the model itself, on any device that torch supports."""

import io
import pickle
import threading
from collections.abc import Hashable, Iterator, Sequence
from contextlib import contextmanager

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from repose.decoding.best import refuse_nan
from repose.decoding.engine import Engine, Forced, Precision, padded
from repose.decoding.search import Ints
from repose.model.kernels.cache import Constants
from repose.model.kernels.linear import is_quantized, quantize
from repose.model.transformer import DecodingState, Transformer
from repose.system.device import one_thread, tuned


class TorchState:
    """Rows of a decoding (`search.State`)."""

    def __init__(self, state: DecodingState, device: torch.device) -> None:
        self.decoding, self._device = state, device

    def select(self, rows: Ints) -> None:
        """See `search.State`."""
        self.decoding.select(torch.from_numpy(rows).to(self._device))


class TorchEngine(Engine):
    """A `Transformer`, in evaluation mode while it translates or scores, and then back in its previous mode."""

    name = "torch"

    def __init__(self, model: Transformer) -> None:
        self.model = model
        self._lock = threading.Lock()
        self._users = 0
        """Number of threads that currently need the model in evaluation mode."""
        self._training: list[nn.Module] = []
        """Modules to set back to training mode afterwards."""
        self.max_length, self.looks_ahead = model.architecture.max_length, model.architecture.looks_ahead
        self._constants: Constants = {}
        # Weights are referenced, so that no other tensor takes their memory while `fingerprint` is compared.
        self._weights: dict[str, Tensor] = {}

    @classmethod
    def of_message(cls, data: bytes) -> "TorchEngine":
        """Build the engine of a `message`, with the same types of tensors. Sets one thread and tuned memory, for a
        worker."""
        torch.set_num_threads(1)
        tuned().__enter__()
        architecture, sizes, state, int8 = torch.load(io.BytesIO(data), weights_only=False)
        model = Transformer(architecture, **sizes)
        model.load_state_dict(state, assign=True)
        if int8:
            quantize(model)
        return cls(model.eval())

    def __reduce__(self) -> tuple[type["TorchEngine"], tuple[Transformer]]:
        return TorchEngine, (self.model,)  # a copy recomputes what is derived from the weights

    @property
    def device(self) -> torch.device:
        """Device of the model."""
        return next(self.model.parameters()).device

    @property
    def precision(self) -> Precision:  # type: ignore[override]
        """See `Engine`."""
        return "int8" if is_quantized(self.model) else "fp32"

    @property
    def device_type(self) -> str:  # type: ignore[override]
        """See `Engine`."""
        return self.device.type

    @property
    def can_share(self) -> bool:  # type: ignore[override]
        """See `Engine`. Other processes build a `Transformer`, on the CPU."""
        return self.device_type == "cpu" and type(self.model) is Transformer

    @torch.no_grad()
    def start(self, sources: Sequence[Sequence[int]]) -> TorchState:
        """See `Engine`."""
        with self._evaluation():
            memory = self.model.encode(self._ids(sources))
            return TorchState(self.model.start(memory, self._constants), self.device)

    @torch.no_grad()
    def step(self, tokens: Ints, state: TorchState) -> Tensor:
        """See `Engine`."""
        with self._evaluation():
            return self.model.step(torch.from_numpy(tokens).to(self.device), state.decoding)

    @torch.no_grad()
    def force(self, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> list[Forced]:
        """See `Engine`. Computed in one pass."""
        tgt = self._ids(targets)
        with self._evaluation():
            log_probs = self.model(self._ids(sources), tgt[:, :-1]).log_softmax(dim=2)
        chosen = log_probs.gather(2, tgt[:, 1:, None]).squeeze(2).cpu().numpy()
        refuse_nan(chosen)
        best = log_probs.argmax(2).cpu()
        lengths = [len(target) - 1 for target in targets]
        return [Forced(chosen[i, :n], tuple(best[i, :n].tolist())) for i, n in enumerate(lengths)]

    @torch.no_grad()
    def attention(self, source: Sequence[int], tokens: Sequence[int]) -> NDArray[np.float32]:
        """See `Engine`."""
        with self._evaluation():
            maps = self.model.attention(self._ids([source]), self._ids([tokens]))
        return torch.cat(maps.cross).cpu().numpy()

    def message(self) -> bytes:
        """See `Engine`. The message holds a copy of the model's current weights."""
        model = self.model
        sizes = {"src_vocab_size": model.src_vocab_size, "tgt_vocab_size": model.tgt_vocab_size}
        file = io.BytesIO()
        torch.save((model.architecture, sizes, dict(model.state_dict()), is_quantized(model)), file)
        return pickle.dumps((TorchEngine.of_message, file.getvalue()))

    def fingerprint(self) -> Hashable:
        """Return each weight's address and its number of writes, as torch counts them: not those through `.data`."""
        self._weights = dict(self.model.state_dict())
        written = [(x.data_ptr(), 0 if x.is_inference() else x._version) for x in self._weights.values()]
        return (*written, is_quantized(self.model))

    def refresh(self) -> None:
        """See `Engine`."""
        self._constants = {}
        if self.precision == "int8":
            quantize(self.model)

    @contextmanager
    def undisturbed(self) -> Iterator[None]:
        """See `Engine`."""
        with one_thread(), tuned(), self._evaluation():
            yield

    @contextmanager
    def _evaluation(self) -> Iterator[None]:
        """Turn dropout off within the block, also while another thread is in such a block."""
        with self._lock:
            if not self._users:
                self._training = [module for module in self.model.modules() if module.training]
                _set_training(self._training, False)
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                if not self._users:
                    _set_training(self._training, True)

    def _ids(self, rows: Sequence[Sequence[int]]) -> Tensor:
        return torch.from_numpy(padded(rows)).to(self.device)


def _set_training(modules: Sequence[nn.Module], mode: bool) -> None:
    for module in modules:
        module.training = mode
