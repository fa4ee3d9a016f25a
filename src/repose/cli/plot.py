"""`repose plot`: draws pictures and prints the numbers behind them."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from repose.cli.options import To
from repose.system.terminal import make_table, say, show

if TYPE_CHECKING:
    from repose.plots.canvas import Plotted

app = typer.Typer(
    no_args_is_help=True, name="plot", help="Plot position tables, attention and learning curves (extra `plot`)."
)

Out = Annotated[Path, Option("--out", "-o", help="A .png, .svg or .pdf file (without a suffix: both .png and .svg).")]
Font = Annotated[Path | None, Option(help="Font file for labels in a script that no installed font covers.")]


@app.command()
def positions(
    table: Annotated[Path | None, Option(help="A learned table (default: the one that ships with repose).")] = None,
    max_length: Annotated[int, Option(help="Number of positions.")] = 256,
    width: Annotated[int, Option(help="Numbers per position.")] = 512,
    kind: Annotated[
        list[str] | None, Option(help="Sinusoids: interleaved, halves or printed. Can be repeated.")
    ] = None,
    out: Out = Path("positions"),
) -> None:
    """Plot sinusoids next to a learned position table, before and after pooling, and how similar positions are."""
    import torch

    from repose.plots.positions import plot_positions
    from repose.positions_rl.table import default_table, read

    learned = default_table() if table is None else read(table)
    source = {"file": str(table or "shipped"), "reward": learned.reward, "digest": learned.digest}
    small = torch.from_numpy(learned.values)
    _show(plot_positions(small, out, kinds=kind or ["interleaved"], length=max_length, width=width, source=source))


@app.command()
def attention(
    run: Annotated[Path, Argument(help="A run directory or model directory.")],
    sentence: Annotated[str, Argument(help="Sentence to translate.")],
    target: Annotated[str | None, Option(help="Translation to use (default: the model's own).")] = None,
    to: To = None,
    compare: Annotated[
        Path | None, Option(help="Second model to draw next to the first: one layer, all heads.")
    ] = None,
    kind: Annotated[
        str | None, Option(help="encoder, decoder or cross (default: all; encoder with --compare).")
    ] = None,
    layer: Annotated[int | None, Option(help="Layer to draw, from 1 (default: all; 1 with --compare).")] = None,
    head: Annotated[int | None, Option(help="Head to draw, from 1 (default: all).")] = None,
    font: Font = None,
    out: Out = Path("attention"),
) -> None:
    """Plot what a model attends to when translating a sentence, by layer and head, and how spread out attention is."""
    from repose.plots.attention_figure import plot_attention

    _show(
        plot_attention(
            run, sentence, out, target=target, to=to, compare=compare, kind=kind, layer=layer, head=head, font=font
        )
    )


@app.command()
def curves(
    runs: Annotated[list[Path], Argument(help="Run directories.")],
    metric: Annotated[
        str,
        Option(help="tf_loss, tf_accuracy, or another in metrics.jsonl; bleu, chrf: need training.bleu_every_epochs."),
    ] = "tf_loss",
    by: Annotated[
        str | None,
        Option(help="Horizontal axis: epoch or update (default: update if validations lie within epochs)."),
    ] = None,
    training: Annotated[bool, Option(help="Also draw training metrics.")] = True,
    font: Font = None,
    out: Out = Path("curves"),
) -> None:
    """Plot learning curves. Runs that differ only in their seed are one curve with a band of one standard deviation."""
    from repose.report.pictures import plot_curves

    _show(plot_curves(runs, out, metric=metric, by=by, training=training, font=font))


@app.command()
def share(
    runs: Annotated[
        list[Path], Argument(help="Runs without token norm, with it, and with a token norm that looks ahead.")
    ],
    font: Font = None,
    out: Out = Path("share"),
) -> None:
    """Plot how much of a look-ahead model's gain in validation loss comes from looking ahead, epoch by epoch."""
    from repose.report.share import plot_share

    _show(plot_share(runs, out, font=font))


def _show(picture: "Plotted") -> None:
    """Print the numbers on stdout, and remarks and file names on stderr."""
    show(make_table(picture.header, picture.rows, right=range(1, len(picture.header))))
    for remark in picture.remarks:
        say(remark)
    say(f"wrote {', '.join(map(str, picture.files))}")
