"""One run: prepare a corpus, train on it, evaluate, and say what the model is worth, in one directory.

arguments.py                what a command was asked for, as an experiment
fine_tuning.py              which settings a trained model brings along when its training goes on with other sentences
folder.py, records.py       a run directory: every file in it, and metrics.jsonl, the lines that a training writes
claim.py                    whose a directory is, and what is said where it holds another run
run.py                      the run itself
next_steps.py               advice at the end of a training
card.py                     README.md of its model
api.py                      what a Python program calls
"""
