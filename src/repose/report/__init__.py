"""Reports on runs: one page, tables, and numbers for programs. Nothing here trains or decodes.

content.py                  the parts of a report, independent of its format
run_set.py                  the runs of a report
collect.py, naming.py       find and read runs; name runs, systems and corpora, and find the baseline
translations.py             the translations of runs, and the texts they are measured on
figures.py                  the figures (measured numbers) of one run
tables.py, captions.toml    mean and deviation over seeds as table rows; titles and captions of all tables
tables_scores.py, tables_translations.py, tables_costs.py, tables_settings.py
                            tables of scores, of how translations end and vary with length, of costs, of settings
differences.py              how runs differ in more than what is compared
pairs.py, significance.py, significance_of_tasks.py
                            significance tests between systems: shared parts, for translation, for other tasks
compare.py                  compare two systems from Python
sentences.py, verdict.py    translated sentences side by side; a report's first sentences and main picture
beside_papers.py, papers.py the papers' tables with this project's numbers beside them
pictures.py, share.py       which curves, bars and points to draw (repose.plots draws); `repose plot curves` and `share`
build.py                    builds a report from all of these
page.py, markdown.py, latex.py
                            a report as an HTML page and as Markdown, its tables as LaTeX
write.py                    write a report in all formats
"""
