"""Published numbers are those printed in the papers, and agree with each other as far as the papers do."""

import itertools

import pytest

from repose.grids.published import Curve, PrintedSystem, PrintedTable, Scalar, load, parse
from repose.model.presets import PRESETS

TABLE = load().find(PrintedTable, "reinforced/table-1")
SYSTEMS = ("baseline", "proposed")
LOSSES = ("train_loss", "validation_loss")


def _column(table, name):
    place = [column.name for column in table.columns].index(name)
    return [row[place] for row in table.rows]


def _columns(table, *names):
    return [_column(table, name) for name in names]


def _cell(table, row, name):
    return dict(zip(map(str, _column(table, table.columns[0].name)), _column(table, name), strict=True))[row]


def _curve(system, loss):
    return load().find(Curve, f"reinforced/pt_to_en/{system}/{loss}")


def _scalar(name):
    return load().find(Scalar, f"reinforced/{name}")


def _unequal_epochs():
    return [d for d in _column(TABLE, "dataset") if len({_cell(TABLE, d, f"{s}_epochs") for s in SYSTEMS}) > 1]


def test_reinforced_table_has_fourteen_complete_rows():
    assert len(TABLE.rows) == 14
    assert len(set(_column(TABLE, "dataset"))) == 14
    for system in SYSTEMS:
        assert all(1 <= epochs <= 10 for epochs in _column(TABLE, f"{system}_epochs"))
        for loss in LOSSES:
            assert all(1.0 < value < 5.0 for value in _column(TABLE, f"{system}_{loss}"))


@pytest.mark.parametrize(("system", "stopped_early"), [("baseline", []), ("proposed", ["aztr_to_en", "tr_to_en"])])
def test_rows_stopped_at_twelve_hours_but_for_the_two_that_are_noted(system, stopped_early):
    early = []
    for dataset in map(str, _column(TABLE, "dataset")):
        epochs, seconds = (
            float(_cell(TABLE, dataset, f"{system}_epochs")),
            float(_cell(TABLE, dataset, f"{system}_seconds")),
        )
        assert epochs * seconds <= 12 * 3600
        if epochs < 10 and (epochs + 1) * seconds <= 12 * 3600:
            early.append(dataset)
    assert early == stopped_early
    assert all(dataset in TABLE.note for dataset in early)


def test_merged_corpora_are_the_sums_of_their_parts_but_for_the_slip_that_is_noted():
    pairs = dict(zip(_column(TABLE, "dataset"), _column(TABLE, "train_pairs"), strict=True))
    assert pairs["aztr_to_en"] == pairs["az_to_en"] + pairs["tr_to_en"]
    assert pairs["glpt_to_en"] == pairs["gl_to_en"] + pairs["pt_to_en"]
    assert pairs["beru_to_en"] == pairs["be_to_en"] + pairs["ru_to_en"] - 1
    for merged, low_resource in (("aztr_to_en", "az_to_en"), ("beru_to_en", "be_to_en"), ("glpt_to_en", "gl_to_en")):
        assert _cell(TABLE, merged, "validation_pairs") == _cell(TABLE, low_resource, "validation_pairs")


def test_claims_of_the_text_about_the_table_hold():
    assert len(_unequal_epochs()) == 7
    worse = [
        d
        for d in _column(TABLE, "dataset")
        if any(
            float(_cell(TABLE, d, f"proposed_{loss}")) >= float(_cell(TABLE, d, f"baseline_{loss}")) for loss in LOSSES
        )
    ]
    assert worse == ["be_to_en"]


def test_speed_ratios_span_more_than_the_text_says():
    ratios = [
        float(_cell(TABLE, str(d), "baseline_seconds")) / float(_cell(TABLE, str(d), "proposed_seconds"))
        for d in _column(TABLE, "dataset")
    ]
    assert (round(min(ratios), 1), round(max(ratios), 1)) == (1.8, 5.9)


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("loss", LOSSES)
def test_text_repeats_the_portuguese_row(system, loss):
    assert _scalar(f"pt_to_en/{system}/text_{loss}").value == _cell(TABLE, "pt_to_en", f"{system}_{loss}")


