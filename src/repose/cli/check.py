"""The verb that looks at a corpus before it is trained on: `repose check`."""

from itertools import groupby

from repose.cli.training import Config, Files, Overrides, Synthetic, Test, Valid, given_settings
from repose.system.errors import ConfigError
from repose.system.terminal import make_table, printable, show


def check(
    files: Files = None,
    config: Config = None,
    valid: Valid = None,
    test: Test = None,
    synthetic: Synthetic = None,
    overrides: Overrides = None,
) -> None:
    """Look for what would spoil a model or its scores in a parallel corpus: where it is, and what to do about it."""
    from rich.text import Text

    from repose.config.experiment import TASK_SETTINGS
    from repose.data import advice
    from repose.data.check import MAX_PAIRS
    from repose.runs.asked import loaded_experiment
    from repose.tasks.corpus_files import check_files, is_pretokenized, with_languages

    sets = given_settings(corpus__valid=valid, corpus__test=test)
    given = [*sets, *(overrides or [])]
    experiment = loaded_experiment(files, config, None, given, synthetic=synthetic, by_size=False).experiment
    if not TASK_SETTINGS[experiment.training.task].translates:
        raise ConfigError(f"repose check reads sentence pairs, not what {experiment.training.task} trains on")
    found = check_files(experiment.corpus)
    if not found.looked_at:
        raise ConfigError(f"the corpus {experiment.corpus.name!r} ships with repose: there are no files to check")
    first = f" (of each set the first {MAX_PAIRS:,})" if MAX_PAIRS in found.looked_at.values() else ""
    corpus = with_languages(experiment).corpus
    direction = "" if corpus == experiment.corpus else f", {corpus.src_lang} → {corpus.tgt_lang}"
    looked_at, few = f"{advice.sizes(found)}{first}{direction}", advice.too_few(found.trained_on)
    if few is not None:
        show(few)
    if not found.findings:
        show(f"{looked_at}: no {'' if few is None else 'other '}problems found")
        return
    pretokenized, rows = is_pretokenized(experiment.corpus), []
    for what, same in groupby(advice.by_kind(found), key=advice.what):
        alike = list(same)
        places = Text("\n").join(Text(printable(advice.where(finding))) for finding in alike)
        rows.append((what, places, advice.what_to_do(alike[0], pretokenized=pretokenized)))
    show(make_table(("found", "where, and the first line", "what to do"), rows, lines=True), looked_at)
