"""Takes boxes that match no objects, tries other interpretations of their numbers, returns those that match."""

from coord_codec.box_transforms import INVERSE_TURN, LAYOUTS, TURNS, smart_resize, swap_axes
from coord_codec.labels import normalize_label
from coord_eval.diagnosis.answers import NEAR_ZERO, diagnose

__all__ = ["INVERSE_TURN", "LAYOUTS", "NEAR_ZERO", "TURNS", "diagnose", "normalize_label", "smart_resize", "swap_axes"]
