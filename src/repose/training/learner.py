"""One worker's model: gradient of a global batch, clipping, and Adam's step."""

import hashlib
from contextlib import nullcontext
from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn
from torch.optim.adam import adam
from torch.optim.adamw import adamw

from repose.config.experiment import TrainingConfig
from repose.model.kernels.beside import Beside
from repose.model.kernels.linear import training_products
from repose.model.token_norm import TokenNorm
from repose.training.distributed import World
from repose.training.exchange import make_exchange
from repose.training.feed import GlobalBatch, is_replayed
from repose.training.job import TrainingTask
from repose.training.replays import Replays

_ALIGNMENT = 16
"""Each parameter starts at a multiple of this many elements, because matrix products are faster on whole cache
lines."""


def dropout_seed(seed: int, update: int, micro_batch: int, rank: int) -> int:
    """Return the random seed of one forward pass: 63 bits of BLAKE2b of the four numbers.

    No random state needs to be saved, because an update's dropout masks depend only on its number.
    """
    digest = hashlib.blake2b(f"repose dropout 1/{seed}/{update}/{micro_batch}/{rank}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


class FlatParameters:
    """Names, shapes and offsets of a model's parameters in a flat tensor; tied ones once. Gaps stay zero."""

    def __init__(self, model: nn.Module) -> None:
        self._parameters = dict(model.named_parameters())
        self._starts: dict[str, int] = {}
        self.size = 0
        """Number of elements of a flat tensor."""
        for name, parameter in self._parameters.items():
            assert parameter.dtype == torch.float32
            self._starts[name] = self.size
            self.size += -(-parameter.numel() // _ALIGNMENT) * _ALIGNMENT

    def views(self, flat: Tensor) -> dict[str, Tensor]:
        """Return each parameter's part of a flat tensor, in its shape, by name."""
        return {
            name: flat[start : start + self._parameters[name].numel()].view_as(self._parameters[name])
            for name, start in self._starts.items()
        }

    def use(self, weights: Tensor, gradient: Tensor) -> None:
        """Make the model's parameters and gradients views of two flat tensors.

        Backward passes add to `gradient`, which must be zeroed instead of being set to None.
        """
        self._gradients = list(self.views(gradient).values())
        for (name, view), gradient_of in zip(self.views(weights).items(), self._gradients, strict=True):
            self._parameters[name].data = view.copy_(self._parameters[name].data)
            self._parameters[name].grad = gradient_of

    def narrow(self, flat: Tensor) -> dict[Tensor, Tensor]:
        """Return each parameter's part of a flat tensor, by parameter."""
        return {self._parameters[name]: view for name, view in self.views(flat).items()}

    def backward(self, loss: Float[Tensor, ""], beside: Beside | None) -> None:
        """Add the gradient of `loss` to the flat gradient. If some gradients were computed `beside`, add the others at
        once instead of one by one."""
        if beside is None:
            loss.backward()
            return
        gradients = torch.autograd.grad(loss, list(self._parameters.values()), allow_unused=True)
        beside.join()  # a parameter may have both kinds: a table that is also normalised, or tied to the output
        added = [(to, x) for to, x in zip(self._gradients, gradients, strict=True) if x is not None]
        for contiguous in (True, False):  # torch adds tensors with another memory layout one by one
            if chosen := [(to, x) for to, x in added if x.is_contiguous() == contiguous]:
                torch._foreach_add_(*map(list, zip(*chosen, strict=True)))


class Learner:
    """One worker's model, with flat weights, gradient, and Adam (Kingma and Ba 2015)."""

    def __init__(self, task: TrainingTask, model: nn.Module, config: TrainingConfig, world: World) -> None:
        """Take over the model: its parameters become views of one flat tensor."""
        self.model: Any = model.to(world.device).train()
        self.config, self.world, self.task = config, world, task
        self._flat = FlatParameters(model)
        self._exchange = make_exchange(world, self._flat.size)
        self._weights = self._exchange.zeros()
        self._flat.use(self._weights, self._exchange.local)
        self._moments = {name: self._exchange.zeros() for name in ("exp_avg", "exp_avg_sq")}
        self._steps = torch.zeros((), device=world.device)
        self._running = [m for m in model.modules() if isinstance(m, TokenNorm) and m.is_running]
        self._replays = Replays() if is_replayed(task, world.device) else None
        self._narrow: Tensor | None = None
        """On a GPU, a bf16 copy of the weights, if products are in bf16."""
        self._beside: Beside | None = None
        if world.device.type == "cuda":
            if config.precision == "bf16":
                self._narrow = self._weights.to(torch.bfloat16)
            narrow = {} if self._narrow is None else self._flat.narrow(self._narrow)
            self._beside = Beside(torch.cuda.Stream(world.device), narrow)
        self.norm = torch.zeros((), device=world.device)
        """Norm of the last gradient, before clipping."""
        self.sums = torch.zeros(5, dtype=torch.float64, device=world.device)
        """Sums over this worker's tokens: loss, nll, correct; then sums of batches' mean loss and nll times
        sentences."""

    def set_steps(self, update: int) -> None:
        """Set Adam's number of earlier steps, after all workers have loaded `tensors`."""
        self._steps.fill_(float(update))
        self._exchange.settle()

    def backward(self, batch: GlobalBatch, update: int) -> None:
        """Compute the gradient of a global batch's mean loss per target token, summed over workers and clipped.
        `update`: number of updates before this one.

        Every worker and micro-batch divides its loss by the target tokens of the whole global batch, so that the
        gradient depends neither on the number of workers nor on accumulation.
        """
        config = self.config
        self._exchange.local.zero_()
        num_tokens = torch.full((), batch.tokens, device=self.world.device)
        for index, micro_batch in enumerate(batch.micro_batches):
            if micro_batch is None:
                continue
            self._seed(dropout_seed(config.seed, update, index, self.world.rank))
            run = self._forward_and_backward
            if self._replays is None:
                sums = run(micro_batch, num_tokens)
            else:
                sums = self._replays(run, micro_batch, num_tokens)
            self.sums += torch.cat([sums, sums[:2] * (batch.sentences / batch.tokens)])
        self._exchange.sum()
        self.norm = torch.linalg.vector_norm(self._exchange.gradient)
        if config.clip_norm is not None:
            self._exchange.scale((config.clip_norm / (self.norm + 1e-6)).clamp(max=1.0))

    def _seed(self, seed: int) -> None:
        """Seed this device's random numbers only; `torch.manual_seed` would seed every GPU's."""
        if self.world.device.type == "cuda":
            torch.cuda.manual_seed(seed)
        else:
            torch.default_generator.manual_seed(seed)

    def _forward_and_backward(self, micro_batch: Any, num_tokens: Int[Tensor, ""]) -> Float[Tensor, "3"]:
        """Add the gradient of a micro-batch's loss, divided by `num_tokens`; return loss, nll and correct."""
        config, kind = self.config, self.world.device.type
        if self._narrow is not None:
            self._narrow.copy_(self._weights)
        with training_products(), self._beside.active() if self._beside else nullcontext():
            with torch.autocast(kind, torch.bfloat16, enabled=config.precision == "bf16"):
                sums = self.task.training_loss(self.model, micro_batch, config)
            self._flat.backward(sums.loss / num_tokens, self._beside)
        return torch.stack([sums.loss.detach(), sums.nll, sums.correct])

    def step(self, learning_rate: float) -> None:
        """Take Adam's step along the last gradient, and add the update's tokens to running statistics.

        Uses torch's function, because torch's optimizer classes import the compiler, which takes a second.
        """
        config, mine = self.config, self._exchange.mine
        (adam if config.weight_decay_kind == "l2" else adamw)(
            [self._weights[mine]],
            [self._exchange.gradient[mine]],
            [self._moments["exp_avg"][mine]],
            [self._moments["exp_avg_sq"][mine]],
            [],
            [self._steps],
            fused=True,
            amsgrad=False,
            beta1=config.adam_beta1,
            beta2=config.adam_beta2,
            lr=learning_rate,
            weight_decay=config.weight_decay,
            eps=config.adam_eps,
            maximize=False,
        )
        self._exchange.settle()
        for norm in self._running:
            norm.fold(self.world.add)

    def model_tensors(self) -> dict[str, Tensor]:
        """Return the model's parameters (tied ones once) and persistent buffers, by their names in checkpoints."""
        parameters = self._flat.views(self._weights)
        all_names = {name for name, _ in self.model.named_parameters(remove_duplicate=False)}
        buffers = {name: tensor for name, tensor in self.model.state_dict().items() if name not in all_names}
        return {f"model.{name}": tensor for name, tensor in {**parameters, **buffers}.items()}

    def tensors(self) -> dict[str, Tensor]:
        """Return everything that a checkpoint holds: `model_tensors`, and Adam's moments of each parameter."""
        tensors = self.model_tensors()
        for moment, flat in self._moments.items():
            tensors |= {f"adam.{moment}.{name}": view for name, view in self._flat.views(flat).items()}
        return tensors
