"""Commands that use a trained model: `repose translate`, `score`, `evaluate`."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

from typer import Argument, Option

from repose.cli import documents
from repose.cli.options import (
    BeamSize,
    Device,
    Engine,
    EngineChoice,
    Ensemble,
    LengthPenalty,
    ModelDir,
    NoRepeat,
    Precision,
    To,
    Workers,
)
from repose.system.errors import ConfigError, DataError
from repose.system.terminal import counted, quoted, reasons, say

if TYPE_CHECKING:
    from repose.decoding.stream import StreamCounts

_FIELD = "Field or column of the {}s in a file of pairs, or language in TMX (default: the run's)."


def translate(
    model: ModelDir,
    file: Annotated[Path | None, Argument(help="Text file with one sentence per line (default, or -: stdin).")] = None,
    out: Annotated[
        Path | None, Option("--out", "-o", help="File to write, whole or not at all (default, or -: stdout).")
    ] = None,
    beam_size: BeamSize = None,
    num_hypotheses: Annotated[
        int,
        Option(
            "--num-hypotheses",
            "-n",
            min=1,
            help="Hypotheses per line (widens the beam); several are printed as `line ||| text ||| score`.",
        ),
    ] = 1,
    length_penalty: LengthPenalty = None,
    no_repeat_ngram_size: NoRepeat = None,
    scores: Annotated[
        bool, Option(help="Put the log-probability (in nats) and a tab before each translation.")
    ] = False,
    to: To = None,
    ensemble: Ensemble = None,
    device: Device = "cpu",
    paragraphs: Annotated[
        bool,
        Option(help="For wrapped text: treat each paragraph, up to a blank line, as one line."),
    ] = False,
    workers: Workers = None,
    precision: Precision = None,
    engine: Engine = "auto",
) -> None:
    """Translate a file or stdin line by line, and print one translation for each line, in order.

    A line may hold several sentences, which are translated one by one.
    """
    from repose.data.input_warning import line_warning
    from repose.data.lines import check_file, opened, unpackable
    from repose.decoding.load import load
    from repose.decoding.stream import MAX_LINE_BYTES, StreamCounts, printed, translate_lines

    file = None if file == Path("-") else file
    counts, said, models = StreamCounts(), False, [model, *(ensemble or [])]
    search = {"beam_size": beam_size, "length_penalty": length_penalty, "no_repeat_ngram_size": no_repeat_ngram_size}
    how = {**search, "num_hypotheses": num_hypotheses, "to": to}
    _check_text(file, model)
    if paragraphs:
        if num_hypotheses > 1 or scores:
            raise ConfigError("--paragraphs gives one text: leave --num-hypotheses and --scores out")
        with _output(out, file) as output:
            documents.translate_paragraphs(
                models, file, output, {**search, "to": to}, device, workers, precision, engine
            )
        return
    if file is not None:
        check_file(file, again=False)
    with (
        _output(out, file) as output,
        load(models, device, workers, precision, engine) as translator,
        nullcontext() if file is None else unpackable(file),
        nullcontext(documents.stdin()) if file is None else opened(file) as source,
    ):
        documents.warn_of_model(translator)
        if file is None and source.isatty():
            say("type a sentence; Ctrl-D ends")
        for translation in translate_lines(translator, source, counts, **how):
            for line in printed(translation, counts.lines - 1, num_hypotheses=num_hypotheses, scores=scores):
                print(line, file=output)
            output.flush()
            if counts.unseen is not None and not said:
                say(line_warning(*counts.unseen))
                said = True
    _say_counts(counts, MAX_LINE_BYTES)


def _check_text(file: Path | None, model: Path) -> None:
    """Raises DataError and ConfigError for what has no lines to translate."""
    from repose.data.readers import holds_pairs

    if file is None:
        return
    if all(map(_exists, (file, model))) and file.is_dir() and model.is_file():
        raise ConfigError(f"{model} is a file and {file} a folder: the model comes first")
    if not _exists(file):
        command = f"echo '…' | repose translate {quoted(model)}"
        raise DataError(f"there is no file {file}: check the path; to translate a sentence, echo it, as in {command}")
    if holds_pairs(file):
        raise ConfigError(
            f"{file} is a {file.suffix} file, and each line here is one text: write the side to be translated into a "
            "text file (`repose bulk` takes a field of JSONL and Parquet)"
        )
    if file.suffix.lower() in ("", ".txt"):
        return
    from repose.documents.formats import FORMATS

    if file.suffix.lower() in FORMATS:
        command = f"repose translate-file {quoted(model)} {quoted(file)} OUT{file.suffix}"
        raise ConfigError(f"{file} is a {file.suffix} file, with more than text in it: translate it with `{command}`")


@contextmanager
def _output(out: Path | None, file: Path | None) -> Iterator[TextIO]:
    """Where translations go: stdout, or a file that is there when all is translated. Raises ConfigError for one that
    cannot be, or that is translated itself."""
    if out is None or out == Path("-"):
        yield sys.stdout
        return
    from repose.system.files import replacing_file

    if out.exists() and not out.is_file():
        raise ConfigError(f"{out} is not a file: name the file to write")
    with suppress(OSError):
        if os.path.samestat(out.stat(), os.fstat(0) if file is None else file.stat()):
            raise ConfigError(f"{out} is the text to translate: name another file to write")
    with replacing_file(out.resolve()) as temporary, temporary.open("w", encoding="utf-8", newline="") as output:
        yield output
    print(out)


def _exists(file: Path) -> bool:
    try:
        return file.exists()
    except OSError:  # too long for a file name
        return False


def _say_counts(counts: "StreamCounts", max_bytes: int) -> None:
    """Report lines that were split, cut or repaired."""
    lines = f"of {counted(counts.lines, 'line')}"
    if counts.too_long:
        say(f"{counts.too_long:,} {lines} {documents.SPLIT}")
    if counts.truncated:
        longer = f"{counts.truncated:,} {lines} {_were(counts.truncated)} longer than the model reads"
        say(f"{longer}, without a place to split {'it' if counts.truncated == 1 else 'them'}: cut")
    if counts.cut:
        say(f"{counts.cut:,} {lines} {_were(counts.cut)} longer than {max_bytes:,} bytes: no more of them was read")
    if counts.invalid:
        valid = f"{_were(counts.invalid)} not valid UTF-8 or UTF-16"
        say(f"{counts.invalid:,} {lines} {valid}: invalid bytes were replaced")


def _were(number: int) -> str:
    return "was" if number == 1 else "were"


def score(
    model: ModelDir,
    src: Annotated[Path, Argument(help="Source sentences, one per line.")],
    tgt: Annotated[Path, Argument(help="Target sentences, one per line.")],
    to: To = None,
    device: Device = "cpu",
    precision: Precision = None,
    engine: Engine = "auto",
) -> None:
    """Print the log-probability (in nats) of each target sentence given its source, or nan if a pair cannot be used."""
    from repose.data.input_warning import warnings_for_pairs
    from repose.data.readers import PairReader, holds_pairs
    from repose.decoding.load import load
    from repose.decoding.stream import StreamCounts, score_lines

    for file in (src, tgt):
        if holds_pairs(file):
            raise ConfigError(
                f"{file} is a {file.suffix} file, and each line here is one text: write each side into a text file"
            )
    counts, pairs = StreamCounts(), PairReader([src, tgt])
    translator = load(model, device, precision=precision, engine=engine)
    for warning in warnings_for_pairs(translator.config, (row for row in pairs.rows() if not isinstance(row, str)), to):
        say(warning.sentence)
    with translator.engine.undisturbed():
        for value in score_lines(translator, pairs.rows(), counts, to=to):
            print(f"{value:.4f}")
    if counts.dropped:
        number, of = sum(counts.dropped.values()), counted(counts.lines, "pair")
        say(f"{number:,} of {of} without a score ({reasons(counts.dropped)})")
    if counts.truncated:
        pairs_cut = f"{counts.truncated:,} of {counted(counts.lines, 'pair')}"
        say(f"{pairs_cut} had a source longer than the model reads: only its beginning was read")


def evaluate(
    model: ModelDir,
    files: Annotated[
        list[Path] | None,
        Argument(help="Source and reference files, or one file of pairs (default: the run's own test set)."),
    ] = None,
    split: Annotated[
        str | None,
        Option(
            help="Which of the run's sets to use: test (the default), valid, or another published set of its corpus, "
            "such as test_2017_flickr. For given files: their name (default: the first file's)."
        ),
    ] = None,
    beam_size: Annotated[
        list[int] | None, Option("--beam-size", "-b", help="Beam size. Can be repeated (default: 1 and the model's).")
    ] = None,
    to: To = None,
    ensemble: Ensemble = None,
    src_field: Annotated[str | None, Option(help=_FIELD.format("source"))] = None,
    tgt_field: Annotated[str | None, Option(help=_FIELD.format("target"))] = None,
    out: Annotated[Path | None, Option("--out", "-o", help="Folder for scores and translations.")] = None,
    tokenize: Annotated[
        str | None,
        Option(
            help="sacreBLEU's tokenizer for the target language (default: 13a; for languages written without spaces, "
            "zh for Chinese and char for others)."
        ),
    ] = None,
    every: Annotated[
        bool, Option("--all", help="Also show teacher-forced figures (tf_), which do not measure translation quality.")
    ] = False,
    device: Device = "cpu",
    workers: Workers = None,
    precision: Precision = None,
    engine: Annotated[
        EngineChoice | None, Option(help="As for repose translate (default: torch, or onnx for an export to ONNX).")
    ] = None,
) -> None:
    """Translate a test set and score the translations."""
    from repose.cli.tables import evaluation_table
    from repose.runs.api import evaluate as run_evaluate

    scores = run_evaluate(
        [model, *(ensemble or ())],
        files or None,
        split=split,
        beam_sizes=beam_size or (),
        to=to,
        src_field=src_field,
        tgt_field=tgt_field,
        out=out,
        tokenize=tokenize,
        device=device,
        workers=workers,
        precision=precision,
        engine=engine,
    )
    evaluation_table(scores, every=every)
