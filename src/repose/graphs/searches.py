"""Whole searches of one sentence as ONNX graphs: the step in a loop of ONNX's own.

    greedy    limit (), and what the encoder gives -> tokens and log_probs, both (T, 1, 1), END included, and best,
              (T, 1, 1), what `tokens` must be equal to: if they are not, search step by step
    beam      limit, beam_size, width, num_hypotheses (1,), penalties (limit + 1,), and what the encoder gives ->
              scores (T, C), rows (T, C), tokens (T, C), sums (T,)

For one sentence, calls and the work between them would take as long as the steps. Rules are those of
`repose.decoding.search`. A beam's `width` is how many tokens of a row are candidates, C twice its size how many
candidates of a step are handed out, best first: scores float64, −inf where there is none, the row of the step that each
continues, and its token. `penalties` are float64, by length. A sum is of the log-probabilities of a step's candidates:
no number where one is none.
"""

from typing import Any

import numpy as np

from repose.graphs.graph import Graph, Value, array
from repose.graphs.stacks import Memory, StepGraph
from repose.model.transformer import Transformer
from repose.system.token_ids import END, PAD, START

_LARGE, _BLOCK = 1024, 64  # tokens of a vocabulary, and of what is looked at together
_NEAR = 4  # tokens with the largest rough logits, one of which is taken to have the largest exact one


def greedy(model: Transformer, memory: list[Memory], *, int8: bool) -> Any:
    """The greedy search: until END or the limit."""
    g = Graph("greedy", int8=int8)
    limit = g.input("limit", [], "INT64")
    body = g.body(one_row=True)
    step = StepGraph(model, body, one_query=True, is_padded=False)
    step.read_memory(g, memory)
    at, _, token = body.input("at", [], "INT64"), body.input("going", [], "BOOL"), body.input("token", [1], "INT64")
    hidden = step.hidden(token, at, g.ints(1))
    is_rough = not int8 and model.tgt_vocab_size >= _LARGE
    if is_rough:
        collected = [("hidden", hidden, [1, step.a.d_model])]
        chosen = _probably_best(body, model, hidden)
    else:
        log_probs = _allowed(body, model.tgt_vocab_size, step.log_probs_of(body, hidden))
        best, chosen = body.outputs_of("TopK", 2, log_probs, g.ints(1))
        collected = [("best", best, [1, 1])]
    following = body.reshaped(chosen, (1,))
    body.output("still_going", body.op("Not", body.op("Equal", following, g.ints(END))), [1], "BOOL")
    body.output("next_token", following, [1], "INT64")
    empty = _carried_cache(g, body, step, step.new)
    body.output("chosen", chosen, [1, 1], "INT64")
    for name, value, shape in collected:
        body.output(name, value, shape)
    *_, tokens, values = g.loop(body, limit, [g.ints(START), *empty])
    best = tokens
    if is_rough:  # exactly, of all tokens in one product
        log_probs = _allowed(g, model.tgt_vocab_size, step.log_probs_of(g, g.reshaped(values, (-1, step.a.d_model))))
        exact = g.outputs_of("TopK", 2, log_probs, g.ints(1))
        values, best = (g.reshaped(each, (-1, 1, 1)) for each in exact)
    g.output("tokens", tokens, ["T", 1, 1], "INT64")
    g.output("log_probs", values, ["T", 1, 1])
    g.output("best", best, ["T", 1, 1], "INT64")
    return g.model()


def _probably_best(g: Graph, model: Transformer, hidden: Value) -> Value:
    """The next token (1, 1) of hidden states (1, d): of those with the best rough logits the one with the best exact
    one. Reading all weights of the exact ones would take half of a step's time."""
    weight = array(model.output.weight)
    bias = np.zeros(len(weight), np.float32) if model.output.bias is None else array(model.output.bias).copy()
    bias[[PAD, START]] = -np.inf
    _, near = g.outputs_of("TopK", 2, g.rough_linear(hidden, weight, bias), g.ints(_NEAR))
    near = g.reshaped(near, (-1,))
    exact = g.op("Gemm", hidden, g.rows(g.constant(weight), near), g.rows(g.constant(bias), near), transB=1)
    _, place = g.outputs_of("TopK", 2, exact, g.ints(1))
    return g.rows(near, place)


