"""Back-translation (Sennrich et al. 2016, arXiv 1511.06709): make training pairs from text in the target language.

A model for the opposite direction writes the sources; people wrote the targets. Lines that give no useful pair are left
out and counted.
"""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path

from repose.data.input_warning import InputWarning, warning_for
from repose.data.lines import LineReader, check_file, on_one_line
from repose.data.pairs import write_pairs
from repose.data.readers import holds_pairs
from repose.decoding.sampling import Sampling
from repose.decoding.translator import Translation, Translator
from repose.evaluation.looping import loops
from repose.system.errors import ConfigError, DataError
from repose.system.terminal import reasons

_WINDOW = 1024
"""Lines per process that are translated together."""
_MAX_LINE_BYTES = 1 << 16


@dataclass
class BackTranslated:
    """The result of back-translating a text."""

    lines: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    """Number of lines left out, by reason."""
    warning: InputWarning | None = None
    """A warning if the first lines are not what the model reads."""

    @property
    def pairs(self) -> int:
        """Number of pairs written."""
        return self.lines - self.dropped.total()


def back_translate(
    translator: Translator,
    text: Path,
    out: Path,
    *,
    sampling: Sampling | None,
    beam_size: int | None = None,
    to: str | None = None,
) -> BackTranslated:
    """Translate the lines of `text`; write the translations to OUT.src and the lines to OUT.tgt, completely or not at
    all.

    `sampling`: sample translations instead of searching with `beam_size`. Raises DataError for a text that cannot be
    read or gives no pair, ConfigError for settings out of range and for existing files, and WriteError.
    """
    check_file(text)
    if holds_pairs(text):
        raise ConfigError(
            f"{text} is a {text.suffix} file, and each line here is one text: write the texts into a plain file"
        )
    counts = BackTranslated()
    if not out.name:
        raise ConfigError(f"--out {out} is a folder: add the name of the two files to it")
    for path in (out.with_name(f"{out.name}.{side}") for side in ("src", "tgt")):
        if path.exists():
            raise ConfigError(f"{path} exists already: remove it, or name another --out")
    write_pairs(out.parent, out.name, _pairs(translator, text, counts, sampling, beam_size, to))
    return counts


def _pairs(
    translator: Translator,
    text: Path,
    counts: BackTranslated,
    sampling: Sampling | None,
    beam_size: int | None,
    to: str | None,
) -> Iterator[tuple[str, str]]:
    remaining = iter(LineReader(text, _MAX_LINE_BYTES))
    while window := list(islice(remaining, _WINDOW * translator.workers)):
        first, kept = counts.lines, {}
        for place, line in enumerate(window):
            counts.lines += 1
            if line is None:
                counts.dropped[f"line longer than {_MAX_LINE_BYTES:,} bytes"] += 1
            elif not line.strip():
                counts.dropped["blank line"] += 1
            elif "\0" in line:
                counts.dropped["NUL character"] += 1
            else:
                kept[place] = line
        # Blank lines are translated, too, so that line numbers are those of the file.
        lines = [kept.get(place, "") for place in range(len(window))]
        if first == 0:
            counts.warning = warning_for(translator.config, lines, to)
        drawing = None if sampling is None else sampling._replace(first=first)
        translations = translator.translate(lines, beam_size=beam_size, sampling=drawing, to=to)
        for place, line in kept.items():
            if (reason := _problem(translations[place])) is None:
                yield _one_line(translations[place].text), line
            else:
                counts.dropped[reason] += 1
    if counts.pairs == 0:
        why = reasons(counts.dropped) or "it is empty"
        raise DataError(f"{text} gives no pair ({why}): check the file and the model")


def _problem(translation: Translation) -> str | None:
    """Return why a translation is unusable as a source; None if it is usable."""
    if translation.truncated:
        return "longer than the model reads"
    if not _one_line(translation.text).strip():
        return "translation empty"
    if not translation.hypotheses[0].finished:
        return "translation without an end"
    return "translation loops" if loops(translation.text) else None


def _one_line(text: str) -> str:
    return on_one_line(text.replace("\0", " "))
