"""`repose plot`: pictures, and the numbers behind them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from repose.cli.models import say

if TYPE_CHECKING:
    from repose.plots.canvas import Plotted

app = typer.Typer(no_args_is_help=True, help="Draw position tables, attention and learning curves (extra `plot`).")

Out = Annotated[Path, typer.Option("--out", "-o", help="A .png or .svg file; without suffix, both are written.")]
Font = Annotated[
    Path | None, typer.Option(help="A font file for labels, where this machine has none for their script.")
]


@app.command()
def positions(
    table: Annotated[Path | None, typer.Option(help="A learned table (default: the one that is shipped).")] = None,
    max_length: Annotated[int, typer.Option(help="Positions.")] = 256,
    width: Annotated[int, typer.Option(help="Numbers per position.")] = 512,
    kind: Annotated[list[str] | None, typer.Option(help="Sinusoids: interleaved, halves, printed; repeatable.")] = None,
    out: Out = Path("positions"),
) -> None:
    """Sinusoids beside a learned position table, before and after its pooling; and how alike positions are."""
    import torch

    from repose.plots.positions import plot_positions
    from repose.positions_rl.table import default_table, read

    learned = default_table() if table is None else read(table)
    source = {"file": str(table or "shipped"), "reward": learned.reward, "digest": learned.digest}
    small = torch.from_numpy(learned.values)
    _show(plot_positions(small, out, kinds=kind or ["interleaved"], length=max_length, width=width, source=source))


@app.command()
def attention(
    run: Annotated[Path, typer.Argument(help="A run or model directory.")],
    sentence: Annotated[str, typer.Argument(help="What to translate.")],
    target: Annotated[str | None, typer.Option(help="Its translation (default: the model's own).")] = None,
    compare: Annotated[Path | None, typer.Option(help="Another model, drawn beside it: one layer, all heads.")] = None,
    kind: Annotated[
        str | None, typer.Option(help="encoder, decoder or cross (default: all; with --compare encoder).")
    ] = None,
    layer: Annotated[int | None, typer.Option(help="One layer, from 1 (default: all; with --compare 1).")] = None,
    head: Annotated[int | None, typer.Option(help="One head, from 1 (default: all).")] = None,
    font: Font = None,
    out: Out = Path("attention"),
) -> None:
    """What a model attends to as it translates a sentence, per layer and head, and how spread out it is."""
    from repose.plots.attention_figure import plot_attention

    options = {"target": target, "compare": compare, "kind": kind, "layer": layer, "head": head, "font": font}
    _show(plot_attention(run, sentence, out, **options))  # type: ignore[arg-type]


@app.command()
def curves(
    runs: Annotated[list[Path], typer.Argument(help="Run directories.")],
    metric: Annotated[
        str, typer.Option(help="tf_loss, tf_accuracy, bleu, or any other figure of metrics.jsonl.")
    ] = "tf_loss",
    by: Annotated[str, typer.Option(help="epoch or update.")] = "epoch",
    training: Annotated[bool, typer.Option(help="Draw training figures, too.")] = True,
    font: Font = None,
    out: Out = Path("curves"),
) -> None:
    """Learning curves; runs that differ only in their seed are one curve with a band of one standard deviation."""
    from repose.report.pictures import plot_curves

    _show(plot_curves(runs, out, metric=metric, by=by, training=training, font=font))


def _show(picture: "Plotted") -> None:
    """The numbers on stdout, the names of the files on stderr."""
    from rich.table import Table

    from repose.cli.tables import make_console

    table = Table(*picture.header)
    for column in table.columns[1:]:
        column.justify = "right"
    for row in picture.rows:
        table.add_row(*row)
    make_console(markup=False).print(table)
    say(f"wrote {', '.join(map(str, picture.files))}")
