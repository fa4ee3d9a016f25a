"""CTranslate2: decoding with `Translator.translate_batch`, including its sorting by length, batching and workers.

A Transformer with random weights is written in CTranslate2's own format: Post-LN, ReLU, biases everywhere, and
sinusoidal positions that are added, or for `small-rotary`, rotated queries and keys. CTranslate2's converters only make
heads of width d_model / heads, but its format allows any width. So `baseline` and `small-rotary` also run at their
exact sizes. The exact `reinforced` cannot be expressed.
"""

import math
import multiprocessing
import tempfile
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import ctranslate2
import numpy as np
from ctranslate2.specs.common_spec import Activation, LayerNormSpec, LinearSpec
from ctranslate2.specs.transformer_spec import TransformerDecoderSpec, TransformerEncoderSpec, TransformerSpec
from protocol import DECODE_BATCH, MODELS, NEW_TOKENS, Options, Sizes, Workload, parse, serve

COMPUTE_TYPES = {"fp32": "float32", "int8": "int8"}
RESERVED = ("[PAD]", "<unk>", "<s>", "</s>")
"""Tokens 0 to 3. CTranslate2 expects these names for the last three."""


class _Filler:
    """Writes random weights (Glorot uniform) into the layers of a specification, in place, and counts them."""

    def __init__(self, sizes: Sizes) -> None:
        self.parameters = 0
        self._sizes = sizes
        self._rng = np.random.default_rng(0)

    def matrix(self, rows: int, columns: int) -> np.ndarray:
        limit = math.sqrt(6 / (rows + columns))
        self.parameters += rows * columns
        return self._rng.uniform(-limit, limit, (rows, columns)).astype(np.float32)

    def linear(self, spec: LinearSpec, outputs: int, inputs: int) -> None:
        spec.weight, spec.bias = self.matrix(outputs, inputs), np.zeros(outputs, np.float32)
        self.parameters += outputs

    def norm(self, spec: LayerNormSpec) -> None:
        width = self._sizes.d_model
        spec.gamma, spec.beta = np.ones(width, np.float32), np.zeros(width, np.float32)
        self.parameters += 2 * width

    def layer(self, spec: Any) -> None:
        """Fill an encoder layer, or a decoder layer with its cross-attention."""
        d_model, width = self._sizes.d_model, self._sizes.num_heads * self._sizes.head_dim
        projections, output = spec.self_attention.linear
        self.linear(projections, 3 * width, d_model)
        self.linear(output, d_model, width)
        self.norm(spec.self_attention.layer_norm)
        if hasattr(spec, "attention"):
            queries, keys_and_values, output = spec.attention.linear
            self.linear(queries, width, d_model)
            self.linear(keys_and_values, 2 * width, d_model)
            self.linear(output, d_model, width)
            self.norm(spec.attention.layer_norm)
        self.linear(spec.ffn.linear_0, self._sizes.d_ff, d_model)
        self.linear(spec.ffn.linear_1, d_model, self._sizes.d_ff)
        self.norm(spec.ffn.layer_norm)


def save(folder: str, sizes: Sizes, src_vocab: list[str], tgt_vocab: list[str]) -> int:
    """Write a model with random weights, and return its parameter count."""
    shared = {"pre_norm": False, "activation": Activation.RELU, "head_dim": sizes.head_dim}
    if sizes.combine == "rotary":
        shared |= {"rotary_dim": sizes.head_dim, "rotary_interleave": True}
    encoder = TransformerEncoderSpec(sizes.num_encoder_layers, sizes.num_heads, **shared)
    decoder = TransformerDecoderSpec(sizes.num_decoder_layers, sizes.num_heads, **shared)
    spec, filler = TransformerSpec(encoder, decoder), _Filler(sizes)
    encoder.embeddings[0].weight = filler.matrix(len(src_vocab), sizes.d_model)
    decoder.embeddings.weight = filler.matrix(len(tgt_vocab), sizes.d_model)
    filler.linear(decoder.projection, len(tgt_vocab), sizes.d_model)
    for layer in (*encoder.layer, *decoder.layer):
        filler.layer(layer)
    spec.register_source_vocabulary(src_vocab)
    spec.register_target_vocabulary(tgt_vocab)
    spec.validate()
    spec.optimize()
    spec.save(folder)
    return filler.parameters


def vocabulary(size: int) -> list[str]:
    """Return a name for each token id."""
    return [*RESERVED, *map(str, range(len(RESERVED), size))]


def translator(options: Options, folder: Path | str) -> ctranslate2.Translator:
    """Return a translator with `processes` workers of `threads` threads each; CTranslate2 keeps all in one process."""
    return ctranslate2.Translator(
        str(folder),
        device="cpu",
        compute_type=COMPUTE_TYPES[options.precision],
        inter_threads=options.processes,
        intra_threads=options.threads,
    )


def main() -> None:
    """Command-line entry point: build the model and decode until stdin ends."""
    options = parse(
        "CTranslate2 as a contestant.",
        tasks=("decode",),
        sizes=("nearest", "exact"),
        precisions=tuple(COMPUTE_TYPES),
        max_processes=64,
        models=MODELS,
    )
    if (options.model, options.size) == ("reinforced", "exact"):
        raise SystemExit("CTranslate2 has no values from token embeddings: the reinforced model has no exact size here")
    workload = Workload(options)
    src_vocab, tgt_vocab = vocabulary(workload.src_vocab_size), vocabulary(workload.tgt_vocab_size)
    with tempfile.TemporaryDirectory() as folder:
        # In another process, so that memory needed only to create a random model does not count for the translator.
        with ProcessPoolExecutor(1, multiprocessing.get_context("fork")) as maker:
            parameters = maker.submit(save, folder, options.sizes, src_vocab, tgt_vocab).result()
        machine = translator(options, folder)
    batches = [[[src_vocab[i] for i in ids] for ids in batch] for batch in workload.decode_batches]

    def run(numbers: list[int]) -> int:
        sentences = [sentence for number in numbers for sentence in batches[number]]
        parts = [[sentence] for sentence in sentences] if options.alone else [sentences]
        results = [
            result
            for part in parts
            for result in machine.translate_batch(
                part,
                max_batch_size=DECODE_BATCH,
                beam_size=options.beam,
                min_decoding_length=NEW_TOKENS,
                max_decoding_length=NEW_TOKENS,
            )
        ]
        assert all(len(result.hypotheses[0]) == NEW_TOKENS for result in results)
        return len(results)

    versions = {"ctranslate2": ctranslate2.__version__}
    serve(options, workload.num_batches, run, name="CTranslate2", parameters=parameters, versions=versions)


if __name__ == "__main__":
    main()
