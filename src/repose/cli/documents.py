"""`repose translate-file`, which keeps markup, and the option `--paragraphs` of `repose translate`."""

import sys
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, TextIO

from typer import Argument, Option

from repose.cli.options import (
    BeamSize,
    Device,
    Engine,
    EngineChoice,
    LengthPenalty,
    ModelDir,
    NoRepeat,
    Precision,
    PrecisionName,
    To,
    Workers,
)
from repose.system.errors import ConfigError, DataError, ReposeError
from repose.system.terminal import counted, say

if TYPE_CHECKING:
    from repose.decoding.translator import Translator
    from repose.documents.segment import Document


SPLIT = "had a sentence longer than almost all that the model was trained on: it was translated in parts"
"""Follows a number of lines or paragraphs in a message."""


def translate_file(
    model: ModelDir,
    source: Annotated[
        Path, Argument(help="A .txt, .html, .srt, .vtt, .docx, .pptx, .odt, .odp, .ods or .epub file to translate.")
    ],
    target: Annotated[Path, Argument(help="File to write the translation to, with the same suffix.")],
    force: Annotated[bool, Option("--force", help="Overwrite an existing file.")] = False,
    paragraphs: Annotated[
        bool, Option(help="For wrapped .txt: treat each paragraph, up to a blank line, as one line.")
    ] = False,
    beam_size: BeamSize = None,
    length_penalty: LengthPenalty = None,
    no_repeat_ngram_size: NoRepeat = None,
    to: To = None,
    device: Device = "cpu",
    workers: Workers = None,
    precision: Precision = None,
    engine: Engine = "auto",
) -> None:
    """Translate a file and keep its formatting: tags, timings, tables, notes, bold and links."""
    target = target.resolve() if target.is_symlink() else target
    for path, what in ((source, "translate"), (target, "write")):
        if path.is_dir():
            raise ConfigError(f"{path} is a folder: name the file to {what}")
    if source.suffix.lower() != target.suffix.lower():
        raise ConfigError(f"{target} must end in {source.suffix!r} like {source}: formats are not converted")
    if target.exists() and not force:
        raise ConfigError(f"{target} already exists: choose another name, or --force")
    from repose.data.lines import check_file
    from repose.decoding.load import load
    from repose.documents.formats import read_document
    from repose.system.files import read_file, write_file

    how = {"beam_size": beam_size, "length_penalty": length_penalty, "no_repeat_ngram_size": no_repeat_ngram_size}
    check_file(source)
    try:
        document = read_document(read_file(source), source.suffix, paragraphs=paragraphs)
    except DataError as error:
        raise DataError(f"{source} cannot be translated: {error}") from error
    with load(model, device, workers, precision, engine) as translator:
        write_file(target, _translated(translator, document, {**how, "to": to}))
    print(target)


def translate_paragraphs(
    model: Path | Sequence[Path],
    file: Path | None,
    output: TextIO,
    how: dict[str, Any],
    device: str,
    workers: int | None,
    precision: PrecisionName | None,
    engine: EngineChoice,
) -> None:
    """Run `repose translate --paragraphs`: translate a text from a file or stdin."""
    from repose.data.lines import check_file, opened, unpackable
    from repose.decoding.load import load
    from repose.documents.encodings import Encoded
    from repose.documents.formats import read_document

    if file is None:
        data = stdin().read()
    else:
        check_file(file, again=False)
        with unpackable(file), opened(file) as source:
            data = source.read()
    try:
        document = read_document(data, ".txt", paragraphs=True)
    except DataError:
        if data.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
            raise
        document = read_document(_mended(data), ".txt", paragraphs=True)
    assert isinstance(document, Encoded)
    with load(model, device, workers, precision, engine) as translator:
        output.write(document.decoded(_translated(translator, document, how)))
        output.flush()


def _mended(data: bytes) -> bytes:
    """Replace invalid bytes of a text, as `repose translate` does without --paragraphs."""
    lines = data.split(b"\n")
    mended = [line.decode(errors="replace").encode() for line in lines]
    invalid = sum(line != before for line, before in zip(mended, lines, strict=True))
    say(f"{counted(invalid, 'line')} not in UTF-8: invalid bytes were replaced")
    return b"\n".join(mended)


def stdin() -> BinaryIO:
    """Return standard input. Raises ConfigError if the caller has closed it."""
    if sys.stdin is None:
        raise ConfigError("there is no standard input: name a file")
    return sys.stdin.buffer


def warn_of_model(translator: "Translator") -> None:
    """Warn if the model sees the tokens that it should predict, so that it cannot translate; if its training has not
    finished; or if torch translates, which is slower, and why."""
    from repose.decoding.translator import LOOKS_AHEAD
    from repose.saved_model.directory import locate

    if translator.folder is not None:
        with suppress(ReposeError):  # files may have been removed since they were loaded
            model = locate(translator.folder)
            if (model.parent / "state").is_dir():  # it may be the model of a run
                from repose.saved_run.folder import unfinished

                if (early := unfinished(model)) is not None:
                    say(early)
    if translator.engine.looks_ahead:
        say(LOOKS_AHEAD)
    if translator.why_torch is not None:
        say(f"torch translates, which is slower than ONNX Runtime: {translator.why_torch}")


def _translated(translator: "Translator", document: "Document", how: dict[str, Any]) -> bytes:
    from repose.data.input_warning import warning_for
    from repose.documents.job import Job, Reader, translate_document

    warn_of_model(translator)
    job = Job(document, Reader.of(translator, how.get("to")))
    if (warning := warning_for(translator.config, job.sentences, how.get("to"))) is not None:
        say(warning.sentence)
    data, cut = translate_document(translator, job, **how)
    if job.too_long:
        number = f"{job.too_long:,} of {counted(len(document.segments), 'paragraph')}"
        say(f"{number} {SPLIT}")
    if cut:
        say(f"cut: {counted(cut, 'sentence')} longer than the model reads, without a place to split")
    return data
