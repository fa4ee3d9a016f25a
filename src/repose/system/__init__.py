"""The layer between the package and the machine. Every room may import from here, and nothing here imports a room.

errors.py       errors that users can fix, each with a sentence and an exit code
terminal.py     output: sentences, numbers and tables
files.py        replacing files and folders as a whole, checksums
locks.py        locks between processes
signals.py      signals as requests to stop
helper.py       helper processes: starting them, talking to them, ending them
device.py       devices, cores and threads
limits.py       cores and memory that a container grants
cluster.py      connecting to a Ray cluster
job_array.py    the part of the work that one job of an array takes
numbers.py      whether a caller's value is a number, or a seed
token_ids.py    ids of the special tokens in every vocabulary
hashing.py      pseudo-random numbers that are the same on every machine
code.py         the digest of the package's own code
"""
