"""Distance-aware losses over coordinate tokens, as sums and counts that the trainer divides over the global batch."""

from importlib.metadata import version as _version

import coord_losses.builtin_terms  # noqa: F401  # registers the built-in terms
from coord_codec import InputError
from coord_losses.batch import supervised_rows
from coord_losses.config import ObjectiveConfig
from coord_losses.denominators import global_denominators
from coord_losses.inputs import TermError, TermInputs
from coord_losses.matching import hungarian_pairs
from coord_losses.objective import CoordObjective
from coord_losses.output import ObjectiveOutput, denominator_of
from coord_losses.slots import CoordRows, ObjectSlots
from coord_losses.terms.box import box_loss, generalized_iou
from coord_losses.terms.cross_entropy import soft_cross_entropy
from coord_losses.terms.expectation import CoordExp, expectation
from coord_losses.terms.gate import vocab_gate
from coord_losses.terms.loss_term import LossTerm
from coord_losses.terms.registry import Term, register_term, registered_terms
from coord_losses.terms.soft_targets import soft_targets
from coord_losses.terms.wasserstein import wasserstein1

__all__ = [
    "CoordExp",
    "CoordObjective",
    "CoordRows",
    "InputError",
    "LossTerm",
    "ObjectSlots",
    "ObjectiveConfig",
    "ObjectiveOutput",
    "Term",
    "TermError",
    "TermInputs",
    "box_loss",
    "denominator_of",
    "expectation",
    "generalized_iou",
    "global_denominators",
    "hungarian_pairs",
    "register_term",
    "registered_terms",
    "soft_cross_entropy",
    "soft_targets",
    "supervised_rows",
    "vocab_gate",
    "wasserstein1",
]
__version__ = _version("coord-losses")
