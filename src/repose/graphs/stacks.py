"""Write a Transformer as two ONNX graphs: the encoder, and one decoding step.

    encoder   src (B, S), ids with PAD on the right -> src_bias (B, 1, 1, S), and the memory for cross-attention
    step      tokens (N, W), at (), src_bias, the memory, past_* -> log_probs (N W, V), new_*, attention_*

A step has W rows (hypotheses) for each of N sentences, so that the memory is stored once per sentence. The cache goes
in as `past_*` and comes out as `new_*`: keys and values (R, G, T, c), which grow by one token, or the running
statistics of a token norm (R, M), which do not grow. `at` is the number of tokens read before.

Everything that is constant after training is folded into the weights: embedding scale, vocabulary norm, layer norm of
positions, the scale of scores, absorbed heads, position projections. Padding is computed, too, and masked.
"""

from collections.abc import Callable, Mapping
from typing import Any, Literal, NamedTuple, assert_never

import numpy as np
import torch

from repose.graphs.attention import OF_ATTENTION, At, Attended, GraphAttention, Keys, PositionScores, Turns
from repose.graphs.coverage import SIZES_AND_TRAINING, Listed, not_listed
from repose.graphs.folder import CacheTensor, GraphFacts
from repose.graphs.graph import OF_NORMS, OPSET, Graph, Value, array
from repose.model.architecture import Architecture, FeedForwardKind
from repose.model.embedding import Embedding
from repose.model.kernels.linear import refuse_nan_weights
from repose.model.layers import DecoderLayer, EncoderLayer, FeedForward
from repose.model.stacks import Stack
from repose.model.sublayer import Sublayer
from repose.model.token_norm import TokenNorm, normalised_rows
from repose.model.transformer import Transformer
from repose.system.errors import ConfigError

_ACTIVATIONS: Mapping[FeedForwardKind, Callable[[Graph, Value], Value]] = {
    "relu": lambda g, x: g.op("Relu", x),
    "gelu": Graph.gelu,
    "geglu": Graph.gelu,
    "swiglu": lambda g, x: g.mul(x, g.op("Sigmoid", x)),
}
"""What each kind of feed-forward layer computes of its hidden numbers, or of its gate if it has one."""
COMPUTED: Listed = {
    **OF_NORMS,
    **OF_ATTENTION,
    "combine": ("add", "concat"),
    "embedding_scale": ("sqrt", "inverse_sqrt", "none"),
    "encoder_token_norm": ("none", "sentence", "prefix", "vocabulary", "running"),
    "decoder_token_norm": ("none", "prefix", "vocabulary", "running"),
    "token_norm_site": ("tokens", "after_concat", "every_layer"),
    "input_norm": ("none", "sum", "separate"),
    "norm": ("post", "pre", "both"),
    "feed_forward": tuple(_ACTIVATIONS),
    "tie_embeddings": ("all", "output", "none"),
    "output_bias": (False, True),
}
"""Axes with the values that have a graph, here and in the modules that this one uses."""
_ANY_VALUE = SIZES_AND_TRAINING | {
    *("num_kv_heads", "residual_weight", "attention_window", "norm_eps", "token_norm_eps"),
}
"""Fields of which graphs support every value."""
OfSentence = Literal["sentence", "prefix"]
"""Token norms whose statistics are computed over the input sentence."""


class Memory(NamedTuple):
    """An encoder output that every step reads."""

    name: str
    shape: list[int | str]
    """Shape per sentence: keys (G, c, S), values (G, S, c)."""


class Graphs(NamedTuple):
    """Encoder and step (`onnx.ModelProto`), and the facts needed to run them."""

    encoder: Any
    step: Any
    memory: list[Memory]
    facts: GraphFacts


def why_not(a: Architecture) -> str | None:
    """Return why an architecture has no graphs; None if it has them."""
    if a.looks_ahead:
        return "its decoder normalises over the whole target sentence, and so sees the tokens that it has to predict"
    unlisted = not_listed(a, COMPUTED, _ANY_VALUE)
    return "; ".join(f"{name} = {x!r} is not among what repose.graphs computes" for name, x in unlisted) or None


