"""What stands between the package and the machine. Every room may import from here, and nothing here imports a room.

errors.py       errors that users can mend, and the sentence and exit code of each
terminal.py     what is shown: sentences, numbers and tables
files.py        files and folders replaced as a whole, checksums, locks
signals.py      signals as requests to stop
helper.py       helper processes: begun, spoken to, ended
device.py       devices, cores and threads
limits.py       cores and memory that a container grants
cluster.py      a Ray cluster, and joining it
job_array.py    the part of the work that a job of an array takes
numbers.py      whether a caller's value is a number, or a seed
token_ids.py    ids of the special tokens in every vocabulary
hashing.py      pseudo-random numbers that are the same everywhere
code.py         the digest of the package's own code
"""
