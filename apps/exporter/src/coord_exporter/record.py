"""export.json: where a checkpoint came from, with digests, so that no adapter goes in twice."""

from __future__ import annotations

import hashlib
import platform
from importlib import metadata
from pathlib import Path

from .checkpoint import read_json
from .errors import InputError

RECORD = "export.json"
_FORMAT = 1
_BLOCK = 1 << 20


def sha256_of(path: Path) -> str:
    """Digest of a file's content, read in blocks."""
    digest, block = hashlib.sha256(), memoryview(bytearray(_BLOCK))
    with path.open("rb", buffering=0) as file:
        while count := file.readinto(block):
            digest.update(block[:count])
    return digest.hexdigest()


def history_of(folder: Path) -> list[dict]:
    """The exports a checkpoint went through, oldest first; empty for a checkpoint that is nobody's export.

    Raises:
        InputError: for a record of a newer format.
    """
    path = folder / RECORD
    if not path.exists():
        return []
    content = read_json(path)
    if content.get("format") != _FORMAT or not isinstance(content.get("history"), list):
        raise InputError(
            f"{path}: expected format {_FORMAT}, found {content.get('format')!r}; update coord-exporter"
        )
    return content["history"]


def refuse_second_merge(history: list[dict], digest: str, base: Path, adapter: Path) -> None:
    """Refuse an adapter that is in the base already.

    Raises:
        InputError: if the base's history names the adapter's digest.
    """
    for entry in history:
        if entry.get("adapter", {}).get("adapter_model.safetensors") == digest:
            raise InputError(f"{adapter}: is merged into {base} already (its export.json says so)")


def record_of(history: list[dict]) -> dict:
    """The content of export.json."""
    return {"format": _FORMAT, "history": history}


def versions() -> dict[str, str]:
    """Versions of what computed the output."""
    found = {"python": platform.python_version()}
    for package in ("coord-exporter", "coord-codec", "torch"):
        found[package] = metadata.version(package)
    return found
