"""Train vision-language models to detect objects with coordinate tokens, through ms-swift."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from coord_codec import InputError

__all__ = [
    "FAMILIES",
    "CoordGrammar",
    "Detector",
    "Family",
    "ForcedTokens",
    "InputError",
    "Look",
    "RunConfig",
    "View",
    "apply_coord_template_adapter",
    "load_run_config",
    "register_family",
    "register_view",
    "train",
    "train_and_score",
]

# Imported at the first use of a name: swift alone takes many seconds, and a configuration does not need it.
_MODULES = {
    "RunConfig": "coord_trainer.config.run_config",
    "apply_coord_template_adapter": "coord_trainer.swift.template",
    "load_run_config": "coord_trainer.config.run_config",
    "train": "coord_trainer.api",
    "train_and_score": "coord_trainer.run",
}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("coord-trainer")
    if name not in __all__:
        from coord_codec.other_words import missing_name

        raise missing_name(__name__, name, __all__)
    return getattr(import_module(_MODULES.get(name, "coord_detect")), name)
