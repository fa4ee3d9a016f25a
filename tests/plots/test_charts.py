"""Charts: names do not overlap, and panels contain everything that is drawn."""

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from matplotlib import rcParams
from matplotlib.figure import Figure
from matplotlib.text import Text

from repose.plots.canvas import INK, canvas, width_of
from repose.plots.charts import (
    FEW,
    DrawnSystem,
    Mean,
    Point,
    Series,
    Spot,
    chart_canvas,
    draw_bars,
    draw_curves,
    draw_spots,
    spread_out,
)


@given(st.lists(st.floats(-5, 15), max_size=12))
def test_names_are_apart_in_their_order_and_within(wanted: list[float]) -> None:
    places = spread_out(wanted, 0.5, 0.0, 10.0)
    ranks = sorted(range(len(wanted)), key=lambda index: (wanted[index], index))
    ordered = [places[index] for index in ranks]
    assert all(after - before >= 0.5 - 1e-6 for before, after in pairwise(ordered))
    assert all(-1e-6 <= place <= 10 + 1e-6 for place in places)


def test_names_with_room_stay_where_they_are() -> None:
    assert spread_out([1.0, 3.0, 2.0], 0.5, 0.0, 10.0) == [1.0, 3.0, 2.0]
    assert spread_out([1.0, 1.0], 0.5, 0.0, 10.0) == [0.75, 1.25]


def systems(number: int) -> list[DrawnSystem]:
    return [DrawnSystem(label=f"reinforced-sentence-prefix-{n}", number=n, comparable=n > 0) for n in range(number)]


def mean(system: DrawnSystem, value: float) -> Mean:
    return Mean(system=system, mean=value, deviation=0.1 * value, values=(0.5 * value, 1.3 * value), text="1,234 ± 56")


def curves(number: int, corpora: int) -> Figure:
    found = [
        Series(system=s, points=(Point(1, 2.0 + s.number / 99, 0.1, 3), Point(2, 1.0, 0.0, 1))) for s in systems(number)
    ]
    return draw_curves({f"corpus {n}": found for n in range(corpora)}, "epoch", "nats", baseline=found[0].system.label)


def bars(number: int, corpora: int) -> Figure:
    found = [mean(system, 10.0 + system.number) for system in systems(number)]
    return draw_bars({f"corpus {n}": found for n in range(corpora)}, "seconds")


def spots(number: int, corpora: int) -> Figure:
    found = [Spot(system=s, score=mean(s, 30.0 + s.number), cost=mean(s, 1e6)) for s in systems(number)]
    return draw_spots({f"corpus {n}": found for n in range(corpora)}, "parameters", "BLEU", millions=True)


@pytest.mark.parametrize("draw", [curves, bars, spots])
@pytest.mark.parametrize(("number", "corpora"), [(3, 1), (FEW + 1, 1), (3, 4)])
def test_all_letters_are_inside_and_names_do_not_touch(draw: object, number: int, corpora: int) -> None:
    with chart_canvas(""):
        figure = draw(number, corpora)  # type: ignore[operator]
        figure.set_dpi(1200)  # letters as wide as in SVG
        figure.draw_without_rendering()
        width, height = figure.bbox.size
        texts = [text for axes in figure.axes for text in (*axes.texts, axes.title, axes.xaxis.label, axes.yaxis.label)]
        for axis in [axis for axes in figure.axes for axis in (axes.xaxis, axes.yaxis)]:
            low, high = sorted(axis.get_view_interval())
            ticks = zip(axis.get_ticklocs(), axis.get_ticklabels(), strict=True)
            texts += [label for at, label in ticks if low <= at <= high]  # the others are not drawn
        legends = [*figure.legends, *(legend for axes in figure.axes if (legend := axes.get_legend()))]
        texts += [text for legend in legends for text in legend.get_texts()]
        texts = [text for text in texts if text.get_text() and text.get_text() != "n = 1"]
        assert len(texts) > number
        boxes = [Text.get_window_extent(text) for text in texts]  # without the thread of a name
        for box in boxes:
            assert box.x0 >= 0
            assert box.y0 >= 0
            assert box.x1 <= width
            assert box.y1 <= height
        for index, box in enumerate(boxes):
            for text, other in zip(texts[:index], boxes, strict=False):
                assert not box.shrunk(0.98, 0.8).overlaps(other.shrunk(0.98, 0.8)), (texts[index], text)


