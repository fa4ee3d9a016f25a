"""The ids of the special tokens: the same in every tokenizer, prepared corpus, model and export."""

PAD, UNK, START, END = 0, 1, 2, 3
MOST_TOKENS = 1_000_000
"""Of a vocabulary."""
