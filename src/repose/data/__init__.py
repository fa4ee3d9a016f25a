"""Text, from files of any kind to batches of token ids. Nothing here needs torch.

Published corpora
    catalogue.py            what is known of them: languages, licence, where they are, digests (corpora.toml)
    corpora.py              where they are kept, and fetching one by its name
    download.py, unpack.py  a file from one of several mirrors; what is taken out of an archive, safely
    corpus_build.py         a corpus put together out of these, and its manifest
    phrasebook.py           the small corpus that ships with the package
Pairs from files
    pairs.py                a pair, its two sides, and how many were kept or dropped
    lines.py                lines of plain and packed files
    tables.py               TSV and CSV
    records.py              JSONL and Parquet
    translation_memory.py   TMX
    readers.py              any of these, by a file's name
    splits.py               validation and test pairs, held out of a corpus
What a text is in
    language.py, scripts.py which language, and which script
    tokenised_text.py       whether words and punctuation are parted already, and how they are joined again
    normalization.py        characters of a user's text as the training text writes them
    input_warning.py        whether a text is in a language that a model was made for
A corpus looked over: `repose check`
    findings.py             what can be wrong with it, as numbers
    corpus_statistics.py    what is kept of a set while it is read
    alignment.py            where two files slip against each other
    check.py                the findings about all sets
    advice.py               the sentences about them
Tokens
    tokenizer.py            text to token ids and back
    token_labels.py         tokens as people can read them
    tags.py                 a token before a source, by which a model is told what is wanted
Prepared examples
    columns.py              columns of numbers, memory-mapped
    dataset.py, prepare.py  sentence pairs as token ids, and how they are written
    text_blocks.py          plain text in blocks, for language modelling
    treebank.py             dependency trees, for parsing
What an epoch reads
    mixture.py              how often it reads the pairs of each of several corpora
    bpe_dropout.py          words in other pieces in each epoch
    batching.py             which pairs form which batch
"""
