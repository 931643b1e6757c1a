"""Finds the folder with the weights of a model that a user names: a checkpoint, an adapter, an export or a run."""

from pathlib import Path

from coord_codec import InputError
from coord_trainer.checkpoints import find_checkpoint

_WEIGHTS = ("adapter_config.json", "config.json")


def locate_model(folder: Path) -> Path:
    """Return the folder with the weights; for a run folder its best checkpoint by AP, or else its newest.

    Raises:
        InputError: the folder holds no model.
    """
    if not folder.is_dir():
        hint = "is a file; name the folder of the model" if folder.exists() else "no such folder"
        raise InputError(f"{folder}: {hint}")
    weights = find_checkpoint(folder)
    if not any((weights / name).is_file() for name in _WEIGHTS):
        raise InputError(
            f"{folder}: no model found: expected a checkpoint or an adapter ({' or '.join(_WEIGHTS)}), or a run folder"
        )
    return weights
