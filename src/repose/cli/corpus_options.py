"""Options of the commands that read a corpus or an experiment file, and how these options are parsed."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import typer
from typer import Argument, Option
from typer.core import TyperCommand

from repose.cli.options import change
from repose.data.readers import holds_pairs, may_follow
from repose.system.errors import ConfigError

Files = Annotated[
    list[Path] | None,
    Argument(
        help="Two aligned text files (source and target); one TSV or CSV file; JSONL, Parquet or TMX files; or an "
        "experiment's TOML file."
    ),
]
Config = Annotated[
    str | None, Option("--config", "-c", help="An experiment file, or the name of one that ships with repose.")
]
PresetName = Annotated[
    str | None,
    Option(
        "--preset",
        "-p",
        help="Use a named architecture; another than the recipe's has its own dropout (see `repose presets`).",
    ),
]
Overrides = Annotated[list[str] | None, change("one setting")]
Valid = Annotated[
    list[Path] | None,
    Option("--valid", metavar="SRC TGT", help="Validation pairs, in files as the corpus's (default: some of its own)."),
]
Test = Annotated[list[Path] | None, Option("--test", metavar="SRC TGT", help="Test pairs, likewise.")]
SrcField = Annotated[
    str | None,
    Option(help="What sources are called in a file of pairs: a column (or its number), a field, a memory's language."),
]
TgtField = Annotated[str | None, Option(help="What targets are called there.")]
SrcLang = Annotated[
    str | None, Option(help="Code of the source language, such as pt, or its English name, where names do not say it.")
]
TgtLang = Annotated[str | None, Option(help="The target language, likewise.")]
Synthetic = Annotated[
    tuple[Path, Path] | None,
    Option(metavar="SRC TGT", help="More pairs to train on, whose sources `repose backtranslate` wrote."),
]

_EQUALS = ("--valid=", "--test=")


class WithFiles(TyperCommand):
    """A command whose `--valid` and `--test` are followed by two aligned files or by one file of pairs.

    `--synthetic` needs two aligned files; an error says so if they are missing.
    """

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        """Rewrite `--valid A B` to what the parser expects: `--valid A --valid B`."""
        written: list[str] = []
        given = [part for arg in args for part in (arg.split("=", 1) if arg.startswith(_EQUALS) else [arg])]
        bound = [arg.split("=", 1)[1] for arg in args if arg.startswith(_EQUALS)]
        while given:
            written.append(arg := given.pop(0))
            if arg == "--synthetic" and (len(given) < 2 or any(part.startswith("-") for part in given[:2])):
                raise ConfigError("--synthetic needs two aligned text files after it: sources and targets")
            if arg in ("--valid", "--test") and given:
                written.append(first := given.pop(0))
                if first.startswith("-"):
                    raise ConfigError(f"{arg} needs two aligned text files after it, or a file of pairs, such as TSV")
                if not holds_pairs(Path(first)) and given and not given[0].startswith("-"):
                    written += [arg, given.pop(0)]
                if given and may_follow(Path(first), Path(given[0])) and first not in bound:
                    raise ConfigError(
                        f"does {given[0]} belong to {arg}? Write {arg}={first} where it does not, and "
                        f"{arg}={first} {arg}={given[0]} where it does"
                    )
        return super().parse_args(ctx, written)


def corpus_settings(
    valid: list[Path] | None,
    test: list[Path] | None,
    src_field: str | None,
    tgt_field: str | None,
    src_lang: str | None,
    tgt_lang: str | None,
) -> list[str]:
    """Return the given corpus options in the form that `--set` takes."""
    sides = {"src_field": src_field, "tgt_field": tgt_field, "src_lang": src_lang, "tgt_lang": tgt_lang}
    return given_settings("corpus", {"valid": valid, "test": test, **sides})


def given_settings(section: str, given: Mapping[str, object]) -> list[str]:
    """Return the given fields of a section in the form that `--set` takes. None and empty lists mean "not given"."""
    values = {field: value for field, value in given.items() if value not in (None, [])}
    return [f"{section}.{field}={json.dumps(v, ensure_ascii=False, default=str)}" for field, v in values.items()]
