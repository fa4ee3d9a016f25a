"""Text data: from files of any kind to batches of token ids. Nothing here needs torch.

Published corpora
    catalogue.py            what is known about each: languages, licence, mirrors, checksums (corpora.toml)
    corpora.py              the cache of fetched corpora, and fetching one by name
    download.py, unpack.py  download a file from one of several mirrors; unpack archives safely
    corpus_build.py         assemble one corpus from its files, and write its manifest
    phrasebook.py           the small corpus that ships with the package
Pairs from files
    pairs.py                sentence pairs, counts of kept and dropped ones, and the two text files of a prepared split
    lines.py                lines of plain and compressed text files
    tables.py               TSV and CSV
    records.py              JSONL and Parquet
    translation_memory.py   TMX
    readers.py              choose one of these readers by file name
    splits.py               hold validation and test pairs out of a corpus
Languages and characters
    language.py, scripts.py identify the language and the script of a text
    tokenised_text.py       recognise text that is tokenised already, and detokenise it
    normalization.py        rewrite a user's text in the characters of the training text
    input_warning.py        warn about text in a language that a model was not trained on
Checking a corpus: `repose check`
    findings.py             the kinds of problems, and findings as numbers
    corpus_statistics.py    statistics gathered while a set is read
    misalignment.py         find where two files are misaligned
    check.py                the findings about all sets of a corpus
    advice.py               the sentences about the findings
Tokens
    tokenizer.py            text to token ids and back
    token_labels.py         readable labels for tokens
    tags.py                 a token before a source that tells a model the corpus or the target language
Prepared examples
    columns.py              memory-mapped columns of integers
    dataset.py, prepare.py  sentence pairs as token ids: reading and writing them
    text_blocks.py          plain text in blocks, for language modelling
    treebank.py             dependency trees, for parsing
Epochs and batches
    mixture.py              how often an epoch reads the pairs of each of several corpora
    bpe_dropout.py          a new segmentation of the words in each epoch
    batching.py             which pairs form which batch
"""
