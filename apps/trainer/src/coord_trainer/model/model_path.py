"""Checks the checkpoint that `model.path` names, before anything slow begins."""

from __future__ import annotations

from pathlib import Path

from coord_codec.files import InputError, read_json
from coord_detect.model.checkpoints import find_checkpoint
from coord_trainer.config.sections import ModelSection


def check_model_path(model: ModelSection) -> None:
    """Raise `InputError` if `model.path` is not a checkpoint's folder and `model.download` is not set."""
    path = model.path
    if path is not None and not Path(path).is_dir() and not model.download:
        raise InputError(
            f"model.path: no folder {path!r} here; give a checkpoint's folder, or set model.download: true to "
            "download a hub id"
        )
    if path is not None and Path(path).is_dir():
        if not (Path(path) / "config.json").is_file():
            inside = find_checkpoint(Path(path))
            if (inside / "config.json").is_file():
                raise InputError(f"model.path: {path} is the folder of a run; name its checkpoint {inside}")
            raise InputError(f"model.path: {path} has no config.json; name a checkpoint's folder")
        if not isinstance(read_json(Path(path) / "config.json"), dict):
            raise InputError(f"model.path: {path}/config.json: expected an object; the checkpoint is damaged")
