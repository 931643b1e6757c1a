"""Uploads an export with the hub library's client, which handles endpoint, token and large files."""

from __future__ import annotations

import os
from pathlib import Path

from coord_codec.files import InputError
from coord_exporter.checkpoint.staging import ExportError


def check_repository(name: str) -> None:
    """Refuse an invalid repository name before anything is written.

    Raises:
        InputError: with the hub library's reason
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
        name: the repository, created if it does not exist
        public: whether a new repository is public
        force: whether to add a commit to an existing repository

    Returns:
        The URL of the commit.

    Raises:
        ExportError: if the hub refuses or cannot be reached; the folder does not change
    """
    import httpx
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError

    api = HfApi(endpoint=os.environ.get("HF_ENDPOINT"))
    try:
        repository = api.create_repo(name, private=not public, exist_ok=force).repo_id
        return str(api.upload_folder(repo_id=repository, folder_path=folder, commit_message="Export").commit_url)
    except (HfHubHTTPError, httpx.HTTPError, OSError, ValueError) as error:
        status = getattr(getattr(error, "response", None), "status_code", None)
        reason = "it exists already; --force adds a commit to it" if status == 409 else str(error).partition("\n")[0]
        raise ExportError(
            f"--push {name}: {reason}. {folder} is complete; push it with: hf upload {name} {folder}"
        ) from None
