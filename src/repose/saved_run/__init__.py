"""Run directories: their files, and the records in metrics.jsonl.

folder.py       the files: names, contents, checks
records.py      the records of a training and its scores
"""