def graphs_of(model: Transformer, *, int8: bool = False) -> Graphs:
    """Build a model's graphs. Raises ConfigError if the extra `fast` is missing, or if the architecture has no
    graphs."""
    a = model.architecture
    if (reason := why_not(a)) is not None:
        raise ConfigError(f"this model has no graphs: {reason}")
    if int8:
        refuse_nan_weights(model)
    with torch.no_grad():
        encoder, memory = _EncoderGraph(model, int8=int8).made()
        step, cache = _step_graph(model, memory, int8=int8)
    facts = GraphFacts(
        opset=OPSET,
        precision="int8" if int8 else "fp32",
        max_length=a.max_length,
        tgt_vocab_size=model.tgt_vocab_size,
        num_layers=a.num_decoder_layers,
        memory=tuple(tensor.name for tensor in memory),
        cache=tuple(cache),
    )
    return Graphs(encoder, step, memory, facts)


class _StackGraph:
    """What the encoder's and the step's graph share."""

    def __init__(self, model: Transformer, stack: Stack, graph: Graph) -> None:
        self.g = graph
        self.model, self.a, self.stack = model, model.architecture, stack
        self.position_scores = PositionScores(self.g, stack.positions)
        self.real: Value | None = None
        """In the encoder: 1 for tokens, 0 for padding, (B, S, 1)."""
        self.cache: list[CacheTensor] = []

    def embedded(self, ids: Value, at: At) -> tuple[Value, Value | None]:
        """Embed ids of any shape; return the first layer's input, and the token embeddings if attention values use
        them."""
        g, e, site = self.g, self.stack.embedding, self.stack.embedding.site
        tokens = g.rows(g.constant(_token_table(e)), ids)
        positions = at.rows(g, g.constant(_position_table(e))) if e.positions.has_rows else None
        match site:
            case "after_concat":
                assert positions is not None
                hidden = self._combined(e, tokens, positions)
                hidden = self.token_norm(hidden, e.token_norm, "embedding", self.a.d_model)
                tokens = g.sliced(hidden, g.ints(0), g.ints(self.a.d_token), -1)
            case "tokens" | "every_layer":
                if not e.token_norm.is_constant:
                    tokens = self.token_norm(tokens, e.token_norm, "embedding", self.a.d_token)
                hidden = self._combined(e, tokens, positions)
            case _:
                assert_never(site)
        if "sum" in e.input_norms:
            hidden = g.norm(hidden, e.input_norms["sum"])
        return hidden, None if e.values == "hidden" else tokens

    def _combined(self, e: Embedding, tokens: Value, positions: Value | None) -> Value:
        g = self.g
        if "tokens" in e.input_norms:
            tokens = g.norm(tokens, e.input_norms["tokens"])
        if positions is None:
            return tokens
        match e.combine:
            case "add":
                return g.add(tokens, positions)
            case "concat":
                shape = g.concatenated(g.op("Shape", tokens, end=-1), g.ints(self.a.d_token), axis=0)
                return g.concatenated(tokens, g.op("Expand", positions, shape), axis=-1)
            case _:
                assert_never(e.combine)

    def token_norm(self, x: Value, norm: TokenNorm, name: str, width: int) -> Value:
        """Compute `model.token_norm`, unless it is folded into the token table."""
        g = self.g
        match norm.kind:
            case "none":
                return x
            case "running":
                root = (norm.var + norm.eps).sqrt()
                return g.div(g.sub(x, g.constant(array(norm.mean))), g.constant(array(root)))
            case "sentence" | "prefix":
                mean, var = self.statistics(x, norm.kind, name, width)
                return g.div(g.sub(x, mean), g.op("Sqrt", g.add(var, g.constant(norm.eps))))
            case "vocabulary":
                raise AssertionError("a norm over the vocabulary is in the table of tokens")
            case _:
                assert_never(norm.kind)

    def statistics(self, x: Value, kind: OfSentence, name: str, width: int) -> tuple[Value, Value]:
        """Return the mean and variance for each token."""
        raise NotImplementedError

    def between_layers(self, x: Value, index: int) -> Value:
        """Return the input of layer `index`; with `every_layer`, its token half is normalised."""
        norm = self.stack.layer_token_norms[index - 1] if index > 0 else None
        if not isinstance(norm, TokenNorm) or norm.kind == "none":
            return x
        g, m = self.g, self.a.d_token
        tokens = self.token_norm(g.sliced(x, g.ints(0), g.ints(m), -1), norm, f"layer_{index}", m)
        return g.concatenated(tokens, g.sliced(x, g.ints(m), g.ints(self.a.d_model), -1), axis=-1)

    def entered(self, sublayer: Sublayer, x: Value) -> Value:
        """Return the input of a sublayer's branch (with `norm = pre` or `both`, normalised)."""
        match sublayer.placement:
            case "pre":
                return self.g.norm(x, sublayer.norm)
            case "post":
                return x
            case "both":
                return self.g.norm(x, sublayer.norm_before)
            case _:
                assert_never(sublayer.placement)

    def left(self, sublayer: Sublayer, x: Value, branch: Value) -> Value:
        """Return a sublayer's output: residual connection and norm."""
        g, k = self.g, sublayer.residual_weight
        match sublayer.placement:
            case "pre":
                return g.add(x, branch)
            case "post" | "both":
                return g.norm(g.add(x if k == 1.0 else g.mul(x, g.constant(k)), branch), sublayer.norm)
            case _:
                assert_never(sublayer.placement)

    def fed_forward(self, layer: EncoderLayer | DecoderLayer, x: Value) -> Value:
        """Compute a layer's feed-forward sublayer."""
        g, ff = self.g, layer.feed_forward
        assert isinstance(ff, FeedForward)
        y = self.entered(layer.feed_forward_sublayer, x)
        hidden = g.linear(y, ff.inner.weight, ff.inner.bias)
        gate = None if ff.gate is None else g.linear(y, ff.gate.weight, ff.gate.bias)
        activation = _ACTIVATIONS[ff.kind]
        hidden = activation(g, hidden) if gate is None else g.mul(activation(g, gate), hidden)
        return self.left(
            layer.feed_forward_sublayer, x, g.linear(hidden, ff.outer.weight, ff.outer.bias, rows_alike=False)
        )


