"""Search for the translation of one sentence in a single ONNX graph, which has the step in a loop.

    greedy    inputs: limit () and the encoder's outputs
              outputs: tokens and log_probs, both (T, 1, 1), including END; best (T, 1, 1), the exact choice at each
              step: if `tokens` differ from it, search again step by step
    beam      inputs: limit, beam_size, width, num_hypotheses (1,), penalties (limit + 1,), the encoder's outputs
              outputs: scores (T, C), rows (T, C), tokens (T, C), sums (T,)

With one sentence, calling a step from Python takes as long as the step itself. The rules are those of
`repose.decoding.search`. `width` is the number of candidate tokens per row; C, twice the beam size, is the number of
candidates that a step outputs, best first: float64 scores (−inf where there is no candidate), the row that each
candidate continues, and its token. `penalties` are float64, indexed by length. `sums` add up the log-probabilities of
each step's candidates, and are NaN if one of them is.
"""

from typing import Any

import numpy as np

from repose.graphs.graph import Graph, Value, array
from repose.graphs.stacks import Memory, StepGraph
from repose.model.transformer import Transformer
from repose.system.token_ids import END, PAD, START

_LARGE, _BLOCK = 1024, 64  # vocabularies from this size on are searched in blocks of this size
_NEAR = 4  # number of largest rough logits for which exact ones are computed


def greedy(model: Transformer, memory: list[Memory], *, int8: bool) -> Any:
    """Build the greedy search, which runs until END or the limit."""
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
    if is_rough:  # the exact log-probabilities of the whole sentence, in one product
        log_probs = _allowed(g, model.tgt_vocab_size, step.log_probs_of(g, g.reshaped(values, (-1, step.a.d_model))))
        exact = g.outputs_of("TopK", 2, log_probs, g.ints(1))
        values, best = (g.reshaped(each, (-1, 1, 1)) for each in exact)
    g.output("tokens", tokens, ["T", 1, 1], "INT64")
    g.output("log_probs", values, ["T", 1, 1])
    g.output("best", best, ["T", 1, 1], "INT64")
    return g.model()


def _probably_best(g: Graph, model: Transformer, hidden: Value) -> Value:
    """Choose the next token (1, 1) for hidden states (1, d): the one with the best exact logit among those with the
    best rough logits. Exact logits of all tokens would take half of a step's time, to read the weights."""
    weight = array(model.output.weight)
    bias = np.zeros(len(weight), np.float32) if model.output.bias is None else array(model.output.bias).copy()
    bias[[PAD, START]] = -np.inf
    _, near = g.outputs_of("TopK", 2, g.rough_linear(hidden, weight, bias), g.ints(_NEAR))
    near = g.reshaped(near, (-1,))
    exact = g.op("Gemm", hidden, g.rows(g.constant(weight), near), g.rows(g.constant(bias), near), transB=1)
    _, place = g.outputs_of("TopK", 2, exact, g.ints(1))
    return g.rows(near, place)


def beam(model: Transformer, memory: list[Memory], *, int8: bool) -> Any:
    """Build the beam search, which runs until no live hypothesis can win, or the limit."""
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
    """Return the best allowed tokens of each row: their log-probabilities and ids, both (R, width), best first, the
    lower id first among equals. `log_probs` (R, V) are those of `size` tokens; `width` is int64 (1,).

    A large vocabulary is cut into blocks, and only those with the largest maxima are searched: `TopK` over all tokens
    would take as long as the int8 product. One block more than `width`, because PAD or START may be a block's maximum.
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
    chosen, _ = g.outputs_of("TopK", 2, chosen, num_chosen, largest=0)  # in the order of ids, which breaks ties
    numbers = g.op("GatherND", blocks, g.op("Unsqueeze", chosen, g.ints(-1)), batch_dims=1)
    never = np.zeros((number, block), np.float32)
    never.flat[[PAD, START]] = -np.inf
    numbers = g.add(numbers, g.rows(g.constant(never), chosen))
    values, places = g.outputs_of("TopK", 2, g.reshaped(numbers, (0, -1)), width)
    slots = g.div(places, g.ints(block))
    skipped = g.sub(g.op("GatherElements", chosen, slots, axis=1), slots)
    return values, g.add(places, g.mul(skipped, g.ints(block)))


def _allowed(g: Graph, size: int, log_probs: Value) -> Value:
    """Set the log-probabilities of PAD and START, which are never chosen, to −inf."""
    never = np.zeros(size, np.float32)
    never[[PAD, START]] = -np.inf
    return g.add(log_probs, g.constant(never))


def _carried_cache(g: Graph, body: Graph, step: StepGraph, new: list[Value]) -> list[Value]:
    """Make the cache a carried value of the loop; return the empty cache for its first iteration."""
    empty = []
    for tensor, value in zip(step.cache, new, strict=True):
        body.output(f"new_{tensor.name}", value, ["T_1" if size == "T" else size for size in tensor.shape])
        shape = [{"R": 1, "T": 0}[size] if isinstance(size, str) else size for size in tensor.shape]
        empty.append(g.constant(np.zeros(shape)))
    return empty
