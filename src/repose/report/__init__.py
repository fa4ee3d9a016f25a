"""Reports: the figures of runs as one page, as tables, and as numbers. Nothing here trains or decodes.

content.py                          what a report is made of
collect.py, translations.py         runs and their translations, as they lie in their folders
figures.py                          the figures of one run
tables.py, captions.toml            mean and deviation over seeds, as rows of a table; titles and captions of all
tables_scores.py, tables_costs.py, tables_lengths.py, tables_settings.py
significance.py, sentences.py       tests between systems, and sentences side by side
comparison.py, papers.py            the papers' tables with ours beside theirs
pictures.py                         what is drawn (by repose.plots)
build.py                            all of it put together
page.py, write.py                   as it is written
"""