class _EncoderGraph(_StackGraph):
    """The encoder's graph."""

    def __init__(self, model: Transformer, *, int8: bool) -> None:
        super().__init__(model, model.encoder, Graph("encoder", int8=int8))

    def made(self) -> tuple[Any, list[Memory]]:
        """Build the graph; return it with the memory that it outputs."""
        g, a = self.g, self.a
        src = g.input("src", ["B", "S"], "INT64")
        is_real = g.op("Not", g.op("Equal", src, g.constant(0, np.int64)))
        self.real = g.op("Unsqueeze", g.cast(is_real, "FLOAT"), g.ints(2))
        bias = g.where(g.op("Unsqueeze", is_real, g.ints(1, 2)), g.constant(0.0), g.constant(-np.inf))
        g.output("src_bias", bias, ["B", 1, 1, "S"])
        self.length = g.size(src, 1)
        at = At(self.length, is_step=False)
        places = g.range(g.scalar(self.length))
        queries_at, keys_at = g.op("Unsqueeze", places, g.ints(1)), g.op("Unsqueeze", places, g.ints(0))
        own = g.op("Equal", queries_at, keys_at)
        scores = self.position_scores(queries_at, keys_at, at, self.length)  # (H, S, S)
        if a.attention_window is not None:
            reach = g.constant(a.attention_window // 2, np.int64)
            near = g.op("LessOrEqual", g.op("Abs", g.sub(keys_at, queries_at)), reach)
            # Padding attends to itself: a row without keys would be NaN, and would make others NaN.
            met = g.op("Or", g.op("And", g.op("Unsqueeze", is_real, g.ints(1, 2)), near), own)
            bias = g.where(met, g.constant(0.0), g.constant(-np.inf))  # (B, 1, S, S)
        turns = Turns.made(g, self.stack.positions, at)
        x, values = self.embedded(src, at)
        before: Value | None = None
        for index, layer in enumerate(self.stack.layers):
            assert isinstance(layer, EncoderLayer)
            x = self.between_layers(x, index)
            attention = GraphAttention(g, layer.self_attention, self.stack.positions)
            y = self.entered(layer.self_attention_sublayer, x)
            queries = attention.queries(y, turns=turns)
            keys, vals = attention.keys_and_values(y, values)
            added = attention.of_queries(bias, self.length, has_queries=a.attention_window is not None)
            if scores is not None:
                added = g.add(added, attention.of_queries(scores, self.length, has_queries=True))
            changes = attention.scores.self_score != "keep"
            mine = attention.of_queries(own, self.length, has_queries=True) if changes else None
            keys = keys if turns is None else turns.of(g, keys)
            out: Attended = attention(queries, Keys(g.transposed(keys, 0, 1, 3, 2), vals), added, before, mine)
            before = out.scores
            x = self.left(layer.self_attention_sublayer, x, attention.joined(out.hidden, of_step=False))
            x = self.fed_forward(layer, x)
        x = g.norm(x, self.stack.final_norm)
        memory = self._memory(x, values)
        return g.model(), memory

    def _memory(self, x: Value, values: Value | None) -> list[Memory]:
        g, memory = self.g, []
        layers = [layer for layer in self.model.decoder.layers if isinstance(layer, DecoderLayer)]
        attentions = [GraphAttention(g, layer.cross_attention, None) for layer in layers]
        # With absorbed heads, all layers read the same memory.
        for index, attention in enumerate(attentions[:1] if attentions[0].is_absorbed else attentions):
            keys, vals = attention.keys_and_values(x, values)
            for tensor, value in (
                (Memory(f"keys_{index}", [attention.groups, "c", "S"]), g.transposed(keys, 0, 1, 3, 2)),
                (Memory(f"values_{index}", [attention.groups, "S", "c"]), vals),
            ):
                g.output(tensor.name, value, ["B", *tensor.shape])
                memory.append(tensor)
        return memory

    def statistics(self, x: Value, kind: OfSentence, name: str, width: int) -> tuple[Value, Value]:  # noqa: ARG002
        """Statistics over the whole sentence, or over the prefix up to each token."""
        g, real = self.g, self.real
        assert real is not None
        one, axis = g.constant(1.0), g.constant(1, np.int64)
        if kind == "sentence":
            count = g.op("Max", g.sum(real, 1), one)
            mean = g.div(g.sum(g.mul(x, real), 1), count)
            return mean, g.div(g.sum(g.square(g.mul(g.sub(x, mean), real)), 1), count)
        count = g.op("Max", g.op("CumSum", real, axis), one)
        mean = g.div(g.op("CumSum", g.mul(x, real), axis), count)
        zero = g.mul(g.sliced(mean, g.ints(0), g.ints(1), 1), g.constant(0.0))
        earlier = g.concatenated(zero, g.sliced(mean, g.ints(0), g.ints(-1), 1), axis=1)
        deviations = g.mul(g.mul(g.sub(x, earlier), g.sub(x, mean)), real)
        return mean, g.div(g.op("CumSum", deviations, axis), count)


class StepGraph(_StackGraph):
    """The graph of one decoding step."""

    def __init__(self, model: Transformer, graph: Graph, *, one_query: bool = False, is_padded: bool = True) -> None:
        """`one_query`: each sentence has a single row. `is_padded`: sources may have padding."""
        super().__init__(model, model.decoder, graph)
        self.one_query, self.is_padded = one_query, is_padded
        self.memory_inputs: dict[str, Value] = {}
        self.attended: list[tuple[Value, list[int | str]]] = []
        """Weights of each layer's cross-attention, with their shapes."""
        self.new: list[Value] = []
        """The updated cache, in the order of `cache`."""

    def read_memory(self, g: Graph, memory: list[Memory]) -> None:
        """Add the memory as inputs of a graph: this one, or the outer graph of a loop."""
        self.memory_inputs = {"src_bias": g.input("src_bias", ["N", 1, 1, "S"])}
        for name, shape in memory:
            self.memory_inputs[name] = g.input(name, ["N", *shape])

    def log_probs(self, tokens: Value, at: Value, num_sentences: Value) -> Value:
        """Return log-probabilities of the next token, (R, V); arguments as for `hidden`."""
        return self.log_probs_of(self.g, self.hidden(tokens, at, num_sentences))

    def log_probs_of(self, g: Graph, hidden: Value) -> Value:
        """Return log-probabilities (R, V) for hidden states (R, d), in this graph or in the outer graph of a loop."""
        output = self.model.output
        return g.op("LogSoftmax", g.linear(hidden, output.weight, output.bias, by_row=True), axis=-1)

    def hidden(self, tokens: Value, at: Value, num_sentences: Value) -> Value:
        """Return the decoder's output (R, d) for one token per row: `tokens` int64 (R,), `at` (), `num_sentences`
        (1,)."""
        g, a = self.g, self.a
        self.at = at
        end = At(g.op("Unsqueeze", at, g.ints(0)), is_step=True)
        self.num_read = g.add(end.end, g.ints(1))  # number of tokens, including this one
        keys_at = g.range(g.scalar(self.num_read))
        row = g.op("Unsqueeze", keys_at, g.ints(0))
        scores = self.position_scores(g.reshaped(end.end, (1, 1)), row, end, self.num_read)  # (H, 1, T)
        own = g.op("Equal", row, end.end)  # (1, T)
        first: Value | None = None
        if a.attention_window is not None:
            first = g.op("Max", g.sub(end.end, g.ints(a.attention_window // 2)), g.ints(0))
            own = g.sliced(own, first, self.num_read, 1)
            scores = None if scores is None else g.sliced(scores, first, self.num_read, 2)
        turns = Turns.made(g, self.stack.positions, end)
        x, values = self.embedded(tokens, end)
        before: Value | None = None
        before_memory: Value | None = None
        shared: dict[Value, Value] = {}
        for index, layer in enumerate(self.stack.layers):
            assert isinstance(layer, DecoderLayer)
            x = self.between_layers(x, index)
            attention = GraphAttention(g, layer.self_attention, self.stack.positions)
            y = self.entered(layer.self_attention_sublayer, x)
            queries, *new = attention.read(y, values, turns)
            grown = []
            for kind, value in zip(("keys", "values"), new, strict=True):
                if value not in shared:  # layers share token embeddings as values, and hidden states as keys and values
                    name = "tokens" if value == values else f"{kind}_{index}"
                    fresh, width = attention.by_token(value), self._width(attention, kind)
                    shared[value] = self._grown(name, fresh, attention.groups, width)
                grown.append(shared[value] if first is None else g.sliced(shared[value], first, self.num_read, 2))
            added = None if scores is None else g.reshaped(scores, (attention.groups, attention.inner, -1))
            mine = own if attention.scores.self_score != "keep" else None
            out = attention(queries, Keys(g.transposed(grown[0], 0, 1, 3, 2), grown[1]), added, before, mine)
            before = out.scores
            heads = attention.joined(out.hidden, of_step=True, one_query=True)
            x = self.left(layer.self_attention_sublayer, x, heads)

            x, before_memory = self._after_memory(layer, index, x, num_sentences, before_memory)
            x = self.fed_forward(layer, x)
        return g.norm(x, self.stack.final_norm)

    def _after_memory(
        self, layer: DecoderLayer, index: int, x: Value, num_sentences: Value, before: Value | None
    ) -> tuple[Value, Value]:
        """Compute a layer's cross-attention; return its output and scores. `before`: the previous layer's scores."""
        attention = GraphAttention(self.g, layer.cross_attention, None)
        place = 0 if attention.is_absorbed else index
        keys = Keys(*(self.memory_inputs[f"{kind}_{place}"] for kind in ("keys", "values")))
        y, one = self.entered(layer.cross_attention_sublayer, x), self.one_query
        queries = attention.new_queries(y) if one else attention.queries(y, rows=num_sentences)
        out = attention(queries, keys, self.memory_inputs["src_bias"] if self.is_padded else None, before, None)
        self.attended.append((out.weights, ["N", attention.groups, "WI", "S"]))
        heads = attention.joined(out.hidden, of_step=True, one_query=one)
        return self.left(layer.cross_attention_sublayer, x, heads), out.scores

    def _width(self, attention: GraphAttention, kind: str) -> int:
        if not attention.is_absorbed:
            return self.a.head_dim
        return self.a.d_model if kind == "keys" else self.a.d_value

    def _grown(self, name: str, new: Value, groups: int, width: int) -> Value:
        """Append this token's keys or values to the cache; return all of them."""
        g, tensor = self.g, CacheTensor(name, groups, width)
        grown = g.concatenated(g.input(f"past_{name}", tensor.shape), new, axis=2)
        self.cache.append(tensor)
        self.new.append(grown)
        return grown

    def statistics(self, x: Value, kind: OfSentence, name: str, width: int) -> tuple[Value, Value]:
        """Return the mean and variance of each row's tokens so far."""
        assert kind == "prefix", "a sentence's are not known before its end"
        g = self.g
        tensors = [CacheTensor(f"{name}_{what}", 0, width) for what in ("mean", "deviations")]
        mean0, m2 = (g.input(f"past_{tensor.name}", tensor.shape) for tensor in tensors)
        before, count = (g.cast(n, "FLOAT") for n in (self.at, self.num_read))
        mean = g.div(g.add(g.mul(mean0, before), x), count)
        m2 = g.add(m2, g.mul(g.sub(x, mean0), g.sub(x, mean)))
        self.cache += tensors
        self.new += [mean, m2]
        return mean, g.div(m2, count)


def _step_graph(model: Transformer, memory: list[Memory], *, int8: bool) -> tuple[Any, list[CacheTensor]]:
    """Build the graph of a step; return it with its cache tensors."""
    g = Graph("step", int8=int8)
    step = StepGraph(model, g)
    tokens, at = g.input("tokens", ["N", "W"], "INT64"), g.input("at", [], "INT64")
    step.read_memory(g, memory)
    log_probs = step.log_probs(g.reshaped(tokens, (-1,)), at, g.size(tokens, 0))
    g.output("log_probs", log_probs, ["R", model.tgt_vocab_size])
    for tensor, value in zip(step.cache, step.new, strict=True):
        g.output(f"new_{tensor.name}", value, [size if size != "T" else "T_1" for size in tensor.shape])
    for index, (weights, shape) in enumerate(step.attended):
        g.output(f"attention_{index}", weights, shape)
    return g.model(), step.cache


def _token_table(e: Embedding) -> Any:
    """Return the token table (V, m), scaled, and normalised if the norm's statistics are constant."""
    if e.site == "after_concat":
        return array((e.tokens.weight.double() * e.scale).float())
    return array(normalised_rows(e.token_norm, e.tokens.weight, e.scale).float())


def _position_table(e: Embedding) -> Any:
    """Return the position table (L, m), normalised if positions have a norm of their own."""
    rows = e.positions.rows(torch.arange(e.max_length))
    assert rows is not None
    return array(e.input_norms["positions"](rows) if "positions" in e.input_norms else rows)
