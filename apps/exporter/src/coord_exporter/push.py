"""Uploads an export through the hub library's own client, which knows endpoint, token and large files."""

from __future__ import annotations

import os
from pathlib import Path

from coord_codec.files import InputError
from coord_exporter.checkpoint.staging import ExportError


def check_repository(name: str) -> None:
    """Refuse a name that no repository can have, before anything is written.

    Raises:
        InputError: with the hub library's reason.
    """
    from huggingface_hub.errors import HFValidationError
    from huggingface_hub.utils import validate_repo_id

    try:
        validate_repo_id(name)
    except HFValidationError as error:
        raise InputError(f"--push: expected a repository such as me/my-model: {error}") from None


def push(folder: Path, name: str, *, public: bool = False, force: bool = False) -> str:
    """Upload a folder to a repository of the hub.

    Args:
        folder: the export
        name: the repository, made if it does not exist
        public: whether a new repository is
        force: whether one that exists gets a further commit

    Returns:
        The address of the commit.

    Raises:
        ExportError: if the hub refuses or cannot be reached; the folder stays as it is.
    """
    import httpx
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    api = HfApi(endpoint=os.environ.get("HF_ENDPOINT"))
    try:
        found = api.create_repo(name, private=not public, exist_ok=force).repo_id
        return str(api.upload_folder(repo_id=found, folder_path=folder, commit_message="Export").commit_url)
    except (HfHubHTTPError, httpx.HTTPError, OSError, ValueError) as error:
        status = getattr(getattr(error, "response", None), "status_code", None)
        reason = "it exists already; --force adds a commit to it" if status == 409 else str(error).partition("\n")[0]
        raise ExportError(
            f"--push {name}: {reason}. {folder} is complete; push it with: hf upload {name} {folder}"
        ) from None
