"""Pictures of what models do, as PNG and SVG, each with the numbers behind it: matplotlib without a display.

canvas.py                                  the style, and where a picture goes
fonts.py                                   fonts for labels in any script
position_numbers.py, position_figure.py    position tables
attention_maps.py, attention_numbers.py, attention_figure.py, comparison_figure.py
learning_curves.py, curve_figure.py        metrics.jsonl of runs
"""