def beam(model: Transformer, memory: list[Memory], *, int8: bool) -> Any:
    """The beam search: until nothing can win, or the limit."""
    g = Graph("beam", int8=int8)
    limit = g.input("limit", [], "INT64")
    size, width, num_hypotheses = (g.input(name, [1], "INT64") for name in ("beam_size", "width", "num_hypotheses"))
    penalties = g.input("penalties", ["L"], "DOUBLE")
    last, handed_out = g.rows(penalties, limit), g.add(size, size)
    least = g.constant([-np.inf], np.float64)
    no_scores, no_tokens = g.op("Expand", least, handed_out), g.op("Expand", g.ints(END), handed_out)
    body = g.body(one_row=False)
    step = StepGraph(model, body, is_padded=False)
    step.read_memory(g, memory)
    at, _, tokens = body.input("at", [], "INT64"), body.input("going", [], "BOOL"), body.input("token", ["R"], "INT64")
    before, best = body.input("scores_before", ["R"], "DOUBLE"), body.input("best", ["B"], "DOUBLE")
    values, ids = best_of(body, model.tgt_vocab_size, step.log_probs(tokens, at, g.ints(1)), width)  # (R, width)
    sums = body.add(body.op("Unsqueeze", before, g.ints(1)), body.cast(values, "DOUBLE"))
    sums = body.concatenated(body.reshaped(sums, (-1,)), no_scores, axis=0)
    scores, order = body.outputs_of("TopK", 2, sums, handed_out)  # (C,)
    rows = body.div(order, width)
    chosen = body.rows(body.concatenated(body.reshaped(ids, (-1,)), no_tokens, axis=0), order)
    is_end = body.op("Equal", chosen, g.ints(END))
    ended = body.sliced(body.where(is_end, scores, least), g.ints(0), size, 0)
    penalty = body.rows(penalties, body.add(at, g.ints(1)))
    finished = body.concatenated(best, body.div(ended, penalty), axis=0)
    finished, _ = body.outputs_of("TopK", 2, finished, num_hypotheses)
    live, places = body.outputs_of("TopK", 2, body.where(is_end, least, scores), size)
    enough = body.sliced(finished, g.ints(-1), g.ints(np.iinfo(np.int64).max), 0)
    going = body.op("Greater", body.div(live, last), enough)
    kept_rows, next_tokens, live = (
        body.op("Compress", x, going, axis=0) for x in (body.rows(rows, places), body.rows(chosen, places), live)
    )
    body.output("still_going", body.rows(going, g.ints(0)), [1], "BOOL")
    body.output("next_tokens", next_tokens, ["R_1"], "INT64")
    body.output("live", live, ["R_1"], "DOUBLE")
    body.output("finished", finished, ["B"], "DOUBLE")
    empty = _carried_cache(g, body, step, [body.rows(x, kept_rows) for x in step.new])
    for name, value, kind in (("scores", scores, "DOUBLE"), ("rows", rows, "INT64"), ("tokens", chosen, "INT64")):
        body.output(f"step_{name}", value, ["C"], kind)
    body.output("step_sums", body.op("ReduceSum", values, keepdims=0), [])
    first = [g.ints(START), g.constant([0.0], np.float64), g.op("Expand", least, num_hypotheses), *empty]
    *_, all_scores, all_rows, all_tokens, all_sums = g.loop(body, limit, first)
    g.output("scores", all_scores, ["T", "C"], "DOUBLE")
    g.output("rows", all_rows, ["T", "C"], "INT64")
    g.output("tokens", all_tokens, ["T", "C"], "INT64")
    g.output("sums", all_sums, ["T"])
    return g.model()


def best_of(g: Graph, size: int, log_probs: Value, width: Value) -> tuple[Value, Value]:
    """Log-probabilities of `size` tokens (R, V), `width` int64 (1,) -> those of the best tokens of each row that may be
    chosen, and their ids, (R, width), best first, of equals the lower id.

    Of a large vocabulary it looks through the blocks with the largest numbers alone: `TopK` over all would take as long
    as their product in int8. One block more than tokens, as that of PAD and START may have its place by them.
    """
    if size < _LARGE:
        values, ids = g.outputs_of("TopK", 2, _allowed(g, size, log_probs), width)
        return values, ids
    block = next((n for n in range(_BLOCK, _BLOCK // 2, -1) if size % n == 0), _BLOCK)
    number = -(-size // block)
    if missing := number * block - size:
        log_probs = g.op("Pad", log_probs, g.ints(0, 0, 0, missing), g.constant(-np.inf))
    blocks = g.reshaped(log_probs, (-1, number, block))
    num_chosen = g.op("Min", g.add(width, g.ints(1)), g.ints(number))
    _, chosen = g.outputs_of("TopK", 2, g.op("ReduceMax", blocks, g.ints(-1), keepdims=0), num_chosen)
    chosen, _ = g.outputs_of("TopK", 2, chosen, num_chosen, largest=0)  # as they lie, which decides between equals
    numbers = g.op("GatherND", blocks, g.op("Unsqueeze", chosen, g.ints(-1)), batch_dims=1)
    never = np.zeros((number, block), np.float32)
    never.flat[[PAD, START]] = -np.inf
    numbers = g.add(numbers, g.rows(g.constant(never), chosen))
    values, places = g.outputs_of("TopK", 2, g.reshaped(numbers, (0, -1)), width)
    slots = g.div(places, g.ints(block))
    skipped = g.sub(g.op("GatherElements", chosen, slots, axis=1), slots)
    return values, g.add(places, g.mul(skipped, g.ints(block)))


def _allowed(g: Graph, size: int, log_probs: Value) -> Value:
    """Log-probabilities without those of tokens that are never chosen."""
    never = np.zeros(size, np.float32)
    never[[PAD, START]] = -np.inf
    return g.add(log_probs, g.constant(never))


def _carried_cache(g: Graph, body: Graph, step: StepGraph, new: list[Value]) -> list[Value]:
    """Let `body` hand what rows keep to its next round; returns what they keep before the first."""
    empty = []
    for tensor, value in zip(step.cache, new, strict=True):
        body.output(f"new_{tensor.name}", value, ["T_1" if size == "T" else size for size in tensor.shape])
        shape = [{"R": 1, "T": 0}[size] if isinstance(size, str) else size for size in tensor.shape]
        empty.append(g.constant(np.zeros(shape)))
    return empty
