"""What a user names: a folder, the folder of a training run, or a repository that the hub library's cache holds."""

from __future__ import annotations

import re
from pathlib import Path

from coord_codec.files import InputError, read_json
from coord_exporter.checkpoint.read import read_object

_HUB_ID = re.compile(r"([\w.-]+/[\w.-]+)(?:@([\w./-]+))?")
_STEPS = re.compile(r"checkpoint-(\d+)")


def find_folder(name: str | Path) -> Path:
    """Return the folder of a name: itself where it exists, else the snapshot in the hub's cache; nothing is fetched.

    Args:
        name: a path, or a hub id such as `Qwen/Qwen3-VL-2B-Instruct`, with `@REVISION` if it is not `main`

    Raises:
        InputError: for a hub id that the cache does not hold whole.
    """
    path = Path(name)
    match = _HUB_ID.fullmatch(str(name))
    if path.exists() or match is None or str(name).startswith("."):
        return path
    from huggingface_hub import snapshot_download

    try:
        return Path(snapshot_download(match[1], revision=match[2], local_files_only=True))
    except (OSError, ValueError) as error:
        raise InputError(
            f"{name}: no folder of this name, and not in the hub's cache ({type(error).__name__}); check the path, or "
            f"fetch it with: hf download {match[1]}"
        ) from None


def find_adapter(name: str | Path) -> tuple[Path, str | None]:
    """Return an adapter's folder; of a training run the best checkpoint by its scores, else the last complete one.

    Returns:
        The folder, and where it was chosen a sentence that says which and why.

    Raises:
        InputError: for a run without a complete checkpoint.
    """
    folder = find_folder(name)
    runs = [folder / "checkpoints", folder]
    if (folder / "adapter_config.json").exists() or not any(any(place.glob("checkpoint-*")) for place in runs):
        return folder, None
    found = {
        int(match[1]): path
        for place in runs
        for path in place.glob("checkpoint-*")
        if (match := _STEPS.fullmatch(path.name)) and (path / "adapter_config.json").exists() and _is_complete(path)
    }
    if not found:
        raise InputError(
            f"{folder}: a training run without a complete checkpoint of an adapter; name the adapter itself"
        )
    steps, why = max(found), "the last"
    scores = read_json(folder / "convergence.json") if (folder / "convergence.json").is_file() else []
    rows = [row for row in scores if isinstance(row, dict) and row.get("step") in found and row.get("AP") is not None]
    if rows:
        best = max((row for row in rows if row.get("reading") == rows[0].get("reading")), key=lambda row: row["AP"])
        steps, why = best["step"], f"the best by AP, {best['AP']:.3f}"
    return found[steps], f"{folder}: a training run; its {found[steps].name} is merged, {why}"


def _is_complete(checkpoint: Path) -> bool:
    """Whether every file of the trainer's manifest is there with its size; a checkpoint of another trainer has none."""
    manifest = checkpoint / "complete.json"
    if not manifest.is_file():
        return not (checkpoint.parent.parent / "manifest.json").exists()
    files = read_object(manifest)
    return all((path := checkpoint / name).is_file() and path.stat().st_size == size for name, size in files.items())
