"""Corpora of any size, translated or scored in shards, on one machine or a cluster; a stopped job goes on later.

jobs.py, models.py                  a job from what a user asks for; its models
plan.py                             a job cut into shards, as plan.json
inputs.py, columns.py               files in windows of lines; the columns of Parquet
storage.py                          where a job lies: a folder, or an object store
run.py                              where its shards are worked on
local.py, worker.py                 here: in this process or several; what each of those does
on_ray.py                           on a Ray cluster
shards.py                           one shard, window by window; all of them merged
line_work.py, scoring.py            what is done to the lines of a window: translated, or as pairs scored
parts.py                            what a shard writes: lines, JSON objects, or rows
status.py                           how far a job is
filtering.py                        the pairs of a scored corpus that are kept
"""
