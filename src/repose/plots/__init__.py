"""Everything that draws: PNG and SVG files, and SVG for the report's page. Uses matplotlib without a display.

canvas.py                         the style, writing files, and SVG in a page's colours
fonts.py                          fonts for labels in any script
charts.py                         curves by epoch, bars, scores against costs
positions.py                      position tables
attention.py, attention_figure.py what a model attends to
"""

from repose.system.errors import of_extra

with of_extra("plot", "pictures need matplotlib"):
    import matplotlib  # noqa: F401