@pytest.mark.parametrize("loss", LOSSES)
def test_headline_is_epoch_nine_of_the_baseline_against_epoch_ten_of_the_proposed(loss):
    assert _scalar(f"pt_to_en/baseline/headline_{loss}").value == _curve("baseline", loss).values[8]
    assert _scalar(f"pt_to_en/proposed/headline_{loss}").value == _curve("proposed", loss).values[9]
    # One trial's last epoch (Table 1) lies near the mean of the trials that got there.
    for system in SYSTEMS:
        assert abs(_curve(system, loss).values[9] - float(_cell(TABLE, "pt_to_en", f"{system}_{loss}"))) <= 0.02 + 1e-9


@pytest.mark.parametrize("loss", LOSSES)
def test_curves_fall_and_count_the_trials_behind_each_epoch(loss):
    for system in SYSTEMS:
        values = _curve(system, loss).values
        assert len(values) == 10
        assert all(later < earlier for earlier, later in itertools.pairwise(values))
    assert _curve("baseline", loss).trials == (10,) * 8 + (8, 4)
    assert _curve("proposed", loss).trials == (10,) * 10
    below = [e for e in range(1, 11) if _curve("proposed", loss).values[e - 1] < _curve("baseline", loss).values[e - 1]]
    assert below[0] == {"train_loss": 3, "validation_loss": 2}[loss]


def test_parameter_counts():
    counts = {system: _scalar(f"{system}/parameters").value for system in SYSTEMS}
    assert counts == {"baseline": 10_184_162, "proposed": 2_809_634}
    assert round(counts["baseline"] / counts["proposed"], 2) == 3.62
    for system in SYSTEMS:
        assert _cell(load().find(PrintedTable, "reinforced/setup"), "parameters", system) == counts[system]


@pytest.mark.parametrize("system", SYSTEMS)
def test_setup_and_counts_are_those_of_the_preset(system):
    preset = PRESETS[load().find(PrintedSystem, f"reinforced/{system}").preset]
    assert preset.published_parameters == _scalar(f"{system}/parameters").value
    setup = load().find(PrintedTable, "reinforced/setup")
    for size in _column(setup, "size"):
        if size != "parameters":
            assert getattr(preset.architecture, size) == _cell(setup, size, system)


def test_times_per_epoch():
    baseline, proposed = (_scalar(f"pt_to_en/{system}/seconds_per_epoch") for system in SYSTEMS)
    assert (baseline.value, baseline.deviation) == (4297.79, 675.79)
    assert (proposed.value, proposed.deviation) == (1352.27, 144.50)
    for system, mean in zip(SYSTEMS, (baseline, proposed), strict=True):
        assert abs(float(_cell(TABLE, "pt_to_en", f"{system}_seconds")) - mean.value) < mean.deviation


def test_everything_of_the_proposed_model_that_is_a_loss_is_flagged_as_looking_ahead():
    entries = [*load().curves, *load().scalars]
    losses = [e for e in entries if e.system == "reinforced/proposed" and e.metric.endswith("_loss")]
    assert len(losses) == 6
    for entry in [*losses, TABLE]:
        assert {"look_ahead", "teacher_forced"} <= set(entry.protocol)
    assert not any("look_ahead" in e.protocol for e in entries if e.system == "reinforced/baseline")


@pytest.mark.parametrize(
    ("name", "prefixes"), [("enhanced/table-1", ("",)), ("enhanced/table-2", ("baseline_", "proposed_"))]
)
def test_bleu_is_what_the_printed_form_says(name, prefixes):
    table = load().find(PrintedTable, name)
    for row in (str(cells[0]) for cells in table.rows):
        for prefix in prefixes:
            mean, deviation = str(_cell(table, row, f"{prefix}printed")).split(" ± ")
            assert float(mean) == _cell(table, row, f"{prefix}bleu")
            assert float(deviation.replace("(", "").replace(")", "")) == _cell(table, row, f"{prefix}deviation")
    assert "teacher_forced_presumably" in table.protocol


