"""Everything that draws: PNG and SVG files, and SVG for the report's page. Uses matplotlib without a display.

canvas.py                         the style, writing files, and SVG in a page's colours
fonts.py                          fonts for labels in any script
charts.py                         curves by epoch, bars, scores against costs
positions.py                      position tables
attention.py, attention_figure.py what a model attends to
"""

from repose.system.errors import MissingExtraError

try:
    import matplotlib  # noqa: F401
except ImportError as error:
    raise MissingExtraError("pictures need matplotlib: pip install 'repose-nmt[plot]'") from error
