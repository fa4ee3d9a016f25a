"""Reports: the figures of runs as one page, as tables, and as numbers. Nothing here trains or decodes.

content.py                  what a report is made of
collect.py, naming.py       runs as they lie in their folders, and what they, their corpora and the baseline are called
translations.py             what they translated, and on which texts
figures.py                  the figures of one run
tables.py, captions.toml    mean and deviation over seeds, as rows of a table; titles and captions of all tables
tables_scores.py, tables_translations.py, tables_costs.py, tables_settings.py
                            tables of scores, of what translations are like, of costs, and of settings and corpora
pairs.py, significance.py, significance_of_tasks.py
                            tests between systems: what all share, of translations, and of other tasks
compare.py                  two systems, from Python
sentences.py, verdict.py    sentences side by side, and the first sentence of a report
beside_papers.py, papers.py the papers' tables with ours beside theirs
pictures.py, share.py       what is drawn (by repose.plots), and `repose plot curves` and `share`
build.py                    all of it put together
page.py, write.py           as it is written
"""
