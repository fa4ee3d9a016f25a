"""The pictures of a report, each with the numbers that are drawn: learning curves, times, and scores against costs.

picture_parts.py                         which runs share a picture
curve_pictures.py, cost_pictures.py      what is drawn, and what is said of it
panels.py, drawing.py                    how it is drawn, on a light and on a dark page
"""

from repose.plots.canvas import require_matplotlib
from repose.report.content import Picture
from repose.report.runs import RunSet


def pictures(runs: RunSet) -> tuple[Picture, ...]:
    """Whatever can be drawn of the runs: validation loss and BLEU by epoch, seconds per epoch, BLEU against parameters
    and against seconds per epoch. A panel shows one corpus; one with more than seven systems has pictures of its own.

    Raises ConfigError where matplotlib is not installed.
    """
    require_matplotlib()
    from repose.report.cost_pictures import against_parameters, against_time, times
    from repose.report.curve_pictures import bleu_curves, loss_curves
    from repose.report.picture_parts import parts_of

    kinds = (loss_curves, bleu_curves, times, against_parameters, against_time)
    found = [draw(part, name) for part, name in parts_of(runs) for draw in kinds]
    return tuple(picture for picture in found if picture is not None)
