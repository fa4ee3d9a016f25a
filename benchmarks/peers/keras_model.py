"""The TensorFlow tutorial's Transformer from Keras' own layers, unchanged and with Hsiao and Dutta's (2024) changes.

It follows "Neural machine translation with a Transformer and Keras", layer by layer. `combine = concat` and `values =
tokens` make the changes of arXiv 2410.04731, eqs. 4 to 14: token embeddings are normalised over each sentence's real
tokens, concatenated with the positions, and taken as the values of every attention. `keras_parity.py` shows that it
computes the same as this project's `baseline` and `reinforced-lookahead`; `keras_.py` measures its speed. Does not
import torch.
"""

import math
from typing import Any, Literal

import keras
import numpy as np
import tensorflow as tf

START = 2
MAX_LENGTH = 2048

Padding = Literal["masked", "propagated", "attended"]
"""Keras' padding masks: passed to every attention, left to Keras' own propagation from the embedding, or absent."""


class Input(keras.layers.Layer):
    """From ids (B, L) to the stream (B, L, D) and the values (B, L, M), both with Keras' padding mask if requested.

    The stream is the scaled embeddings plus positions, and the values are the stream. With `combine = concat`, the
    embeddings are normalised over each sentence's real tokens and concatenated with the positions, and the values are
    the normalised embeddings.
    """

    def __init__(self, vocab_size: int, sizes: Any, padding: Padding) -> None:
        super().__init__()
        self.sizes = sizes
        self.padding = padding
        self.tokens = keras.layers.Embedding(vocab_size, sizes.d_token)
        self.dropout = keras.layers.Dropout(sizes.dropout)
        self.positions = sines_then_cosines(MAX_LENGTH, sizes.d_token)

    def call(self, ids: tf.Tensor, training: bool = False) -> tuple[tf.Tensor, tf.Tensor]:
        x = self.tokens(ids)
        x *= tf.cast(math.sqrt(self.sizes.d_token), x.dtype)
        positions = tf.constant(self.positions, x.dtype)[None, : tf.shape(ids)[1]]
        if self.sizes.combine == "add":
            stream = self.dropout(x + positions, training=training)
            return stream, stream
        values = tf.cast(self._normalise(tf.cast(x, tf.float32), tf.cast(ids != 0, tf.float32)[..., None]), x.dtype)
        stream = tf.concat([values, positions + tf.zeros_like(values)], axis=-1)
        return self.dropout(stream, training=training), values

    def _normalise(self, x: tf.Tensor, real: tf.Tensor) -> tf.Tensor:
        """Return columns of zero mean and unit (biased) variance over the sentence: TN of eqs. 4 to 7."""
        n = tf.reduce_sum(real, axis=1, keepdims=True)
        centred = x - tf.reduce_sum(x * real, axis=1, keepdims=True) / n
        variance = tf.reduce_sum(tf.square(centred) * real, axis=1, keepdims=True) / n
        return centred / tf.sqrt(variance + self.sizes.token_norm_eps)

    def compute_mask(self, ids: tf.Tensor, previous: Any = None) -> tuple[Any, Any]:  # noqa: ARG002 (Keras passes it)
        mask = ids != 0 if self.padding == "propagated" else None
        return mask, mask


def sines_then_cosines(length: int, width: int) -> np.ndarray:
    """Return positions (L, M): sines of position / 10000^(k / (M/2)) for k = 0..M/2-1, then their cosines."""
    half = width // 2
    angles = np.outer(np.arange(length), 10_000.0 ** -(np.arange(half) / half))
    return np.hstack([np.sin(angles), np.cos(angles)]).astype(np.float32)


