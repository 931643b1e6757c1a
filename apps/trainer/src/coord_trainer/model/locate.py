"""Which folder holds the model that a user names: a checkpoint, an adapter, an export, or a run."""

from pathlib import Path

from coord_codec import InputError
from coord_trainer.folder import newest_complete

_WEIGHTS = ("adapter_config.json", "config.json")


def locate_model(folder: Path) -> Path:
    """Return the folder with the weights; of a run folder its last complete checkpoint.

    Raises:
        InputError: there is no model, naming what is there instead.
    """
    if not folder.is_dir():
        hint = "is a file; name the folder of the model" if folder.exists() else "no such folder"
        raise InputError(f"{folder}: {hint}")
    if any((folder / name).is_file() for name in _WEIGHTS):
        return folder
    for place in (folder / "checkpoints", folder):
        newest, _ = newest_complete(place)
        if newest is not None:
            return newest
    raise InputError(
        f"{folder}: no model there: expected a checkpoint or an adapter ({' or '.join(_WEIGHTS)}), or a run folder "
        "with a complete checkpoint"
    )
