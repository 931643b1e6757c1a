"""Integration with Hugging Face models and Trainers: collation, the objective in the forward pass, and logging.

transformers is imported only when `CoordTrainer` is accessed.
"""

from typing import Any

from coord_losses.hf.collator import CoordCollator
from coord_losses.hf.patch import patch, unpatch
from coord_losses.hf.trainer import CoordTrainerMixin

__all__ = ["CoordCollator", "CoordTrainer", "CoordTrainerMixin", "patch", "unpatch"]


def __getattr__(name: str) -> Any:
    if name != "CoordTrainer":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from transformers import Trainer

    globals()[name] = type(
        name, (CoordTrainerMixin, Trainer), {"__doc__": CoordTrainerMixin.__doc__, "__module__": __name__}
    )
    return globals()[name]