@pytest.mark.parametrize(("number", "corpora"), [(1, 1), (1, 4), (FEW + 1, 1)])
def test_a_long_name_of_the_y_axis_is_no_higher_than_its_panel(number: int, corpora: int) -> None:
    points = (Point(1, 0.5, None, 1), Point(2, 0.6, None, 1))
    found = [Series(system=system, points=points) for system in systems(number)]
    name = "what the source is worth, nats per target token"
    with chart_canvas(""):
        figure = draw_curves({f"corpus {n}": found for n in range(corpora)}, "epoch", name)
        figure.draw_without_rendering()
        box, panel = figure.axes[0].yaxis.label.get_window_extent(), figure.axes[0].bbox
        assert figure.axes[0].yaxis.label.get_text().split() == name.split()
        assert (box.x0 >= 0, box.height <= 1.02 * panel.height) == (True, True)


def test_the_lines_of_many_panels_are_explained() -> None:
    with chart_canvas(""):
        (legend,) = curves(FEW + 1, 1).legends
        assert [text.get_text() for text in legend.get_texts()] == [
            "the system of the panel",
            "the others",
            "± 1 standard deviation",
            "reinforced-sentence-prefix-0",
        ]
        points = (Point(1, 2.0, 0.0, 1),)
        found = [Series(system=system, points=points, training=points) for system in systems(FEW + 1)]
        (legend,) = draw_curves({"corpus": found}, "epoch", "nats").legends
        assert [text.get_text() for text in legend.get_texts()] == [
            "validation",
            "training, dropout on",
            "the others, validation",
        ]


@pytest.mark.parametrize("dpi", [150, 1200])
def test_a_width_is_that_of_the_drawn_text(dpi: int) -> None:
    """In a PNG, too."""
    with chart_canvas(""):
        figure = Figure(dpi=dpi)
        text = figure.text(0, 0, "reinforced-sentence (looks ahead)")
        figure.draw_without_rendering()
        assert width_of(text.get_text()) == pytest.approx(text.get_window_extent().width / figure.dpi, rel=0.02)


def test_many_systems_have_marks_of_their_own() -> None:
    marks = {(system.style["color"], system.marker) for system in systems(20)}
    assert len(marks) == 20


def test_where_runs_stop_is_told_once() -> None:
    def curve(place: int, *numbers: int) -> Series:
        points = tuple(Point(x, 2.0 - place / 10, 0.0, n) for x, n in enumerate(numbers, start=1))
        return Series(system=systems(4)[place], points=points)

    with chart_canvas("n = 123 to epoch"):
        found = [curve(0, 3, 3, 2), curve(1, 3, 3, 1), curve(2, 3, 2, 2), curve(3, 2, 2, 2)]
        (axes,) = draw_curves({"de-en": found}, "epoch", "loss").axes
        told = {text.get_text(): text.get_color() for text in axes.texts if text.get_text().startswith("n = ")}
    assert told == {"n = 2": found[2].system.style["color"], "n = 1 to 2": INK}


@pytest.mark.parametrize(("stops", "apart"), [((11, 12), True), ((5, 12), False)])
def test_numbers_of_runs_that_stop_near_each_other_are_set_apart(stops: tuple[int, int], apart: bool) -> None:
    numbers = [3 - (x >= stops[0]) - (x >= stops[1]) for x in range(1, 13)]
    points = tuple(Point(x, 2.0, 0.0, n) for x, n in enumerate(numbers, start=1))
    with chart_canvas("n = 123 to epoch"):
        (axes,) = draw_curves({"de-en": [Series(system=systems(1)[0], points=points)]}, "epoch", "loss").axes
        low, high = (text.xyann[1] for text in axes.texts if text.get_text() in ("n = 2", "n = 1"))
    assert (high > low) == apart