class KerasTransformer:
    """The tutorial's Transformer. `parts` names each Keras layer as this project names its own.

    `sizes` has those fields of `repose.model.architecture.Architecture` that are read here.
    """

    def __init__(self, sizes: Any, src_vocab_size: int, tgt_vocab_size: int, padding: Padding = "masked") -> None:
        self.sizes = sizes
        self.padding = padding
        self.parts: dict[str, keras.layers.Layer] = {
            "encoder.embedding": Input(src_vocab_size, sizes, padding),
            "decoder.embedding": Input(tgt_vocab_size, sizes, padding),
            "output": keras.layers.Dense(tgt_vocab_size),
        }
        self._dropout = keras.layers.Dropout(sizes.dropout)
        for i in range(sizes.num_encoder_layers):
            self._add_layer(f"encoder.layers.{i}", ("self_attention",))
        for i in range(sizes.num_decoder_layers):
            self._add_layer(f"decoder.layers.{i}", ("self_attention", "cross_attention"))
        self(*2 * [tf.fill([1, 2], START)])  # Keras creates its weights at the first call

    def _add_layer(self, prefix: str, attentions: tuple[str, ...]) -> None:
        sizes = self.sizes
        for attention in attentions:
            self.parts[f"{prefix}.{attention}"] = keras.layers.MultiHeadAttention(
                num_heads=sizes.num_heads, key_dim=sizes.head_dim, dropout=sizes.attention_dropout
            )
        self.parts[f"{prefix}.feed_forward.inner"] = keras.layers.Dense(sizes.d_ff, activation="relu")
        self.parts[f"{prefix}.feed_forward.outer"] = keras.layers.Dense(sizes.d_model)
        for name in (*attentions, "feed_forward"):
            self.parts[f"{prefix}.{name}_sublayer.norm"] = keras.layers.LayerNormalization(epsilon=sizes.norm_eps)

    def __call__(self, src: tf.Tensor, tgt: tf.Tensor, *, training: bool = False) -> tf.Tensor:
        """Return the logits (B, T, V) for ids (B, S) and (B, T), padded on the right with 0."""

        def attend(
            name: str, x: tf.Tensor, keys: tf.Tensor, values: tf.Tensor, ids: tf.Tensor, *, causal: bool = False
        ) -> tf.Tensor:
            mask = (ids != 0)[:, None, :] if self.padding == "masked" else None  # of keys; padded queries do not matter
            mixed = self.parts[name](
                query=x, key=keys, value=values, attention_mask=mask, use_causal_mask=causal, training=training
            )
            return self._join(name, x, mixed)

        def feed_forward(name: str, x: tf.Tensor) -> tf.Tensor:
            y = self.parts[f"{name}.outer"](self.parts[f"{name}.inner"](x))
            return self._join(name, x, self._dropout(y, training=training))

        tokens = self.sizes.values == "tokens"
        x, src_values = self.parts["encoder.embedding"](src, training=training)
        for i in range(self.sizes.num_encoder_layers):
            layer = f"encoder.layers.{i}"
            x = attend(f"{layer}.self_attention", x, x, src_values if tokens else x, src)
            x = feed_forward(f"{layer}.feed_forward", x)
        y, tgt_values = self.parts["decoder.embedding"](tgt, training=training)
        for i in range(self.sizes.num_decoder_layers):
            layer = f"decoder.layers.{i}"
            y = attend(f"{layer}.self_attention", y, y, tgt_values if tokens else y, tgt, causal=True)
            y = attend(f"{layer}.cross_attention", y, x, src_values if tokens else x, src)
            y = feed_forward(f"{layer}.feed_forward", y)
        return self.parts["output"](y)

    def _join(self, name: str, x: tf.Tensor, y: tf.Tensor) -> tf.Tensor:
        return self.parts[f"{name}_sublayer.norm"](keras.layers.Add()([x, y]))

    def weights(self) -> dict[str, Any]:
        """Return every Keras variable under the name of its counterpart in this project."""
        tails = {"kernel": "weight", "embeddings": "tokens.weight", "gamma": "weight", "beta": "bias", "bias": "bias"}
        projections = {"query": "query.", "key": "key.", "value": "value.", "attention_output": "output."}
        found = {}
        for name, part in self.parts.items():
            for variable in part.trainable_weights:
                *_, owner, kind = variable.path.split("/")
                found[f"{name}.{projections.get(owner, '')}{tails[kind]}"] = variable
        return found
