"""Reports: what runs come to, as one page, as tables, and as numbers. Nothing here trains or decodes.

content.py                               what a report is made of
grids.py, run_folder.py, runs.py         runs, as they are found
figures.py, summaries.py                 what one run comes to; mean and deviation over seeds, as rows of a table
score_tables.py, settings_table.py, cost_tables.py, epochs.py, published_tables.py, length_tables.py
tested_systems.py, tests_of_significance.py, sentences.py   the tables, and sentences side by side
build.py                                 all of it put together
html.py, text.py, pictures.py            as it is written
"""
