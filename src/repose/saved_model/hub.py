"""Models on a hub: `hf://owner/name@revision` instead of a folder, fetched once into huggingface_hub's own cache.

Only the files of a model directory are fetched, by their names: never code, and nothing of what else lies there. What
was fetched is read as any other model directory, digests included. Without a network the cache serves what it has.

Environment: HF_ENDPOINT (another hub), HF_TOKEN (private models), HF_HOME (the cache), HF_HUB_OFFLINE.
"""

import os
import re
from pathlib import Path
from typing import Any

from repose.system.errors import CheckpointError, ConfigError, HubError, MissingExtraError

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
"""What is fetched, where it is there: a model directory, or an export of one to ONNX. Names, not patterns: the hub's
`*` goes into folders too."""

_SCHEME = re.compile(r"^hf:(/{1,2}|$)")  # a pathlib.Path has lost one of the two
_NAME = re.compile(r"([\w.-]+/[\w.-]+)(?:@([\w./-]+))?", re.ASCII)


def is_on_hub(name: str | os.PathLike[str]) -> bool:
    """Whether a user's "folder" is the name of a model on a hub."""
    return bool(_SCHEME.match(_text(name)))


def local_folder(name: str | os.PathLike[str]) -> Path:
    """The folder that a user's path means; what is on a hub is fetched first.

    Raises ConfigError and HubError, and CheckpointError for a path that the system does not look for.
    """
    if not isinstance(name, str | os.PathLike):
        raise ConfigError(f"the folder of a model is {name!r}, but must be a path")
    if is_on_hub(name):
        return fetch(_text(name))
    folder = Path(name)
    try:
        folder.exists()
    except OSError as error:  # too long, or within a folder that may not be read
        raise CheckpointError(f"no model can be read from {str(folder)!r:.100}: {error.strerror}") from error
    return folder


def fetch(name: str) -> Path:
    """The folder of `hf://owner/name` or `hf://owner/name@revision` in the cache, fetched where it is not there.

    Without a revision it is the newest. Raises ConfigError for another form and without the extra `hub`; HubError where
    the hub has no such model or revision, does not give it, or cannot be reached and the cache does not have it.
    """
    match = _NAME.fullmatch(_SCHEME.sub("", name))
    form = f"hf://{_SCHEME.sub('', name)} is no model on a hub: write hf://owner/name, or hf://owner/name@revision"
    if match is None:
        raise ConfigError(form)
    repo, revision = match.groups()
    try:
        from huggingface_hub import constants, snapshot_download
        from huggingface_hub.errors import HFValidationError
    except ImportError as error:
        raise MissingExtraError("models on a hub need huggingface_hub: pip install 'repose-nmt[hub]'") from error
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


def is_blob(path: Path, folder: Path) -> bool:
    """Whether a link in `folder`, a snapshot of the hub's cache, leads to where the cache keeps contents of files."""
    repository = folder.resolve().parent.parent
    return (
        folder.resolve().parent.name == "snapshots"
        and repository.name.startswith("models--")
        and path.resolve().parent == repository / "blobs"
    )


def _text(name: str | os.PathLike[str]) -> str:
    return name if isinstance(name, str) else Path(name).as_posix()


def _sentence(error: Exception, repo: str, revision: str | None, endpoint: str) -> str:
    """What a user can do about an error of huggingface_hub's, whose own texts are paragraphs."""
    from huggingface_hub import errors

    causes = _causes(error)
    what = repo if revision is None else f"{repo}@{revision}"

    def has(*kinds: Any) -> bool:
        return any(isinstance(cause, kinds) for cause in causes)

    if has(errors.GatedRepoError, errors.DisabledRepoError):
        return f"{endpoint} does not give {repo} to everybody: ask for access on its page, and set HF_TOKEN"
    if has(errors.RepositoryNotFoundError):
        return f"there is no model {repo} on {endpoint}, or it is private: check the name, or set HF_TOKEN"
    if has(errors.RevisionNotFoundError):
        return f"the model {repo} has no revision {revision}: name a branch, a tag or a commit of it, or none"
    if has(errors.HfHubHTTPError):
        status = next((code for cause in causes if (code := _status(cause)) is not None), "an error")
        return f"{endpoint} answered with {status} where {what} was asked for: try again later"
    if isinstance(error, OSError) and error.errno is not None:
        return f"{what} cannot be kept in the cache ({error.strerror}): make room, or set HF_HOME to another folder"
    return f"{endpoint} cannot be reached, and {what} is not whole in the cache: try again with a network"


def _causes(error: BaseException | None) -> list[BaseException]:
    chain: list[BaseException] = []
    while error is not None and error not in chain:
        chain.append(error)
        error = error.__cause__ or error.__context__
    return chain


def _status(error: BaseException) -> int | None:
    return getattr(getattr(error, "response", None), "status_code", None)
