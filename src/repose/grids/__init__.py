"""Grids: many runs that differ in corpora, systems, settings and seeds, here or on a cluster.

file.py                     the table [grid] of an experiment file
grid.py                     the grid that it describes: cells, each of them one experiment
manifest.py                 grid.json: which cells there are, and how they stand
survey.py                   how they stand on disk
cells.py                    one cell, in a process of its own
local.py, ray.py            where cells run: on this machine, or on a Ray cluster
run.py                      running a grid: what is to be done, and entering what came of it
view.py                     what one sees of it meanwhile, and at its end
estimate.py                 what it would take (`--dry-run`)
published.py                what the papers print, beside which reports set a grid's runs
"""
