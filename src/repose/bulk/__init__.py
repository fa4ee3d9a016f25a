"""Translate or score corpora of any size in shards, on one machine or a cluster. A stopped job can be resumed.

jobs.py, models.py                  make a job from a user's arguments; its models
plan.py                             a job, divided into shards, as plan.json
inputs.py, columns.py               read files in windows of lines; the columns of Parquet
storage.py                          where a job is stored: a folder, or an object store
run.py                              choose where to work on the shards
local.py, worker.py                 on this machine, in one process or several; what each process does
on_ray.py                           on a Ray cluster
shards.py                           work on one shard, window by window; merge all shards
line_work.py, scoring.py            process the lines of a window: translate them, or score them as pairs
parts.py                            the results of lines; write the part of a shard: lines, JSON objects, or rows
status.py                           the progress of a job
filtering.py                        keep the best pairs of a scored corpus
"""
