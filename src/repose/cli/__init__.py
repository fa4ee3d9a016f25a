"""The command line. Each command loads what it needs and calls one function of another room; nothing is computed here.

main.py             the commands in the order of `repose --help`, how errors are shown, and exit codes
options.py          options of commands that use a model or compute on a device
corpus_options.py   options of commands that read a corpus or an experiment file
tables.py           the tables that `train`, `demo` and `evaluate` print at the end

train.py            train, demo, init, prepare
check.py            check
fetch.py            fetch
models.py           translate, evaluate, score
documents.py        translate-file, and translate --paragraphs
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
