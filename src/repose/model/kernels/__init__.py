"""Code for speed: packed rows, blocks of sentences, matrix products, and the decoding cache.

These modules decide how the model is computed fast, not what it computes. A batch passes through them like this:

    (B, L) token ids, with padding
        packing.py      the real tokens as rows (R, D); layers, norms and loss see only these
        linear.py       queries, keys and values of every row, through the faster of two libraries
                        (absorption.py: if heads are wide, the tokens serve as keys and values)
        blocks.py       sentences of similar length side by side, (b, l, HC): which queries meet which keys
                        (local.py: chunks of sentences instead, for local attention)
        attend.py       softmax(s Q Kᵀ + B) V for each block; `model.scores` can change the softmax
        blocks.py       back to rows, for the output projection

Other modules: dropout.py draws dropout masks fast on a CPU. When training on a GPU, linear layers, norms and embeddings
go through beside.py, which computes the gradients of their weights in parallel with other gradients.

Decoding goes token by token, with one row per hypothesis (`model.cached_attention`). cache.py holds what it keeps
between steps. A row attends to its own tokens so far (`StepReach`) and to its source (`MemoryReach`). These two and the
blocks are what `model.scores` calls a `Reach`.
"""
