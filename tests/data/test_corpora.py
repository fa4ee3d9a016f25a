"""`repose.data.corpora` on artificial corpora from folders, archives and mirrors on the loopback interface."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import json
import multiprocessing
import tarfile
import threading
from collections.abc import Callable, Iterator, Mapping
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from repose.data import corpora
from repose.data.catalogue import ArchiveInfo, CorpusInfo, SplitInfo, TextInfo
from repose.system.errors import DataError

TRAIN_DE = b"ein Haus\nzwei B\xc3\xa4ume\ndrei Wege\n"
TRAIN_EN = b"one house\ntwo trees\nthree paths\n"
VALID_DE = b"vier Seen\n"
VALID_EN = b"four lakes\n"
PUBLISHED = {
    "data/toy/de.train": TRAIN_DE,
    "data/toy/en.train": TRAIN_EN,
    "data/toy/de.dev": VALID_DE,
    "data/toy/en.dev": VALID_EN,
}


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def text(language: str, path: str, content: bytes | None) -> TextInfo:
    """An entry whose size and checksum are known where `content` is given."""
    if content is None:
        return TextInfo(language=language, path=path)
    return TextInfo(language=language, path=path, num_bytes=len(content), sha256=sha256(content))


def corpus(
    *, mirrors: tuple[str, ...] = (), archive: ArchiveInfo | None = None, checksums: bool = False, ending: str = ""
) -> CorpusInfo:
    """A corpus of three train and one valid pairs."""
    known: Callable[[bytes], bytes | None] = (lambda content: content) if checksums else (lambda _: None)
    return CorpusInfo(
        name="toys/de_to_en",
        source="toys",
        title="Toys",
        homepage="https://example.org/toys",
        licence="none needed",
        tokenised=True,
        lowercased=False,
        mirrors=mirrors,
        archive=archive,
        pairs=(("de", "en"),),
        splits=(
            SplitInfo(
                name="train",
                num_pairs=3,
                texts=(
                    text("de", f"data/toy/de.train{ending}", known(TRAIN_DE)),
                    text("en", f"data/toy/en.train{ending}", known(TRAIN_EN)),
                ),
            ),
            SplitInfo(
                name="valid",
                num_pairs=1,
                texts=(
                    text("de", f"data/toy/de.dev{ending}", known(VALID_DE)),
                    text("en", f"data/toy/en.dev{ending}", known(VALID_EN)),
                ),
            ),
        ),
    )


def write_folder(folder: Path, files: Mapping[str, bytes]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
    return folder


def write_archive(path: Path, files: Mapping[str, bytes]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with tarfile.open(path, "w:gz") as tar:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
    return path


def archive_info(path: Path) -> ArchiveInfo:
    content = path.read_bytes()
    return ArchiveInfo(filename=path.name, num_bytes=len(content), sha256=sha256(content))


def assert_complete(folder: Path) -> None:
    """The four texts in their canonical places, and nothing but the manifest beside them."""
    expected = {"train.de": TRAIN_DE, "train.en": TRAIN_EN, "valid.de": VALID_DE, "valid.en": VALID_EN}
    manifest = {"corpus.json"}
    assert {path.name for path in folder.iterdir()} == expected.keys() | manifest
    for name, content in expected.items():
        assert (folder / name).read_bytes() == content


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("REPOSE_HOME", str(tmp_path / "home"))
    return tmp_path / "home"


class FolderServer(ThreadingHTTPServer):
    """Serves a folder and remembers the paths asked for."""

    daemon_threads = True

    def __init__(self, folder: Path) -> None:
        self.paths: list[str] = []
        self.folder = folder
        super().__init__(("127.0.0.1", 0), FolderHandler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}/"


class FolderHandler(SimpleHTTPRequestHandler):
    server: FolderServer

    def __init__(self, request: object, address: object, server: FolderServer) -> None:
        super().__init__(request, address, server, directory=str(server.folder))  # type: ignore[arg-type]

    def do_GET(self) -> None:
        self.server.paths.append(self.path)
        super().do_GET()

    def log_message(self, format: str, *args: object) -> None:
        """Silence."""


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[Path], FolderServer]]:
    """A function that serves a folder over HTTP until the end of the test."""
    monkeypatch.setenv("no_proxy", "*")
    running: list[tuple[FolderServer, threading.Thread]] = []

    def start(folder: Path) -> FolderServer:
        server = FolderServer(folder)
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        running.append((server, thread))
        return server

    yield start
    for server, thread in running:
        server.shutdown()
        thread.join()
        server.server_close()


# Where the cache lies


def test_the_cache_follows_the_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("REPOSE_HOME", raising=False)
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    assert corpora.cache_home() == tmp_path / ".cache" / "repose"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative/is/ignored")
    assert corpora.cache_home() == tmp_path / ".cache" / "repose"
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert corpora.cache_home() == tmp_path / "xdg" / "repose"
    monkeypatch.setenv("REPOSE_HOME", "~/mine")
    assert corpora.cache_home() == tmp_path / "mine"


def test_a_corpus_that_was_not_fetched_says_how_to() -> None:
    with pytest.raises(DataError, match=r"run `repose fetch ted_hrlr/pt_to_en`"):
        corpora.locate("ted_hrlr/pt_to_en")


def test_a_fetched_corpus_is_located(home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(corpora, "describe", lambda _name: corpus())
    folder = corpora.fetch_corpus(corpus(), source=write_folder(tmp_path / "copy", PUBLISHED))
    assert folder == home / "corpora" / "toys" / "de_to_en"
    assert corpora.locate("toys/de_to_en") == folder
    (folder / "train.en").write_bytes(b"cut\n")
    with pytest.raises(DataError, match="repose fetch"):
        corpora.locate("toys/de_to_en")


# From a copy that is already there


CANONICAL = {"train.de": TRAIN_DE, "train.en": TRAIN_EN, "valid.de": VALID_DE, "valid.en": VALID_EN}
LAYOUTS: dict[str, dict[str, bytes]] = {
    "published": PUBLISHED,
    "without-leading-folders": {name.removeprefix("data/"): content for name, content in PUBLISHED.items()},
    "only-file-names": {name.rpartition("/")[2]: content for name, content in PUBLISHED.items()},
    "canonical": CANONICAL,
    "compressed": {f"{name}.gz": gzip.compress(content) for name, content in PUBLISHED.items()},
    "canonical-compressed": {f"{name}.gz": gzip.compress(content) for name, content in CANONICAL.items()},
}


@pytest.mark.parametrize("ending", ["", ".gz"])
@pytest.mark.parametrize("checksums", [False, True])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_folder_is_imported_under_either_kind_of_names(
    tmp_path: Path, layout: str, checksums: bool, ending: str
) -> None:
    source = write_folder(tmp_path / "copy", LAYOUTS[layout])
    assert_complete(corpora.fetch_corpus(corpus(checksums=checksums, ending=ending), source=source))


@pytest.mark.parametrize("layout", LAYOUTS)
def test_an_archive_is_imported_whatever_folder_it_was_packed_from(tmp_path: Path, layout: str) -> None:
    files = {f"some-copy/{name}": content for name, content in LAYOUTS[layout].items()}
    source = write_archive(tmp_path / "copy.tgz", {**files, "some-copy/README": b"hello\n"})
    assert_complete(corpora.fetch_corpus(corpus(), source=source))


def test_a_folder_that_holds_the_archive_will_do(tmp_path: Path) -> None:
    source = write_archive(tmp_path / "copy" / "toys.tar.gz", PUBLISHED)
    info = corpus(archive=archive_info(source))
    folder = corpora.fetch_corpus(info, source=source.parent)
    assert_complete(folder)
    manifest = json.loads((folder / "corpus.json").read_text())
    assert manifest["files"]["train.de"]["source"] == str(source)


def test_the_manifest_tells_what_is_there_and_where_from(tmp_path: Path) -> None:
    source = write_folder(tmp_path / "copy", PUBLISHED)
    folder = corpora.fetch_corpus(corpus(), source=source)
    manifest = json.loads((folder / "corpus.json").read_text(encoding="utf-8"))
    assert manifest["name"] == "toys/de_to_en"
    assert manifest["licence"] == "none needed"
    assert manifest["tokenised"] is True
    assert manifest["dropped_empty_pairs"] == {"train": 0, "valid": 0}
    assert manifest["files"]["train.de"] == {
        "source": str(source / "data/toy/de.train"),
        "lines": 3,
        "bytes": len(TRAIN_DE),
        "sha256": sha256(TRAIN_DE),
    }


@pytest.mark.parametrize("packed", [False, True], ids=["folder", "archive"])
def test_pairs_with_an_empty_side_are_dropped_and_counted(tmp_path: Path, packed: bool) -> None:
    files = PUBLISHED | {
        "data/toy/de.train": b"ein Haus\n\nzwei B\xc3\xa4ume\nfehlt\ndrei Wege",
        "data/toy/en.train": b"one house\nmissing\ntwo trees\n\nthree paths\n",
    }
    source = write_archive(tmp_path / "t.tar.gz", files) if packed else write_folder(tmp_path / "copy", files)
    folder = corpora.fetch_corpus(corpus(), source=source)
    assert_complete(folder)
    manifest = json.loads((folder / "corpus.json").read_text())
    assert manifest["dropped_empty_pairs"] == {"train": 2, "valid": 0}
    assert manifest["files"]["train.de"]["lines"] == 3
    assert manifest["files"]["train.de"]["sha256"] == sha256(TRAIN_DE)
    assert corpora.fetch_corpus(corpus()) == folder, "what was rewritten counts as whole"


BAD_COPIES: dict[str, tuple[dict[str, bytes], str]] = {
    "one-pair-too-few": (
        {"data/toy/de.train": b"ein Haus\n", "data/toy/en.train": b"one house\n"},
        "train has 1 pairs .* instead of the published 3",
    ),
    "one-side-short": ({"data/toy/en.train": b"one house\n"}, "different numbers of lines .*de 3, en 1"),
    "not-utf-8": ({"data/toy/de.train": b"ein Haus\nzwei B\xe4ume\ndrei Wege\n"}, "not UTF-8"),
    "web-page": ({"data/toy/de.train": b"\n<!DOCTYPE html>\n<p>\n"}, "web page"),
    "cut-gz": ({"data/toy/de.train": gzip.compress(TRAIN_DE)[:-8]}, "cannot be unpacked"),
}


@pytest.mark.parametrize("case", BAD_COPIES)
@pytest.mark.parametrize("packed", [False, True], ids=["folder", "archive"])
def test_a_bad_copy_is_refused_and_leaves_nothing(home: Path, tmp_path: Path, case: str, packed: bool) -> None:
    changed, reason = BAD_COPIES[case]
    files = PUBLISHED | changed
    source = write_archive(tmp_path / "t.tar.gz", files) if packed else write_folder(tmp_path / "copy", files)
    with pytest.raises(DataError, match=reason) as failure:
        corpora.fetch_corpus(corpus(), source=source)
    assert "\n" not in str(failure.value)
    assert not list((home / "corpora" / "toys").iterdir())


def test_a_known_checksum_tells_another_text_of_the_same_size(tmp_path: Path) -> None:
    source = write_folder(tmp_path / "copy", PUBLISHED | {"data/toy/en.train": TRAIN_EN.upper()})
    with pytest.raises(DataError, match=r"train\.en is not the published text"):
        corpora.fetch_corpus(corpus(checksums=True), source=source)


def test_a_known_size_bounds_the_unpacking(tmp_path: Path) -> None:
    files = PUBLISHED | {"data/toy/en.train": gzip.compress(TRAIN_EN * 100_000)}
    with pytest.raises(DataError, match=f"more than the {len(TRAIN_EN)} bytes"):
        corpora.fetch_corpus(corpus(checksums=True), source=write_folder(tmp_path / "copy", files))


def test_a_copy_that_lacks_a_file_is_told_both_of_its_names(tmp_path: Path) -> None:
    files = {name: content for name, content in PUBLISHED.items() if not name.endswith("en.dev")}
    with pytest.raises(DataError, match=r"lacks en\.dev or valid\.en"):
        corpora.fetch_corpus(corpus(), source=write_folder(tmp_path / "copy", files))
    with pytest.raises(DataError, match=r"lacks en\.dev or valid\.en"):
        corpora.fetch_corpus(corpus(), source=write_archive(tmp_path / "copy.tgz", files))


def test_an_archive_with_two_fitting_files_is_not_guessed_at(tmp_path: Path) -> None:
    files = {f"{top}/{name}": content for name, content in CANONICAL.items() for top in ("a", "b")}
    with pytest.raises(DataError, match="holds 2 files called"):
        corpora.fetch_corpus(corpus(), source=write_archive(tmp_path / "copy.tgz", files))


def test_the_published_archive_is_checked_before_it_is_opened(tmp_path: Path) -> None:
    published = write_archive(tmp_path / "toys.tar.gz", PUBLISHED)
    info = corpus(archive=archive_info(published))
    published.write_bytes(published.read_bytes()[:-1] + b"\xff")
    with pytest.raises(DataError, match="SHA-256"):
        corpora.fetch_corpus(info, source=published)
    published.write_bytes(published.read_bytes()[:-1])
    with pytest.raises(DataError, match="bytes instead of"):
        corpora.fetch_corpus(info, source=published)


def test_a_hostile_archive_is_refused(tmp_path: Path) -> None:
    source = write_archive(tmp_path / "copy.tgz", {**PUBLISHED, "../../escaped": b"boo\n"})
    with pytest.raises(DataError, match="not safe to unpack"):
        corpora.fetch_corpus(corpus(), source=source)
    assert not list(tmp_path.rglob("escaped"))


def test_a_source_that_does_not_exist_or_is_no_archive_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        corpora.fetch_corpus(corpus(), source=tmp_path / "nowhere")
    (tmp_path / "note.txt").write_text("no archive")
    with pytest.raises(DataError, match="cannot be unpacked"):
        corpora.fetch_corpus(corpus(), source=tmp_path / "note.txt")


# From mirrors


Serve = Callable[[Path], FolderServer]


@pytest.mark.parametrize("ending", ["", ".gz"])
def test_single_files_are_fetched_once(home: Path, tmp_path: Path, serve: Serve, ending: str) -> None:
    compress = gzip.compress if ending else bytes
    server = serve(write_folder(tmp_path / "www", {f"{n}{ending}": compress(c) for n, c in PUBLISHED.items()}))
    info = corpus(mirrors=(server.url,), checksums=True, ending=ending)
    folder = corpora.fetch_corpus(info)
    assert_complete(folder)
    assert server.paths == [f"/{name}{ending}" for name in PUBLISHED]
    manifest = json.loads((folder / "corpus.json").read_text())
    assert manifest["files"]["valid.en"]["source"] == f"{server.url}data/toy/en.dev{ending}"
    assert corpora.fetch_corpus(info) == folder
    assert len(server.paths) == len(PUBLISHED)
    assert not (home / "downloads" / "toys").exists()


def test_an_archive_is_downloaded_once_for_all_of_its_corpora(tmp_path: Path, serve: Serve) -> None:
    archive = archive_info(write_archive(tmp_path / "www" / "toys.tar.gz", PUBLISHED))
    server = serve(tmp_path / "www")
    first = corpus(mirrors=(server.url,), archive=archive)
    second = dataclasses.replace(first, name="toys/other")
    for info in (first, second):
        folder = corpora.fetch_corpus(info)
        assert_complete(folder)
        manifest = json.loads((folder / "corpus.json").read_text())
        assert manifest["files"]["train.de"]["source"] == f"{server.url}toys.tar.gz"
    assert server.paths == ["/toys.tar.gz"]


def test_what_an_interrupted_fetch_got_is_not_fetched_again(tmp_path: Path, serve: Serve) -> None:
    www = write_folder(tmp_path / "www", PUBLISHED)
    (www / "data/toy/en.dev").unlink()
    server = serve(www)
    info = corpus(mirrors=(server.url,), checksums=True)
    with pytest.raises(DataError, match="HTTP 404"):
        corpora.fetch_corpus(info)
    (www / "data/toy/en.dev").write_bytes(VALID_EN)
    server.paths.clear()
    assert_complete(corpora.fetch_corpus(info))
    assert server.paths == ["/data/toy/en.dev"]


def test_when_no_mirror_answers_the_sentence_names_the_other_way(home: Path, tmp_path: Path, serve: Serve) -> None:
    (tmp_path / "www").mkdir()
    server = serve(tmp_path / "www")
    with pytest.raises(DataError) as failure:
        corpora.fetch_corpus(corpus(mirrors=(server.url, server.url)))
    message = str(failure.value)
    assert "`repose fetch toys/de_to_en --from PATH`" in message
    assert message.count("HTTP 404") == 2
    assert "\n" not in message
    assert not list((home / "corpora" / "toys").iterdir())


def test_a_mirror_with_the_wrong_text_gives_way_to_the_next(tmp_path: Path, serve: Serve) -> None:
    page = b"<html><body>This file has moved.</body></html>\n"
    wrong = serve(write_folder(tmp_path / "wrong", dict.fromkeys(PUBLISHED, page)))
    right = serve(write_folder(tmp_path / "right", PUBLISHED))
    folder = corpora.fetch_corpus(corpus(mirrors=(wrong.url, right.url)))
    assert_complete(folder)
    assert len(wrong.paths) == len(right.paths) == len(PUBLISHED)


def test_an_archive_of_unknown_checksum_is_judged_by_its_counts(tmp_path: Path, serve: Serve) -> None:
    short = PUBLISHED | {"data/toy/de.dev": b"a\nb\n", "data/toy/en.dev": b"a\nb\n"}
    write_archive(tmp_path / "wrong" / "toys.tar.gz", short)
    write_archive(tmp_path / "right" / "toys.tar.gz", PUBLISHED)
    wrong, right = serve(tmp_path / "wrong"), serve(tmp_path / "right")
    info = corpus(archive=ArchiveInfo(filename="toys.tar.gz"), mirrors=(wrong.url, right.url))
    assert_complete(corpora.fetch_corpus(info))
    assert right.paths == ["/toys.tar.gz"]


def test_texts_of_unknown_checksum_must_fit_together(home: Path, tmp_path: Path, serve: Serve) -> None:
    server = serve(write_folder(tmp_path / "www", PUBLISHED | {"data/toy/en.dev": b"a\nb\n"}))
    with pytest.raises(DataError, match="different numbers of lines"):
        corpora.fetch_corpus(corpus(mirrors=(server.url,)))
    assert not list((home / "corpora" / "toys").iterdir())


# The cache


def set_in_manifest(folder: Path, key: str, value: object) -> None:
    path = folder / "corpus.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {key: value}))


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: (folder / "train.de").unlink(),
        lambda folder: (folder / "train.de").write_bytes(b"cut"),
        lambda folder: (folder / "corpus.json").unlink(),
        lambda folder: (folder / "corpus.json").write_text("{"),
        lambda folder: set_in_manifest(folder, "format_version", 0),
        lambda folder: set_in_manifest(folder, "name", "toys/other"),
        lambda folder: (folder / "corpus.json").write_text("[1, 2]"),
    ],
    ids=["text-gone", "text-cut", "manifest-gone", "manifest-cut", "old-format", "other-name", "no-table"],
)
def test_a_damaged_corpus_is_fetched_anew(tmp_path: Path, damage: Callable[[Path], None]) -> None:
    source = write_folder(tmp_path / "copy", PUBLISHED)
    folder = corpora.fetch_corpus(corpus(), source=source)
    damage(folder)
    corpora.fetch_corpus(corpus(), source=source)
    assert_complete(folder)
    manifest = json.loads((folder / "corpus.json").read_text())
    assert (manifest["format_version"], manifest["name"]) == (1, "toys/de_to_en")


def test_what_a_killed_process_left_is_swept_away(home: Path, tmp_path: Path) -> None:
    left_over = home / "corpora" / "toys" / ".de_to_en.new"
    left_over.mkdir(parents=True)
    (left_over / "train.de").write_bytes(b"half a ")
    corpora.fetch_corpus(corpus(), source=write_folder(tmp_path / "copy", PUBLISHED))
    assert_complete(home / "corpora" / "toys" / "de_to_en")
    assert not left_over.exists()


def test_a_home_that_cannot_be_written_is_one_sentence(home: Path) -> None:
    home.write_text("a file where a folder should be")
    with pytest.raises(DataError, match="set REPOSE_HOME to another folder"):
        corpora.fetch_corpus(corpus())


def test_processes_that_fetch_at_once_download_once(home: Path, tmp_path: Path, serve: Serve) -> None:
    archive = archive_info(write_archive(tmp_path / "www" / "toys.tar.gz", PUBLISHED))
    server = serve(tmp_path / "www")
    info = corpus(mirrors=(server.url,), archive=archive)
    context = multiprocessing.get_context("spawn")
    processes = [context.Process(target=corpora.fetch_corpus, args=(info,)) for _ in range(3)]
    for process in processes:
        process.start()
    for process in processes:
        process.join()
    assert [process.exitcode for process in processes] == [0, 0, 0]
    assert_complete(home / "corpora" / "toys" / "de_to_en")
    assert server.paths == ["/toys.tar.gz"]


def test_a_fetch_waits_for_another_and_says_so(home: Path, tmp_path: Path) -> None:
    """Two threads: locks belong to open files, so that threads exclude each other as processes do."""
    source = write_folder(tmp_path / "copy", PUBLISHED)
    first_may_go_on, second_waits = threading.Event(), threading.Event()
    heard: list[str] = []

    class Slow(type(source)):  # type: ignore[misc]
        """A path whose first use lets the other fetch start, and then waits for it to wait."""

        def is_dir(self) -> bool:
            first_may_go_on.set()
            assert second_waits.wait(10)
            return bool(super().is_dir())

    def hear(name: str, _done: int, _total: int | None) -> None:
        heard.append(name)
        second_waits.set()

    def second() -> None:
        assert first_may_go_on.wait(10)
        corpora.fetch_corpus(corpus(), source=source, progress=hear)

    thread = threading.Thread(target=second)
    thread.start()
    corpora.fetch_corpus(corpus(), source=Slow(source))
    thread.join()
    assert heard == ["waiting for another process that fetches toys"]
    assert_complete(home / "corpora" / "toys" / "de_to_en")
