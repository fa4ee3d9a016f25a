"""Commands about the architectures of papers and of models: `repose presets`, `describe`, `audit`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer import Argument, Option

from repose.cli.options import change
from repose.system.errors import ConfigError, unknown
from repose.system.terminal import counted, make_table, show

if TYPE_CHECKING:
    from repose.model.architecture import Architecture


def presets(
    every: Annotated[bool, Option("--all", help="Show how each differs from Vaswani et al., and its source.")] = False,
) -> None:
    """List the named architectures, with their purpose and size."""
    from rich.text import Text

    from repose.config.experiment import TokenizerConfig
    from repose.model.describe import num_parameters
    from repose.model.presets import PRESETS, difference

    if not every:
        size = TokenizerConfig().vocab_size
        short = [
            (name, f"{num_parameters(p.architecture, size) / 1e6:.1f} M", p.summary) for name, p in PRESETS.items()
        ]
        show(
            make_table(("preset", "parameters", "what it is"), short, right=[1]),
            f"parameters are at vocabularies of {size:,}; repose describe NAME counts them, --all says what differs",
            "to translate, leave --preset out: `repose train` chooses a model by the number of pairs",
        )
        return
    rows: list[tuple[str, Text, str] | None] = []
    for name, p in PRESETS.items():
        changed = ", ".join(f"{field} {value}" for field, (_, value) in difference(p.architecture).items())
        rows += [(name, Text.assemble(p.summary, "\n", (changed or "nothing", "dim")), p.citation), None]
    show(make_table(("preset", "differs from vaswani-base in", "source"), rows))


def describe(
    model: Annotated[str, Argument(help="A preset, a run directory, a model directory, or hf://owner/name.")],
    overrides: Annotated[list[str] | None, change("a preset's architecture")] = None,
    src_vocab: Annotated[
        int | None, Option(min=5, help="Source vocabulary size (default: the model's, or the published one).")
    ] = None,
    tgt_vocab: Annotated[
        int | None, Option(min=5, help="Target vocabulary size (default: the model's, or the published one).")
    ] = None,
    length: Annotated[int, Option(min=1, help="Sentence length, in tokens, at which operations are counted.")] = 16,
) -> None:
    """Show the parameters, operations and memory that an architecture or a model needs, and where it can be exported
    to."""
    from repose.decoding.translator import LOOKS_AHEAD
    from repose.exporting.targets import targets_of
    from repose.model.describe import describe
    from repose.model.presets import PRESETS, PUBLISHED_VOCABULARIES
    from repose.saved_model.directory import read_sizes

    if is_preset := _is_preset(model, overrides):
        architecture, sizes = _with_settings(model, overrides or []), PUBLISHED_VOCABULARIES
        if architecture.tie_embeddings == "all":  # one shared vocabulary, whose size either option gives
            sizes = (src_vocab or tgt_vocab or sizes[0],) * 2
    else:
        architecture, sizes = read_sizes(Path(model))
    src_vocab, tgt_vocab = src_vocab or sizes[0], tgt_vocab or sizes[1]
    d = describe(architecture, src_vocab_size=src_vocab, tgt_vocab_size=tgt_vocab, length=length)
    rows: list[tuple[str, str] | None] = [(part, f"{count:,}") for part, count in d.parts.items()]
    rows += [None, ("total", f"{d.total:,}")]
    known = PRESETS[model] if is_preset and not overrides else None
    if known is not None and (published := known.published_parameters) is not None:
        published_sizes = " and ".join(f"{size:,}" for size in PUBLISHED_VOCABULARIES)
        rows.append((f"published (at vocabularies {published_sizes})", f"{published:,}"))
    title = " ".join([model, *(overrides or [])]) if known is None else f"{model}: {known.summary}"
    show(
        make_table(("part", "parameters"), rows, right=[1], title=title),
        f"vocabularies        {src_vocab:,} source, {tgt_vocab:,} target tokens",
        f"training            {d.training_flops / 1e6:,.1f} MFLOP per target token, "
        f"at {counted(length, 'token')} a sentence",
        f"forward             {d.forward_flops / 1e6:,.1f} MFLOP per target token",
        f"weights             {d.weights_bytes / 2**20:,.1f} MiB in fp32",
        f"weights + training  {d.training_bytes / 2**20:,.1f} MiB with gradients and Adam's moments, no activations",
        f"can be exported to  {', '.join(targets_of(architecture)) or 'nothing'}",
        *[f"warning             {LOOKS_AHEAD}"] * architecture.looks_ahead,
    )


def audit(
    model: Annotated[str, Argument(help="A preset, a run directory, a model directory, or hf://owner/name.")],
    overrides: Annotated[list[str] | None, change("a preset's architecture")] = None,
    seed: Annotated[int, Option(help="Random seed of the test inputs.")] = 0,
) -> None:
    """Test whether a model looks ahead, leaks padding or decodes wrongly. Exits with code 1 if a check fails."""
    from repose.decoding.load import load
    from repose.decoding.translator import LOOKS_AHEAD
    from repose.model.audit import audit as run_audit

    if _is_preset(model, overrides):
        from repose.saved_model.api import build

        architecture = _with_settings(model, overrides or [])
        tried = build(architecture, src_vocab_size=200, tgt_vocab_size=200, seed=seed)
    else:
        tried = load(model, engine="torch").model
    report = run_audit(tried, seed=seed)
    rows = [(c.name, c.tried, f"{c.moved:.1e}", "passed" if c.passed else "FAILED") for c in report.checks]
    show(make_table(("check", "tried", "moved by", ""), rows), *[LOOKS_AHEAD] * report.looks_ahead)
    if not report.passed:
        raise typer.Exit(1)


def _is_preset(name: str, overrides: list[str] | None) -> bool:
    """Return whether a name is that of a preset, and not of a folder or of a model on a hub. Raises ConfigError for a
    name of neither, and for settings of a trained model."""
    from repose.model.presets import PRESETS
    from repose.saved_model.hub import is_on_hub

    if Path(name).exists() or is_on_hub(name):
        if overrides:
            raise ConfigError(f"{name} is a trained model, whose architecture stays: leave --set {overrides[0]} out")
        return False
    if Path(name).name != name:  # a path, which is like no preset's name
        raise ConfigError(f"there is no directory {name}: check the path, or name a preset (see `repose presets`)")
    if name not in PRESETS:
        raise ConfigError(unknown("preset or directory", name, list(PRESETS)))
    return True


def _with_settings(preset: str, overrides: list[str]) -> "Architecture":
    """Return a preset's architecture with some settings changed."""
    from repose.config.file import load

    if others := [text for text in overrides if not text.startswith("architecture.")]:
        raise ConfigError(f"--set {others[0]} changes no architecture: give architecture.FIELD=VALUE")
    # Every architecture accepts a shared vocabulary and very short sentences.
    fitting = ["tokenizer.sharing=shared", "training.max_src_tokens=3", "training.max_tgt_tokens=2"]
    return load(None, preset=preset, overrides=[*fitting, *overrides]).experiment.architecture
