"""The command line. Each verb loads what it needs and calls one function of another room; nothing is computed here.

main.py             the verbs in the order of `repose --help`, how errors are shown, and exit codes
options.py          options of verbs that use a model or compute on a device
corpus_options.py   options of verbs that read a corpus or an experiment file
tables.py           the tables that `train`, `demo` and `evaluate` end with

train.py            train, demo, init, prepare
check.py            check
fetch.py            fetch
models.py           translate, evaluate, score
documents.py        translate-file, and paragraphs for translate
bulk.py             bulk run, status, merge
score_corpus.py     score-corpus
backtranslate.py    backtranslate
serve.py            serve
export.py           export
grid.py             grid
search.py           search
report.py           report
plot.py             plot positions, attention, curves, share
architectures.py    presets, describe, audit
positions.py        positions learn
cache.py            cache
"""