def test_numbers_of_runs_stay_at_their_panel_and_apart() -> None:
    ends = ((22, 25), (24, 25), (22, 99))  # where the second and the third run of each system end
    found = [
        Series(
            system=system,
            points=tuple(Point(x, (1.7 - 0.3 * n) * x / (x + 3), 0.0, 3 - (x >= a) - (x >= b)) for x in range(1, 26)),
        )
        for n, (system, (a, b)) in enumerate(zip(systems(3), ends, strict=True))
    ]
    with chart_canvas("n = 123 to epoch"):
        figure = draw_curves({"ko-en": found, "zh-en": found}, "epoch", "loss")
        figure.draw_without_rendering()
        axes = figure.axes[0]
        boxes = [Text.get_window_extent(text) for text in axes.texts if text.get_text().startswith("n = ")]
        top = axes.get_window_extent().y1 + 0.15 * figure.dpi  # not as high as the title
    assert len(boxes) == 3
    assert all(box.y1 <= top for box in boxes)
    assert not any(one.overlaps(other) for one, other in combinations(boxes, 2))


def test_a_single_epoch_is_a_whole_number() -> None:
    series = Series(system=systems(1)[0], points=(Point(1, 2.0, 0.0, 1),))
    with chart_canvas("epoch"):
        figure = draw_curves({"de-en": [series]}, "epoch", "loss")
        (axes,) = figure.axes
        assert list(axes.get_xticks()) == [1.0]


@pytest.mark.parametrize("number", [2, 9])
def test_a_curve_that_rises_beyond_all_sense_leaves_the_picture(number: int) -> None:
    """Of a model that diverged; the others are seen."""
    every = systems(number)
    found = [Series(system=system, points=tuple(Point(x, 4.0 - x, None, 1) for x in (1, 2, 3))) for system in every]
    found[1] = Series(system=every[1], points=tuple(Point(x, 30.0 * x, None, 1) for x in (1, 2, 3)))
    with chart_canvas("epoch"):
        cut = draw_curves({"de-en": found}, "epoch", "loss", most=15.0)
        whole = draw_curves({"de-en": found}, "epoch", "loss")
    assert all(axes.get_ylim()[1] < 4 for axes in cut.axes)
    assert all(axes.get_ylim()[1] > 90 for axes in whole.axes)
    if number == 2:
        names = [text.get_text() for text in cut.axes[0].texts]
        assert names == [every[0].label, f"{every[1].label} ↑"]


def test_curves_that_are_all_beyond_it_stay() -> None:
    series = Series(system=systems(1)[0], points=(Point(1, 20.0, None, 1), Point(2, 40.0, None, 1)))
    with chart_canvas("epoch"):
        (axes,) = draw_curves({"de-en": [series]}, "epoch", "loss", most=15.0).axes
        assert axes.get_ylim()[1] > 40


def test_a_curve_that_only_begins_beyond_it_ends_in_the_picture() -> None:
    one, other = systems(2)
    found = [
        Series(system=one, points=(Point(1, 16.0, None, 1), Point(2, 4.0, None, 1), Point(3, 1.5, None, 1))),
        Series(system=other, points=(Point(1, 5.0, None, 1), Point(2, 3.0, None, 1), Point(3, 2.0, None, 1))),
    ]
    with chart_canvas("epoch"):
        (axes,) = draw_curves({"de-en": found}, "epoch", "loss", most=15.0).axes
        assert axes.get_ylim()[0] < 1.5
        assert 5 < axes.get_ylim()[1] < 6


def test_curves_of_training_have_a_few_small_marks() -> None:
    points = tuple(Point(x, 2.0, None, 1) for x in range(100))
    found = [Series(system=system, points=points, training=points) for system in systems(2)]
    with chart_canvas(""):
        (axes,) = draw_curves({"corpus": found}, "epoch", "nats").axes
    training = [line for line in axes.lines if line.get_linewidth() == 1]
    assert [line.get_marker() for line in training] == [system.marker for system in systems(2)]
    assert {line.get_markevery() for line in training} == {17}


def test_heat_maps_and_charts_have_one_typeface() -> None:
    with canvas():
        of_heat_maps = rcParams["font.family"]
    with chart_canvas(""):
        assert rcParams["font.family"] == of_heat_maps
