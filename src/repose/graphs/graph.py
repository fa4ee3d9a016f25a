"""Build an ONNX graph: values are names, operators are methods.

Opset 18; only `rough_linear` is not a standard operator. Only products with weights differ between fp32 and int8.
"""

import math
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray
from torch import nn

from repose.graphs.coverage import Listed
from repose.model.norms import RMSNorm, ScaleNorm
from repose.system.errors import MissingExtraError

OF_NORMS: Listed = {"norm_kind": ("layer", "rms", "scale")}
"""Axes computed here, with the values that have a graph; part of `stacks.COMPUTED`."""

OPSET = 18
IR_VERSION = 9
"""Version of the file format, which ONNX Runtime 1.17 and newer can read."""

_WORTH_A_REFERENCE = 1024  # bytes
_WIDE = 1024
"""Number of columns from which ONNX Runtime's fused int8 product is slower than its parts, for a search's few rows."""

_MICROSOFT = "com.microsoft"
"""Domain of ONNX Runtime's own operators."""
_SCALED = 128
"""In `rough_linear`, at most this many numbers of a row of weights share a scale."""

_MOST = 64
"""Largest integer weight in `linear`. Processors without VNNI, such as AMD's before 2022 and many in laptops, add two
products in 16 bits, with saturation: 2 * 255 * 64 fits, 2 * 255 * 127 would not."""

Value: TypeAlias = str
Array: TypeAlias = NDArray[Any]
Dim: TypeAlias = "int | str"


