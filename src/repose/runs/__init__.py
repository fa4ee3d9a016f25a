"""One run in one directory: prepare a corpus, train on it, evaluate, and describe the model.

arguments.py                the experiment that a command's arguments describe
fine_tuning.py              settings taken over from a trained model that is trained further
claim.py                    checks that a directory belongs to a run, and says what differs if not
run.py                      the run itself
next_steps.py               advice at the end of a training
card.py                     its model's README.md
api.py                      `repose.train` and `repose.evaluate`
"""
