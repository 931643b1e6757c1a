"""The names that `training:` may hold: ms-swift's SFT arguments, kept as a list so that no import is needed."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

# Arguments that follow from another section; setting them twice would leave it open which one holds.
OWNED_BY_RUN_CONFIG = {
    "model": "model.path",
    "model_type": "model.path",
    "torch_dtype": "model.dtype",
    "attn_impl": "model.attention",
    "template": "data.markers and data.style",
    "dataset": "data.annotations",
    "val_dataset": "data.heldout_annotations",
    "split_dataset_ratio": "data.heldout_annotations",
    "max_pixels": "data.max_pixels",
    "output_dir": "run.dir",
    "add_version": "run.dir",
    "seed": "run.seed",
    "data_seed": "run.seed",
    "strict": "data.strict",
    "packing": "data.packing",
    "padding_free": "data.packing",
    "check_model": "model.download",
}


@cache
def known_arguments() -> tuple[str, ...]:
    """Every field of swift's `SftArguments`; a test keeps the list equal to the installed swift's."""
    return tuple((files(__package__) / "swift_arguments.txt").read_text().split())
