"""How, not what: packed rows, blocks of sentences, the cache and matrix products that make the model fast.

    (B, L) token ids, with padding
        packing.py      the real tokens as rows (R, D): layers, norms and loss see nothing else
        linear.py       queries, keys and values of every row, through the faster of two libraries
                        (absorption.py: where heads are wide, tokens take the place of keys and values)
        blocks.py       sentences of like length side by side, (b, l, HC): which queries meet which keys
                        (local.py: chunks of sentences instead, for local attention)
        attend.py       of each block softmax(s Q Kᵀ + B) V, with what `model.scores` puts between
        blocks.py       back to rows, for the output layer

In a training on a GPU, linear layers, norms and embeddings go through beside.py, which computes the gradients of their
weights while others are computed.

Decoding goes token by token, a row each: `model.cached_attention`, over what cache.py keeps, of which a row reaches its
own tokens so far (`StepReach`) and its source (`MemoryReach`). These two and the blocks are what `model.scores` knows
as a `Reach`.
"""
