"""Grids: many runs that differ in corpora, systems, settings and seeds, here or on a cluster.

file.py                     reads the table [grid] of an experiment file
grid.py                     expands it into cells, each of them one experiment
manifest.py                 grid.json: the cells and their status
survey.py                   finds the status of cells from their run directories
cells.py                    runs one cell in a process of its own
local.py, ray.py            run cells on this machine, or on a Ray cluster
run.py                      runs a grid: chooses the cells to run, and records their status
view.py                     shows the progress of a grid, and its outcome
estimate.py                 estimates time and memory (`--dry-run`)
published.py                the papers' numbers, which reports show beside those of a grid's runs
"""
