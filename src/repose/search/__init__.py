"""Search for settings: many trials, compared on the validation set, most of them not trained to the end.

file.py                     the table [search] of an experiment file: what is searched, and how
study.py                    which settings are tried next, and which trials go on to the next rung
run.py                      running the trials, each in a process and a run directory of its own
result.py                   what came of them, as JSON, as Markdown and as a table
"""
