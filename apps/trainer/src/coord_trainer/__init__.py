"""Train Qwen3-VL to draw boxes with coordinate tokens, through ms-swift."""

from __future__ import annotations

from importlib import import_module
from typing import Any

__version__ = "0.1.0"
__all__ = ["CoordGrammar", "RunConfig", "apply_coord_template_adapter", "load_run_config", "train_and_score"]

# Looked up when asked for: swift alone takes many seconds to import, and a config needs none of it.
_HOMES = {
    "CoordGrammar": "grammar",
    "RunConfig": "config",
    "apply_coord_template_adapter": "swift_model",
    "load_run_config": "config_files",
    "train_and_score": "training",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
