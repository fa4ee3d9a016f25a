"""Search for settings: many short trainings (trials), compared on the validation set; only the best are completed.

file.py                     the table [search] of an experiment file: which settings to try, and how
study.py                    which settings to try next, and which trials go on to the next rung
run.py                      run the trials, each in its own process and run directory
result.py                   the result, as JSON, Markdown and a table
"""
