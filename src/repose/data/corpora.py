"""Published corpora by name: fetched once, checked, and cached as plain text.

A corpus is stored in `<home>/corpora/<name>/` as files `<split>.<language>`: uncompressed UTF-8, one sentence per line,
the languages of a split aligned line by line. The splits are called train, valid and test, except that the test sets of
Multi30k keep their published names. `corpus.json` in the same folder records the source of each text, its licence,
size, number of lines and SHA-256, and how many pairs were dropped because a side was empty. The folder appears whole or
not at all. `<home>/downloads` keeps archives that several corpora share, and interrupted downloads.
"""

import json
import os
import shutil
from pathlib import Path

from repose.data.catalogue import CorpusInfo, describe, names
from repose.data.corpus_build import FORMAT_VERSION, MANIFEST, CorpusBuilder, texts_of
from repose.data.download import Progress
from repose.system.errors import DataError, WriteError
from repose.system.files import replacing_folder
from repose.system.locks import locked

__all__ = ["cache_home", "describe", "fetch_corpus", "locate", "names", "prepared_home"]


def cache_home() -> Path:
    """Return the cache folder: `$REPOSE_HOME`, or `repose` in the user's cache (XDG Base Directory specification)."""
    if home := os.environ.get("REPOSE_HOME"):
        return Path(home).expanduser().absolute()
    # The specification says that relative values are ignored.
    cache = Path(os.environ.get("XDG_CACHE_HOME", ""))
    return (cache if cache.is_absolute() else Path.home() / ".cache") / "repose"


def prepared_home() -> Path:
    """Return the folder of prepared corpora in the cache. Each corpus has a folder named by its key."""
    return cache_home() / "prepared"


def locate(name: str) -> Path:
    """Return the folder of a fetched corpus.

    Raises DataError, which says how to fetch it, if it is missing or incomplete.
    """
    info = describe(name)
    if not is_there(info):
        raise DataError(f"corpus {name} is not in {_folder(info)}: run `repose fetch {name}`")
    return _folder(info)


def fetch_corpus(info: CorpusInfo, *, source: Path | None = None, progress: Progress | None = None) -> Path:
    """Fetch a corpus from its mirrors, or from a local archive or folder `source`, and return its folder.

    Both are checked alike. A corpus that is already in the cache is left as it is. `progress` is called with the file's
    name, the bytes so far and the bytes in all (None: unknown). Raises DataError, which says what to do instead, if the
    corpus cannot be fetched.
    """
    home = cache_home()
    folder, downloads = _folder(info), home / "downloads" / info.source

    def say_waiting() -> None:
        if progress is not None:
            progress(f"waiting for another process that fetches {info.source}", 0, None)

    try:
        # Without file locks, two fetches may disturb each other, but what they put in place is checked and complete.
        with locked(home / "locks" / f"{info.source}.lock", on_wait=say_waiting):
            if not is_there(info):
                with replacing_folder(folder) as staging:
                    builder = CorpusBuilder(info, staging)
                    if source is None:
                        builder.download_from_mirrors(downloads, progress)
                    else:
                        builder.import_from(source)
                    builder.write_manifest()
                if info.archive is None:
                    shutil.rmtree(downloads, ignore_errors=True)
    except (OSError, WriteError) as error:
        cause = error if isinstance(error, OSError) else error.__cause__
        assert isinstance(cause, OSError)
        raise DataError(
            f"fetching {info.name} failed at {cause.filename or home} ({cause.strerror or cause}): "
            "check that there is room and permission, or set REPOSE_HOME to another folder"
        ) from error
    return folder


def _folder(info: CorpusInfo) -> Path:
    return cache_home() / "corpora" / info.name


def is_there(info: CorpusInfo) -> bool:
    """Return whether the cache holds every text of the corpus at the size recorded in its manifest."""
    folder = _folder(info)
    try:
        manifest = json.loads((folder / MANIFEST).read_text(encoding="utf-8"))
        if manifest["format_version"] != FORMAT_VERSION or manifest["name"] != info.name:
            return False
        return all((folder / name).stat().st_size == manifest["files"][name]["bytes"] for name in texts_of(info))
    except (OSError, ValueError, LookupError, TypeError):
        return False
