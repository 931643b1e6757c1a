"""Distance-aware losses over coordinate tokens; no loss divides, whoever knows the global batch does."""

from coord_losses.box import box_loss
from coord_losses.config import ObjectiveConfig
from coord_losses.coordexp import CoordExp
from coord_losses.cross_entropy import soft_cross_entropy
from coord_losses.expectation import expectation
from coord_losses.gate import vocab_gate
from coord_losses.giou import generalized_iou
from coord_losses.objective import CoordObjective
from coord_losses.output import ObjectiveOutput, denominator_of
from coord_losses.rows import supervised_rows
from coord_losses.slots import ObjectSlots
from coord_losses.soft_targets import soft_targets
from coord_losses.terms import LossTerm
from coord_losses.wasserstein import wasserstein1

__all__ = [
    "CoordExp",
    "CoordObjective",
    "LossTerm",
    "ObjectSlots",
    "ObjectiveConfig",
    "ObjectiveOutput",
    "box_loss",
    "denominator_of",
    "expectation",
    "generalized_iou",
    "soft_cross_entropy",
    "soft_targets",
    "supervised_rows",
    "vocab_gate",
    "wasserstein1",
]
__version__ = "0.1.0"
