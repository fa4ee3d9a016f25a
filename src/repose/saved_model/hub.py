"""Models on a hub: `hf://owner/name@revision` instead of a folder, downloaded once to huggingface_hub's cache.

Only the files of a model directory are downloaded, by name: never code, nor anything else. They are read like any other
model directory, digests included. Without a network, models in the cache can still be used.

Environment: HF_ENDPOINT (another hub), HF_TOKEN (private models), HF_HOME (the cache), HF_HUB_OFFLINE.
"""

import os
import re
from pathlib import Path
from typing import Any

from repose.system.errors import CheckpointError, ConfigError, HubError, of_extra

FILES = (
    "config.json",
    "model.safetensors",
    "tokenizer.json",
    "tokenizer.src.json",
    "tokenizer.tgt.json",
    "README.md",
    "repose-onnx.json",
    "encoder.onnx",
    "step.onnx",
    "greedy.onnx",
    "beam.onnx",
)
"""Files to download, if present: those of a model directory or of an export to ONNX. Names instead of patterns, because
the hub's `*` also matches files in subfolders."""

_SCHEME = re.compile(r"^hf:(/{1,2}|$)")  # a pathlib.Path drops one of the two slashes
_NAME = re.compile(r"([\w.-]+/[\w.-]+)(?:@([\w./-]+))?", re.ASCII)


def is_on_hub(name: str | os.PathLike[str]) -> bool:
    """Return whether a user's "folder" names a model on a hub."""
    return bool(_SCHEME.match(_text(name)))


def local_folder(name: str | os.PathLike[str]) -> Path:
    """Return the folder for a user's path; a model on a hub is downloaded first.

    Raises ConfigError, HubError, and CheckpointError for a path that the system cannot open.
    """
    if not isinstance(name, str | os.PathLike):
        raise ConfigError(f"the folder of a model is {name!r}, but must be a path")
    if is_on_hub(name):
        return fetch(_text(name))
    folder = Path(name)
    try:
        folder.exists()
    except OSError as error:  # too long, or in a folder without permission
        raise CheckpointError(f"no model can be read from {str(folder)!r:.100}: {error.strerror}") from error
    return folder


def fetch(name: str) -> Path:
    """Return the cached folder of `hf://owner/name` or `hf://owner/name@revision`, downloading it if needed.

    Without a revision, the newest is used. Raises ConfigError for a malformed name, and without the extra `hub`;
    HubError if the hub has no such model or revision, refuses it, or cannot be reached and the cache does not have it.
    """
    bare = _SCHEME.sub("", name)
    form = f"hf://{bare} is not a model on a hub: write hf://owner/name, or hf://owner/name@revision"
    if (match := _NAME.fullmatch(bare)) is None:
        raise ConfigError(form)
    repo, revision = match.groups()
    with of_extra("hub", "models on a hub need huggingface_hub"):
        from huggingface_hub import constants, snapshot_download
        from huggingface_hub.errors import HFValidationError
    endpoint = os.environ.get("HF_ENDPOINT") or constants.ENDPOINT
    try:
        folder = snapshot_download(
            repo, revision=revision, allow_patterns=list(FILES), endpoint=endpoint, library_name="repose"
        )
    except HFValidationError as error:
        raise ConfigError(form) from error
    except Exception as error:
        raise HubError(_sentence(error, repo, revision, endpoint)) from error
    return Path(folder)


def is_inside(path: Path, folder: Path) -> bool:
    """Return whether a path of `folder` leads to a place inside it, whether or not a file is there; in a snapshot of
    the hub's cache, a link may also lead to the cache's store of file contents. Raises OSError, RuntimeError or
    ValueError for an impossible path."""
    path, folder = path.resolve(), folder.resolve()
    repository = folder.parent.parent
    is_snapshot = folder.parent.name == "snapshots" and repository.name.startswith("models--")
    return path.is_relative_to(folder) or (is_snapshot and path.parent == repository / "blobs")


def _text(name: str | os.PathLike[str]) -> str:
    return name if isinstance(name, str) else Path(name).as_posix()


def _sentence(error: Exception, repo: str, revision: str | None, endpoint: str) -> str:
    """Turn an error of huggingface_hub, which is a paragraph, into one sentence that says what to do."""
    from huggingface_hub import errors

    causes = _causes(error)
    what = repo if revision is None else f"{repo}@{revision}"

    def has(*kinds: Any) -> bool:
        return any(isinstance(cause, kinds) for cause in causes)

    if has(errors.GatedRepoError, errors.DisabledRepoError):
        return f"{endpoint} does not give {repo} to everyone: ask for access on its page, and set HF_TOKEN"
    if has(errors.RepositoryNotFoundError):
        return f"there is no model {repo} on {endpoint}, or it is private: check the name, or set HF_TOKEN"
    if has(errors.RevisionNotFoundError):
        return f"the model {repo} has no revision {revision}: name a branch, a tag or a commit of it, or none"
    if has(errors.HfHubHTTPError):
        statuses = (getattr(getattr(cause, "response", None), "status_code", None) for cause in causes)
        status = next(filter(None, statuses), "an error")
        return f"{endpoint} answered with {status} where {what} was asked for: try again later"
    if isinstance(error, OSError) and error.errno is not None:
        return f"{what} cannot be kept in the cache ({error.strerror}): make room, or set HF_HOME to another folder"
    return f"{endpoint} cannot be reached, and {what} is not completely in the cache: try again with a network"


def _causes(error: BaseException | None) -> list[BaseException]:
    chain: list[BaseException] = []
    while error is not None and error not in chain:
        chain.append(error)
        error = error.__cause__ or error.__context__
    return chain
