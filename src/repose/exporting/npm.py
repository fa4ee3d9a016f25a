"""Fetch files of npm packages, which a web page needs besides the model, once, and keep them in the cache.

Versions are pinned, and each file must have the SHA-256 given here.
"""

import contextlib
import hashlib
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from repose.data.corpora import cache_home
from repose.system.errors import ConfigError, DataError
from repose.system.files import replacing_folder
from repose.system.locks import locked, making_lock

_SECONDS = 600


@dataclass(frozen=True)
class Package:
    """An npm package and the files needed from it."""

    name: str
    version: str
    files: Mapping[str, str]
    """Maps paths within the package to SHA-256."""

    @property
    def folder_name(self) -> str:
        """Its name and version, without characters that file systems may not allow."""
        return f"{self.name.lstrip('@').replace('/', '-')}-{self.version}"


RUNTIME = Package(
    "onnxruntime-web",
    "1.30.0",
    {
        "dist/ort.wasm.bundle.min.mjs": "11e64bd8ffe11bd1a2a2f0d6275fdfbbba7262f0b76b99b53d228a8a22ef3d90",
        "dist/ort-wasm-simd-threaded.wasm": "3398c10d07d229bd91b364548e130e0e51a8e5704b88c7c083ebbeb78842dee2",
    },
)
TOKENIZERS = Package(
    "@huggingface/tokenizers",
    "0.2.0",
    {
        "dist/tokenizers.min.mjs": "258e46332101335ce8d95aed7745b19ac3b46d37f3e159a89cf894c2ea9b1d3a",
        "LICENSE": "c71d239df91726fc519c6eb72d318ec65820627232b2f796219e87dcf35d0ab4",
    },
)


def files_of(package: Package) -> dict[str, bytes]:
    """Return the package's files by their path within it, from the cache or fetched by npm.

    Raises ConfigError if npm is needed and missing, DataError if npm cannot fetch the files or fetches different ones.
    """
    place = cache_home() / "npm" / package.folder_name
    with locked(making_lock(place)):
        if (kept := _kept(package, place)) is not None:
            return kept
        fetched = _fetched(package)
        with replacing_folder(place) as temporary:
            for name, data in fetched.items():
                (temporary / name).parent.mkdir(parents=True, exist_ok=True)
                (temporary / name).write_bytes(data)
    return fetched


def _kept(package: Package, place: Path) -> dict[str, bytes] | None:
    try:
        files = {name: (place / name).read_bytes() for name in package.files}
    except OSError:
        return None
    return files if _is_right(package, files) else None


def _is_right(package: Package, files: Mapping[str, bytes]) -> bool:
    return {name: hashlib.sha256(data).hexdigest() for name, data in files.items()} == package.files


def _fetched(package: Package) -> dict[str, bytes]:
    what = f"{package.name} {package.version}"
    npm = shutil.which("npm")
    if npm is None:
        raise ConfigError(f"a web page needs {what}, which npm fetches once: install Node.js with npm")
    with tempfile.TemporaryDirectory() as scratch:
        command = [npm, "pack", "--silent", "--ignore-scripts", f"{package.name}@{package.version}"]
        try:
            subprocess.run(command, cwd=scratch, check=True, capture_output=True, timeout=_SECONDS)
            (archive,) = Path(scratch).glob("*.tgz")
        except (subprocess.SubprocessError, OSError, ValueError) as error:
            raise DataError(f"npm cannot fetch {what}, which a web page needs: try again with a network") from error
        files = {}
        with contextlib.suppress(tarfile.TarError, KeyError, OSError, EOFError), tarfile.open(archive) as packed:
            for name in package.files:
                if (member := packed.extractfile(f"package/{name}")) is not None:
                    files[name] = member.read()
    if not _is_right(package, files):
        raise DataError(f"npm fetched something other than {what}: check where it fetches from")
    return files
