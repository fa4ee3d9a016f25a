"""The machine's ceiling: only square matrix products. Its units are floating-point operations, not tokens.

One batch is one product of 2,048 x 2,048 matrices (8,192 on a GPU) in each process. A multiplication and an addition
count as two operations. Model, task and batches are ignored. PyTorch has two ways to multiply fp32 matrices on a CPU:
`torch.mm` (MKL) and oneDNN's linear layer. On processors of other makers than Intel, one may be twice as fast as the
other. The faster one is used; with GEMM=torch.mm in the environment, `torch.mm`.
"""

import multiprocessing
import os
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

import torch
from protocol import Options, parse, serve
from torch import Tensor

Product = Callable[[Tensor, Tensor, Tensor], Tensor]
"""(left, right, buffer for the product) -> left times right; the right one may be read as transposed."""
PRODUCTS: dict[str, Product] = {"torch.mm": lambda a, b, room: torch.mm(a, b, out=room)}
if hasattr(torch.ops.mkldnn, "_linear_pointwise"):
    PRODUCTS["oneDNN"] = lambda a, b, _: torch.ops.mkldnn._linear_pointwise(a, b, None, "none", [], "")


class Products:
    """The matrices of one process."""

    def __init__(self, options: Options) -> None:
        torch.set_num_threads(options.threads)
        size = 2048 if options.device == "cpu" else 8192
        dtype = torch.float32 if options.precision == "fp32" else torch.bfloat16
        self.matrices = torch.randn(3, size, size, device=options.device).to(dtype).unbind()
        self.flops = 2 * size**3
        """Operations of one product."""
        self.kind = os.environ.get("GEMM", "torch.mm")
        if options.device == "cpu" and "GEMM" not in os.environ:
            self.kind = min(PRODUCTS, key=self._seconds)

    def multiply(self, times: int) -> None:
        """Compute this many products, one after the other."""
        for _ in range(times):
            product = PRODUCTS[self.kind](*self.matrices)
        product[0, 0].item()  # waits for a GPU

    def _seconds(self, kind: str) -> float:
        """Return the seconds of one product: the fastest of three, after one to warm up."""
        seconds = []
        for _ in range(4):
            began = time.perf_counter()
            PRODUCTS[kind](*self.matrices)
            seconds.append(time.perf_counter() - began)
        return min(seconds[1:])


def follow(orders: Connection, options: Options) -> None:
    """Run in another process: compute as many products as ordered, until the first process ends."""
    products = Products(options)
    try:
        while True:
            products.multiply(orders.recv())
            orders.send(None)
    except EOFError:
        return


def main() -> None:
    """Command-line entry point: multiply until stdin ends."""
    options = parse(__doc__, max_processes=64, devices=("cpu", "cuda"))
    followers = []
    context = multiprocessing.get_context("spawn")
    for _ in range(options.processes - 1):
        mine, theirs = context.Pipe()
        context.Process(target=follow, args=(theirs, options), daemon=True).start()
        theirs.close()
        followers.append(mine)
    products = Products(options)

    def run(numbers: list[int]) -> int:
        for follower in followers:
            follower.send(len(numbers))
        products.multiply(len(numbers))
        for follower in followers:
            follower.recv()
        return options.processes * len(numbers) * products.flops

    versions = {"torch": torch.__version__, "product": products.kind}
    if options.device == "cuda":
        versions["gpu"] = torch.cuda.get_device_name()
    serve(options, 1, run, name="gemm", parameters=0, versions=versions)


if __name__ == "__main__":
    main()