class Graph:
    """A graph under construction: its nodes, in the order in which they are computed."""

    def __init__(self, name: str, *, int8: bool, around: "Graph | None" = None, one_row: bool = False) -> None:
        """`int8`: compute products with weights in 8-bit integers. `around`: the outer graph, if this is a loop's body.
        `one_row`: products with weights have a single row."""
        try:
            import onnx
        except ImportError as error:
            raise MissingExtraError(
                f"ONNX graphs are written with onnx, which cannot be imported ({error}): pip install 'repose-nmt[fast]'"
            ) from error
        self._onnx, self._name, self._int8 = onnx, name, int8
        self._is_body, self._one_row = around is not None, one_row
        self._is_of_onnx_runtime = False
        """True if the graph uses operators of ONNX Runtime's own domain."""
        self._prefix: str = "v" if around is None else f"{around._prefix}{name}_"  # keeps names unique
        self._nodes: list[Any] = []
        self._weights: dict[tuple[Any, ...], tuple[Value, Any]] = {} if around is None else around._weights
        self._quantized: dict[Value, tuple[Value, ...]] = {}
        self._inputs: list[Any] = []
        self._outputs: list[Any] = []
        self._renamed: dict[Value, str] = {}  # values that are outputs, to the outputs' names

    # The borders

    def input(self, name: str, shape: Sequence[Dim], dtype: str = "FLOAT") -> Value:
        """Add an input; dimensions with the same name are equal."""
        kind = getattr(self._onnx.TensorProto, dtype)
        self._inputs.append(self._onnx.helper.make_tensor_value_info(name, kind, list(shape)))
        return name

    def output(self, name: str, value: Value, shape: Sequence[Dim], dtype: str = "FLOAT") -> None:
        """Make a value an output."""
        made = any(value in node.output for node in self._nodes) and value not in self._renamed
        if made:
            self._renamed[value] = name  # renaming avoids a copy
        else:
            self._nodes.append(self._onnx.helper.make_node("Identity", [value], [name]))
        kind = getattr(self._onnx.TensorProto, dtype)
        self._outputs.append(self._onnx.helper.make_tensor_value_info(name, kind, list(shape)))

    def model(self) -> Any:
        """Return the checked `onnx.ModelProto`."""
        helper, nodes = self._onnx.helper, self._needed()
        used = {name for node in nodes for name in _read_by(node)}
        weights = [tensor for name, tensor in self._weights.values() if name in used]
        graph = helper.make_graph(nodes, self._name, self._inputs, self._outputs, weights)
        opsets = [helper.make_opsetid("", OPSET)]
        if self._is_of_onnx_runtime:
            opsets.append(helper.make_opsetid(_MICROSOFT, 1))
        model = helper.make_model(graph, opset_imports=opsets, ir_version=IR_VERSION, producer_name="repose")
        self._onnx.checker.check_model(model, full_check=True)
        return model

    def _needed(self) -> list[Any]:
        """Return the nodes that the outputs depend on, with values renamed to outputs."""
        for node in self._nodes:
            for names in (node.input, node.output):
                names[:] = [self._renamed.get(each, each) for each in names]
        wanted, needed = {output.name for output in self._outputs}, []
        for node in reversed(self._nodes):
            if wanted.intersection(node.output):
                wanted.update(_read_by(node))
                needed.append(node)
        return needed[::-1]

    # A loop

    def body(self, *, one_row: bool) -> "Graph":
        """Return a graph for the body of a loop in this graph, whose values and constants it can read. Its inputs are
        the iteration number, whether to continue, and the carried values; its outputs are whether to continue, the
        carried values, and the values to collect."""
        return Graph("body", int8=self._int8, around=self, one_row=one_row)

    def loop(self, body: "Graph", most: Value, first: Sequence[Value]) -> tuple[Value, ...]:
        """Add a loop of at most `most`, int64 (), iterations. Returns the final carried values, which are `first`
        before the first iteration, and the collected values, (iterations, ...)."""
        graph = self._onnx.helper.make_graph(body._needed(), "body", body._inputs, body._outputs)
        self._is_of_onnx_runtime |= body._is_of_onnx_runtime
        return self.outputs_of("Loop", len(body._outputs) - 1, most, "", *first, body=graph)

    # Constants

    def constant(self, values: Any, dtype: Any = np.float32) -> Value:
        """Add a constant; equal arrays are stored once."""
        array = np.ascontiguousarray(np.asarray(values, dtype=dtype))
        key = (array.shape, array.dtype.str, array.tobytes())
        if key not in self._weights:
            name = f"w{len(self._weights)}"
            self._weights[key] = name, self._onnx.numpy_helper.from_array(array, name)
        return self._weights[key][0]

    def ints(self, *values: int) -> Value:
        """Add an int64 constant (n,): a shape, axes, or indices."""
        return self.constant(values, np.int64)

    # Operators

    def op(self, kind: str, *inputs: Value, **attributes: Any) -> Value:
        """Add a node with one output; return the output's name."""
        return self.outputs_of(kind, 1, *inputs, **attributes)[0]

    def outputs_of(self, kind: str, number: int, *inputs: Value, **attributes: Any) -> tuple[Value, ...]:
        """Add a node with this many outputs; return their names."""
        names = tuple(f"{self._prefix}{len(self._nodes)}_{i}" for i in range(number))
        self._nodes.append(self._onnx.helper.make_node(kind, list(inputs), names, **attributes))
        return names

    def add(self, a: Value, b: Value) -> Value:
        """Return a + b, broadcast."""
        return self.op("Add", a, b)

    def sub(self, a: Value, b: Value) -> Value:
        """Return a - b, broadcast."""
        return self.op("Sub", a, b)

    def mul(self, a: Value, b: Value) -> Value:
        """Return the element-wise product a · b, broadcast."""
        return self.op("Mul", a, b)

    def div(self, a: Value, b: Value) -> Value:
        """Return the element-wise quotient a / b, broadcast."""
        return self.op("Div", a, b)

    def square(self, a: Value) -> Value:
        """Return a²."""
        return self.mul(a, a)

    def matmul(self, a: Value, b: Value) -> Value:
        """Return the matrix product over the last two dimensions."""
        return self.op("MatMul", a, b)

    def cast(self, a: Value, dtype: str) -> Value:
        """Convert to another type, given by ONNX's name ("FLOAT")."""
        return self.op("Cast", a, to=getattr(self._onnx.TensorProto, dtype))

    def transposed(self, a: Value, *order: int) -> Value:
        """Permute dimensions."""
        return self.op("Transpose", a, perm=list(order))

    def reshaped(self, a: Value, shape: Value | Sequence[int]) -> Value:
        """Reshape as torch does; a dimension given as 0 keeps its size."""
        return self.op("Reshape", a, shape if isinstance(shape, str) else self.ints(*shape))

    def concatenated(self, *parts: Value, axis: int) -> Value:
        """Concatenate along an axis."""
        return self.op("Concat", *parts, axis=axis)

    def rows(self, table: Value, indices: Value, axis: int = 0) -> Value:
        """Gather rows of a table."""
        return self.op("Gather", table, indices, axis=axis)

    def split(self, a: Value, sizes: Sequence[int], axis: int) -> list[Value]:
        """Split into parts of these sizes along an axis."""
        return [a] if len(sizes) == 1 else list(self.outputs_of("Split", len(sizes), a, self.ints(*sizes), axis=axis))

    def sliced(self, a: Value, begin: Value, end: Value, axis: int) -> Value:
        """Slice from `begin` to `end` (exclusive), both int64 (1,), along one axis."""
        return self.op("Slice", a, begin, end, self.ints(axis))

    def size(self, a: Value, axis: int) -> Value:
        """Return the size of one dimension, int64 (1,)."""
        return self.op("Shape", a, start=axis, end=axis + 1)

    def sum(self, a: Value, axis: int) -> Value:
        """Sum over one axis, which is kept with size 1."""
        return self.op("ReduceSum", a, self.ints(axis), keepdims=1)

    def where(self, condition: Value, yes: Value, no: Value) -> Value:
        """Return `yes` where the condition holds, `no` elsewhere."""
        return self.op("Where", condition, yes, no)

    def softmax(self, a: Value) -> Value:
        """Softmax over the last axis."""
        return self.op("Softmax", a, axis=-1)

    def norm(self, x: Value, layer: Any) -> Value:
        """Compute a `torch.nn.LayerNorm` with gain and bias, an `RMSNorm`, a `ScaleNorm`, or an `Identity`.
        Raises TypeError for anything else, including None: a caller whose variant has no norm must not call this."""
        if isinstance(layer, nn.Identity):
            return x
        if isinstance(layer, RMSNorm):
            mean = self.op("ReduceMean", self.square(x), self.ints(-1), keepdims=1)
            root = self.op("Sqrt", self.add(mean, self.constant(layer.eps)))
            return self.mul(self.div(x, root), self.constant(array(layer.weight)))
        if isinstance(layer, ScaleNorm):
            return self.mul(self.unit(x, layer.eps), self.constant(array(layer.gain)))
        if not isinstance(layer, nn.LayerNorm) or layer.weight is None or layer.bias is None:
            raise TypeError(f"Graph.norm computes layer norms with gain and bias, not {layer}: write its graph there")
        weights = (self.constant(array(w)) for w in (layer.weight, layer.bias))
        return self.op("LayerNormalization", x, *weights, axis=-1, epsilon=float(layer.eps))

    def gelu(self, x: Value) -> Value:
        """Return GELU: x times the probability that a standard normal variable is less than x."""
        half = self.mul(x, self.constant(0.5))
        erf = self.op("Erf", self.mul(x, self.constant(math.sqrt(0.5))))
        return self.mul(half, self.add(erf, self.constant(1.0)))

    def unit(self, x: Value, eps: float) -> Value:
        """Return x / max(||x||, eps), over the last axis."""
        length = self.op("ReduceL2", x, self.ints(-1), keepdims=1)
        return self.div(x, self.op("Max", length, self.constant(eps)))

    def range(self, end: Value) -> Value:
        """Return the integers from 0 to `end` (exclusive, scalar int64)."""
        return self.op("Range", self.constant(0, np.int64), end, self.constant(1, np.int64))

    def scalar(self, a: Value) -> Value:
        """Turn shape (1,) into a scalar."""
        return self.op("Squeeze", a, self.ints(0))

    def linear(self, x: Value, weight: Any, bias: Any, *, rows_alike: bool = True, by_row: bool = False) -> Value:
        """Return x Wᵀ + b over the last dimension; W (D_out, D_in), b (D_out,) or None.

        `by_row`: x is (R, D_in), and in fp32 W is stored untransposed, because the graph also reads single rows of W,
        which would be scattered over Wᵀ and take much longer to read.

        In int8, each row of W has a scale, and all of x has one, computed at each call; sums are 32-bit integers. Rows
        of similar magnitude (`rows_alike`: after a norm, or a mean of normalised rows) share that scale without loss.
        Other rows are first divided by their largest absolute value, or else one sentence could spoil another. Within
        a search, `rough_linear` replaces this division, and all products with a single row.
        """
        if self._int8 and (self._one_row or (self._is_body and not rows_alike)):
            return self.rough_linear(x, weight, bias)
        w = array(weight)
        if by_row and not self._int8:
            values = [self.constant(w)] if bias is None else [self.constant(w), self.constant(array(bias))]
            return self.op("Gemm", x, *values, transB=1)
        if not self._int8:
            y = self.matmul(x, self.constant(w.T))
        elif rows_alike:
            y = self._int8_product(x, w)
        else:
            largest = self.op("ReduceMax", self.op("Abs", x), self.ints(-1), keepdims=1)
            largest = self.op("Max", largest, self.constant(1e-12))
            y = self.mul(self._int8_product(self.div(x, largest), w), largest)
        return y if bias is None else self.add(y, self.constant(array(bias)))

    def rough_linear(self, x: Value, weight: Any, bias: Any) -> Value:
        """Return x Wᵀ + b in 8-bit integers, with one scale per 128 numbers of each row of W and of x. Faster than
        `linear` for a single row or for rows of different magnitudes, slower for others. Uses `MatMulNBits`, so the
        graph needs ONNX Runtime 1.23 or newer."""
        w = array(weight)
        n, k = w.shape
        size = next(s for s in (_SCALED, 64, 32, 16) if s <= k or s == 16)
        parts = np.pad(w, ((0, 0), (0, -k % size))).reshape(n, -1, size)
        scales = np.maximum(np.abs(parts).max(2), 1e-12) / 127
        integers = (np.rint(parts / scales[..., None]) + 128).astype(np.uint8)
        values = [self.constant(integers, np.uint8), self.constant(scales)]
        if bias is not None:
            values += ["", "", self.constant(array(bias))]
        sizes = {"K": k, "N": n, "bits": 8, "block_size": size, "accuracy_level": 4}
        self._is_of_onnx_runtime = True
        return self.op("MatMulNBits", x, *values, domain=_MICROSOFT, **sizes)

    def _int8_product(self, x: Value, weight: Array) -> Value:
        scales = np.maximum(np.abs(weight).max(1), 1e-12) / _MOST
        integers = np.rint(weight / scales[:, None]).astype(np.int8).T
        if x not in self._quantized:
            self._quantized[x] = self.outputs_of("DynamicQuantizeLinear", 3, x)
        quantized, scale, zero = self._quantized[x]
        sums = self.op("MatMulInteger", quantized, self.constant(integers, np.int8), zero)
        product = self.cast(sums, "FLOAT")
        if self._is_body and len(weight) > _WIDE:
            return self.mul(self.mul(product, scale), self.constant(scales))
        # ONNX Runtime fuses these nodes only in the order in which its own quantizer writes them.
        return self.mul(product, self.mul(scale, self.constant(scales)))


def array(tensor: Any) -> Array:
    """Return a torch tensor as a numpy array."""
    return np.asarray(tensor.detach().cpu().numpy() if hasattr(tensor, "detach") else tensor)


def _read_by(node: Any) -> set[str]:
    """Return the names of the values that a node reads, including those read by its subgraphs."""
    inner = (each for attribute in node.attribute for each in attribute.g.node)
    return set(node.input).union(*map(_read_by, inner))


def refer(model: Any, name: str, content: bytes) -> None:
    """Make a model read weights from another model's file (`name`, beside it) where that file's `content` has the same
    weights."""
    from onnx.external_data_helper import set_external_data

    for weight in model.graph.initializer:
        place = content.find(weight.raw_data) if len(weight.raw_data) >= _WORTH_A_REFERENCE else -1
        if place >= 0:
            set_external_data(weight, name, offset=place, length=len(weight.raw_data))
            weight.ClearField("raw_data")
