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
        help="Use a named architecture (see `repose presets`). One other than the recipe's sets its own dropout.",
    ),
]
Overrides = Annotated[list[str] | None, change("one setting")]
Valid = Annotated[
    list[Path] | None,
    Option(
        "--valid", metavar="SRC TGT", help="Validation pairs, in files like the corpus's (default: part of the corpus)."
    ),
]
Test = Annotated[list[Path] | None, Option("--test", metavar="SRC TGT", help="Test pairs (as --valid).")]
SrcField = Annotated[
    str | None,
    Option(
        help="Where sources are in a file of pairs: name or number of a column, name of a field, or language in TMX."
    ),
]
TgtField = Annotated[str | None, Option(help="Where targets are, likewise.")]
SrcLang = Annotated[
    str | None, Option(help="Source language: a code such as pt, or its English name, if file names do not show it.")
]
TgtLang = Annotated[str | None, Option(help="Target language, likewise.")]
Synthetic = Annotated[
    tuple[Path, Path] | None,
    Option(metavar="SRC TGT", help="More training pairs, whose sources were written by `repose backtranslate`."),
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


def with_overrides(plain: list[str], overrides: list[str] | None) -> list[str]:
    """Return the settings of options (`plain`) and those of `--set`. Raises ConfigError for a setting that both give;
    of two `--set`, the last one counts."""
    set_there = {text.partition("=")[0].strip() for text in overrides or []}
    for name in (text.partition("=")[0] for text in plain):
        if name in set_there:
            option = "minutes" if name == "training.max_hours" else name.partition(".")[2].replace("_", "-")
            raise ConfigError(f"--{option} and --set {name} say the same setting: give one of them")
    return [*plain, *(overrides or [])]
