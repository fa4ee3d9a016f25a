"""`repose cache`: lists or removes files that can be made again."""

from pathlib import Path
from typing import Annotated

from typer import Argument, Option

from repose.system.errors import ConfigError, WriteError
from repose.system.terminal import counted, make_table, say, show

MB = 1_000_000


def cache(
    runs: Annotated[
        list[Path] | None, Argument(help="Finished runs: remove their state/, which is no longer needed.")
    ] = None,
    clear: Annotated[
        bool,
        Option("--clear", help="Remove prepared corpora and model graphs, which are made again when needed."),
    ] = False,
) -> None:
    """List prepared corpora and model graphs with their sizes, or remove them; fetched corpora stay."""
    from repose.data.corpora import prepared_home
    from repose.decoding.graph_cache import graphs_home
    from repose.tasks.cache import graphs, prepared_corpora, remove_graphs, remove_prepared, remove_state

    if runs and clear:
        raise ConfigError("--clear removes prepared corpora and graphs of all models: name runs, or give --clear")
    for run in runs or []:
        say(f"{run}: {remove_state(run) / MB:,.1f} MB of state removed")
    if runs:
        return
    prepared = prepared_corpora()
    if clear:
        removed, in_the_way = [], []
        for one in prepared:
            try:
                removed += [one] if remove_prepared(one) else []
            except WriteError as error:
                in_the_way.append(error)
        say(f"{sum(one.num_bytes for one in removed) / MB:,.1f} MB of {len(removed):,} prepared corpora removed")
        if in_use := len(prepared) - len(removed) - len(in_the_way):
            corpora = "prepared corpus stays, since it is" if in_use == 1 else "prepared corpora stay, since they are"
            say(f"{in_use:,} {corpora} in use")
        freed, num_in_use = remove_graphs()
        say(f"{freed / MB:,.1f} MB of graphs of models removed")
        if num_in_use:
            say(f"the graphs of {counted(num_in_use, 'model')} stay, since they are in use")
        if in_the_way:
            raise in_the_way[0]
        return
    rows = [(one.folder.name, f"{one.num_bytes / MB:,.1f}", f"{one.days:,.0f}", one.of, one.what) for one in prepared]
    if rows:
        show(make_table(("prepared corpus", "MB", "days old", "of", "what"), rows, right=[1, 2]))
    total, (models, size) = sum(one.num_bytes for one in prepared) / MB, graphs()
    show(
        f"{total:,.1f} MB of prepared corpora in {prepared_home()}",
        f"{size / MB:,.1f} MB of graphs of {counted(models, 'model')} in {graphs_home()}",
        "repose cache --clear removes both",
    )
