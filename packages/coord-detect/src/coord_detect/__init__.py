"""Find objects in images with a model that was trained on coordinate tokens, or with servers of it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from coord_codec import InputError

if TYPE_CHECKING:
    from coord_detect.answers.objects import ImageDetections
    from coord_detect.detection.command import predict
    from coord_detect.detection.detector import Detector
    from coord_detect.detection.results import Results
    from coord_detect.families.family import Family
    from coord_detect.families.registry import FAMILIES, register_family
    from coord_detect.grammar.coord_grammar import CoordGrammar
    from coord_detect.settings.decoding import Decoding
    from coord_detect.settings.record import Settings
    from coord_detect.speed.forced import ForcedTokens
    from coord_detect.views.registry import register_view
    from coord_detect.views.view import Look, View

__all__ = [
    "FAMILIES",
    "CoordGrammar",
    "Decoding",
    "Detector",
    "Family",
    "ForcedTokens",
    "ImageDetections",
    "InputError",
    "Look",
    "Results",
    "Settings",
    "View",
    "predict",
    "register_family",
    "register_view",
]

# Imported at the first use of a name: a client of servers needs no torch, and help no model.
_MODULES = {
    "answers.objects": ("ImageDetections",),
    "detection.command": ("predict",),
    "detection.detector": ("Detector",),
    "detection.results": ("Results",),
    "families.family": ("Family",),
    "families.registry": ("FAMILIES", "register_family"),
    "grammar.coord_grammar": ("CoordGrammar",),
    "settings.decoding": ("Decoding",),
    "settings.record": ("Settings",),
    "speed.forced": ("ForcedTokens",),
    "views.registry": ("register_view",),
    "views.view": ("Look", "View"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name == "__version__":
        return import_module("importlib.metadata").version("coord-detect")
    if name not in _MODULE_OF:
        from coord_codec.other_words import missing_name

        raise missing_name(__name__, name, __all__)
    value = getattr(import_module(f"{__name__}.{_MODULE_OF[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
