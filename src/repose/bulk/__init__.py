"""Corpora of any size in shards: translated or scored, on one machine or a cluster, and gone on with after a stop.

jobs.py, models.py                  a job from what a user asks for; its models
plan.py                             a job cut into shards, as plan.json
inputs.py, columns.py               files in windows of lines; the columns of Parquet
storage.py                          where a job lies: a folder, or an object store
run.py                              where its shards are worked on
local.py, worker.py                 here: in this process or several; what each of those does
on_ray.py                           on a Ray cluster
shards.py                           one shard, window by window
line_work.py, scoring.py            what is done to the lines of a window: translated, or as pairs scored
parts.py                            what a shard writes, and how parts are merged
status.py                           how far a job is
filtering.py                        the pairs of a scored corpus that are kept
"""
