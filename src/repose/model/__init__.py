"""The Transformer: its layers, the axes along which published variants differ, and the presets.

An axis is one place of the model that some paper changes; it is a field of `Architecture`. To read the model from top
to bottom, follow the order of this list. Models are saved and loaded elsewhere (`saved_model`).

architecture.py         the sizes and axes of a model, and which values can be combined
presets.py              the published architectures, read from presets.toml
transformer.py          the whole model: encoder, decoder and output projection
stacks.py               the encoder and the decoder: embedding, layers, final norm
embedding.py            from token ids to the input of the first layer
positions.py            positional encodings: how the model knows the order of tokens
token_norm.py           token normalization
norms.py                layer norm, RMSNorm and ScaleNorm
layers.py, sublayer.py  encoder and decoder layers; the dropout, residual connection and norm around each sublayer
attention.py            multi-head attention over whole sentences
qk_norm.py              the norm of queries and keys
scores.py               from attention scores to attention weights
cached_attention.py     attention while decoding, one token at a time
kernels/                code for speed: packed rows, blocks, matrix products, the cache
initialisation.py       initial values of the weights
language_model.py       a decoder-only model
parser.py               a dependency parser: an encoder and a biaffine head
audit.py                checks of a model: causality, padding, cached decoding
describe.py             the cost of an architecture: parameters, FLOPs, memory

Shape letters, used in every annotation of this package:

    B  batch size
    S / T  source / target length; L either
    Q, q / K, k  number of queries / keys
    R  packed rows: the N real tokens of a batch and a few spare rows; r  some of them
    N  real tokens of a batch; while decoding, sentences
    Z  rows that hold zeros, such as the spare rows
    H  heads; C  width of a head (HC: all heads side by side)
    D  d_model; M  d_token; F  d_ff; V  vocabulary size; X  any width
    A, E  widths of the parser's arc and label states
    W  words of a sentence (parser), or rows of a sentence (decoding)
    G  groups of heads, each with its own keys and values; I  heads in a group, so that H = G · I
    c, e  width of one group's keys, values; e also the width of a head's values where keys have another width
    D_in, D_out  input and output width of a linear layer
    b, n, w, l, s  one block's sentences, chunks, tokens in a chunk, length, sentences (`kernels`)
    n  also: the rows of all blocks' matrices, one after the other
    n d  rows and width of a given position table
    *n, *N, *A  any leading dimensions

Tensors are batch first everywhere. A cell is one of the B·L places of a padded batch. A mask is True where attention is
allowed, or where a token is real. Positions count from 0. Token ids: 0 padding, 1 unknown, 2 start, 3 end
(`system.token_ids`).
"""
