"""Resolves the user's BASE and ADAPTER: a folder, a run folder, or a repository in the local hub cache."""

from __future__ import annotations

import re
from pathlib import Path

from coord_codec.files import InputError
from coord_exporter.checkpoint.read import CARD_FILE, read_object

_HUB_ID = re.compile(r"([\w.-]+/[\w.-]+)(?:@([\w./-]+))?")
_STEPS = re.compile(r"checkpoint-(\d+)")


def find_folder(name: str | Path) -> Path:
    """Return an existing folder as it is, or the snapshot of a hub id in the local cache; nothing is downloaded.

    A hub id is written like `Qwen/Qwen3-VL-2B-Instruct`, with `@REVISION` if that is not `main`.

    Raises:
        InputError: for a hub id that is not completely in the cache
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
            f"download it with: hf download {match[1]}"
        ) from None


def find_adapter(name: str | Path) -> tuple[Path, str | None]:
    """Return an adapter's folder; for a run folder its best checkpoint by AP, else the last complete one.

    PEFT saves the adapter `default` into the folder itself, and each other one into a folder of its name inside.

    Returns:
        The folder, and a sentence where there was a choice: which was taken, and why or what was not; else None.

    Raises:
        InputError: for a run folder without a complete checkpoint, for several named adapters, and for a whole model
    """
    folder = find_folder(name)
    if (folder / "config.json").exists() and not (folder / "adapter_config.json").exists():
        raise InputError(f"{folder}: a whole model, which needs no merge, not an adapter")
    named = sorted(
        file.parent for file in folder.glob("*/adapter_config.json") if not _STEPS.fullmatch(file.parent.name)
    )
    if named:
        others = ", ".join(map(str, named))
        if (folder / "adapter_config.json").exists():
            return folder, f"{folder}: its own adapter is taken, and not {others}: name a folder to take that one"
        if len(named) > 1:
            raise InputError(f"{folder}: several adapters, {others}: name one of them")
        return named[
            0
        ], f"{folder}: no adapter itself; {named[0]} is taken, the only one that PEFT saved inside by a name"
    places = [folder / "checkpoints", folder]
    if (folder / "adapter_config.json").exists() or not any(any(parent.glob("checkpoint-*")) for parent in places):
        return folder, None
    by_step = {
        int(match[1]): path
        for parent in places
        for path in parent.glob("checkpoint-*")
        if (match := _STEPS.fullmatch(path.name)) and (path / "adapter_config.json").exists() and _is_complete(path)
    }
    if not by_step:
        whole = next((file.parent for parent in places for file in parent.glob("checkpoint-*/config.json")), None)
        hint = f"{whole} is a whole model, which needs no merge" if whole else "name the adapter itself"
        raise InputError(f"{folder}: a training run without a complete checkpoint of an adapter; {hint}")
    steps, reason = max(by_step), "the last"
    manifest = folder / "manifest.json"
    best = (read_object(manifest) if manifest.is_file() else {}).get("best_checkpoint")
    for number, path in by_step.items():
        if best and folder / best["path"] == path:
            steps, reason = number, f"the best by AP, {best['AP']:.3f}"
    return by_step[steps], f"{folder}: a training run; its {by_step[steps].name} is merged, {reason}"


def _is_complete(checkpoint: Path) -> bool:
    """Return whether all files of the trainer's manifest exist with their sizes; other trainers write no manifest.

    The card may have another size, since a calibration is added to it.
    """
    manifest = checkpoint / "complete.json"
    if not manifest.is_file():
        return not (checkpoint.parent.parent / "manifest.json").exists()
    files = read_object(manifest)
    sizes = {name: (checkpoint / name).stat().st_size for name in files if (checkpoint / name).is_file()}
    return all(name in sizes and (sizes[name] == size or name == CARD_FILE) for name, size in files.items())
