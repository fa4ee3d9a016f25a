"""The ids of the special tokens: the same in every tokenizer, prepared corpus, model and export."""

PAD, UNK, START, END = 0, 1, 2, 3
