"""The Transformer, its parts, and the axes in which the papers differ: tensors and sizes only, no files.

architecture.py         sizes and axes, and which of their values go together
presets.py              each published architecture, from presets.toml
transformer.py          the skeleton: two stacks and an output projection
stacks.py               encoder and decoder: embedding, layers, a last norm
embedding.py            from token ids to the first layer's input
positions.py            how the order of tokens is known
token_norm.py           token normalization
norms.py                norms of rows: layer norm and its rivals
layers.py, sublayer.py  the layers of the stacks; dropout, residual and norm around every part of a layer
attention.py            multi-head attention over whole sentences
qk_norm.py              a norm of queries and keys
scores.py               what happens between Q Kᵀ and the mean of values
cached_attention.py     attention of one more token, for decoding
kernels/                what makes it fast: packed rows, blocks, products, the cache
initialisation.py       how initial values are drawn
language_model.py       a decoder alone
parser.py               an encoder with a biaffine head
audit.py                whether a model is what it claims to be: causal, blind to padding, its cache right
describe.py             what an architecture costs

Shape letters, in every annotation of this package:

    B batch · S / T source / target length · L either · Q, q / K, k number of queries / keys
    R packed rows: the N real tokens of a batch and a few spare ones (r: some of them) · N sentences, while decoding
    Z rows that are zero, as spare ones are
    H heads · C width of a head (HC: of all side by side) · D d_model · M d_token · F d_ff · V vocabulary
    X any width · A, E widths of the parser's arc and label states · W words (parser) or rows (decoding) of a sentence
    G groups of heads with keys of their own · I heads of a group, H = G · I · c, e width of a group's keys, values
    e width of a head's values, too, where they are not as wide as its keys · D_in, D_out widths of one linear layer
    b, n, w, l, s sizes of one block: sentences, chunks, a chunk's tokens, length, sentences (`kernels`)
    n rows of all blocks' matrices, too, one after the other · n d rows and width of a given table of positions
    *n, *N, *A any leading dimensions

Batch first everywhere. A cell is one of the B·L places of a padded batch. Masks: True = may attend (or: is a real
token). Positions count from 0.
Token ids: 0 padding, 1 unknown, 2 start, 3 end (`system.token_ids`).
"""