def test_every_row_of_the_enhanced_table_is_a_system_that_can_be_built():
    systems = {s.label: s.preset for s in load().systems if s.id.startswith("enhanced/")}
    assert list(systems) == _column(load().find(PrintedTable, "enhanced/table-1"), "system")
    assert set(systems.values()) <= set(PRESETS)
    assert len(set(systems.values())) == len(systems)


def test_setup_of_the_enhanced_paper_is_that_of_its_presets():
    stated = dict(load().find(PrintedTable, "enhanced/setup").rows)
    for system in load().systems:
        if system.id.startswith("enhanced/"):
            a = PRESETS[system.preset].architecture
            assert a.num_encoder_layers == a.num_decoder_layers == stated["num_layers"]
            for size in ("d_model", "num_heads", "dropout", "max_length"):
                assert getattr(a, size) == stated[size]


def test_improvements_follow_from_the_scores():
    one, two, others = (load().find(PrintedTable, f"enhanced/{name}") for name in ("table-1", "table-2", "comparisons"))
    pairs = [
        (float(_cell(one, row, "bleu")), float(_cell(one, "Original", "bleu")), _cell(one, row, "improvement"))
        for row in map(str, _column(one, "system"))
        if _cell(one, row, "improvement") != ""
    ]
    pairs += [
        (b, a, c) for a, b, c in zip(*_columns(two, "baseline_bleu", "proposed_bleu", "improvement"), strict=True)
    ]
    best = float(_cell(one, "Enhanced Transformer", "bleu"))
    pairs += [
        (best, float(_cell(one, row, "bleu")), percent)
        for row, percent in zip(*_columns(others, "system", "improvement"), strict=True)
    ]
    assert len(pairs) == 5 + 4 + 4
    for new, old, printed in pairs:
        # Scores have two decimals, so a percentage is off by up to 0.03 (and the paper truncates one).
        assert 100 * (new / old - 1) == pytest.approx(printed, abs=0.03)
    mean = sum(map(float, _column(two, "improvement"))) / 4
    assert load().find(Scalar, "enhanced/average_improvement").value == pytest.approx(mean, abs=0.005)


def test_complexities_of_vaswani():
    table = load().find(PrintedTable, "transformer/table-1")
    assert len(table.rows) == 4
    assert _cell(table, "self-attention (restricted)", "complexity_per_layer") == "O(r · n · d)"


def test_every_protocol_tag_is_used():
    published = load()
    used = {tag for entry in (*published.tables, *published.curves, *published.scalars) for tag in entry.protocol}
    assert used == set(published.protocols)


MINIMAL = """
papers = [{ id = "p", title = "t", authors = "a", year = 2024, identifier = "i", texts = ["paper"] }]
systems = [{ id = "s", label = "l", preset = "" }]
tables = []
curves = []
[protocols]
tag = "A tag."
[[scalars]]
id = "n"
paper = "p"
where = "Section 1"
sources = ["paper"]
protocol = ["tag"]
note = ""
system = "s"
metric = "m"
unit = ""
value = 4
"""


def test_a_whole_number_stays_whole():
    assert parse(MINIMAL).find(Scalar, "n").value == 4
    assert isinstance(parse(MINIMAL).find(Scalar, "n").value, int)


def test_an_unknown_field_is_refused():
    with pytest.raises(ValueError, match="colour"):
        parse(MINIMAL.replace('unit = ""', 'unit = ""\ncolour = "red"'))


def test_every_entry_names_what_is_there():
    published = load()
    entries = [*published.tables, *published.curves, *published.scalars]
    ids = [each.id for each in (*published.papers, *published.systems, *entries)]
    assert len(ids) == len(set(ids))
    texts = {paper.id: set(paper.texts) for paper in published.papers}
    systems = {system.id for system in published.systems}
    for entry in entries:
        assert set() < set(entry.sources) <= texts[entry.paper], entry.id
        if isinstance(entry, Curve | Scalar):
            assert entry.system in systems, entry.id
        if isinstance(entry, Curve):
            assert len(entry.values) == len(entry.trials), entry.id
        if isinstance(entry, PrintedTable):
            assert {len(row) for row in entry.rows} == {len(entry.columns)}, entry.id
