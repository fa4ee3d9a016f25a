"""Tensors and sizes only: the Transformer, its parts and the axes in which the papers differ.

Shape letters, in every annotation of this package:
    B batch · S / T source / target length · L either · Q / K query / key length · N real tokens of a batch,
    packed as rows · H heads · C head width · D d_model · M d_token · F d_ff · V vocabulary.
Batch first everywhere. Masks: True = may attend (or: is a real token).
Token ids: 0 padding, 1 unknown, 2 start, 3 end.
"""
