"""The built-in loss terms, in the order of `ObjectiveOutput.terms`.

Text and coordinate CE have the same denominator: their sum is the cross-entropy of all supervised tokens, and the scale
of the text gradient does not depend on the other terms.
"""

from torch import Tensor

from coord_losses.inputs import TermInputs
from coord_losses.terms.box import box_loss_per_object
from coord_losses.terms.cross_entropy import soft_cross_entropy_per_row
from coord_losses.terms.distance_iou import complete_iou, distance_iou
from coord_losses.terms.focal import distribution_focal_per_row
from coord_losses.terms.huber import huber_per_row
from coord_losses.terms.registry import register_term
from coord_losses.terms.shape import shape_giou_per_object, shape_loss_per_object
from coord_losses.terms.wasserstein import wasserstein1_per_row


def _soft_ce(x: TermInputs) -> Tensor:
    return soft_cross_entropy_per_row(x.coord_logits_CK, x.soft_targets_CK, x.config.temperature)


def _w1(x: TermInputs) -> Tensor:
    return wasserstein1_per_row(x.coord_logits_CK, x.soft_targets_CK, x.config.temperature)


def _box(x: TermInputs) -> Tensor:
    coords = x.batch.objects.coords
    if coords is not None:
        loss_M = x.config.alpha_l1 * shape_loss_per_object(x.expected_C[coords.rows_P], coords, len(x.boxes_M4))
        if x.config.shape_boxes:
            loss_M = loss_M + x.config.beta_giou * shape_giou_per_object(x.predicted_M4, x.boxes_M4)
        return loss_M
    return box_loss_per_object(x.predicted_M4, x.boxes_M4, x.config.alpha_l1, x.config.beta_giou)


def _dfl(x: TermInputs) -> Tensor:
    return distribution_focal_per_row(x.coord_logits_CK, x.true_bins_C, x.config.temperature)


def _huber(x: TermInputs, delta: float = 0.01) -> Tensor:
    return huber_per_row(x.expected_C, x.true_C, delta)


def _diou(x: TermInputs) -> Tensor:
    return 1 - distance_iou(x.predicted_M4, x.boxes_M4)


def _ciou(x: TermInputs) -> Tensor:
    return 1 - complete_iou(x.predicted_M4, x.boxes_M4)


def _text_ce(x: TermInputs) -> Tensor:
    return x.smoothed(x.text_nll_T, x.batch.text_rows)


def _coord_ce(x: TermInputs) -> Tensor:
    return x.smoothed(x.coord_nll_C, x.batch.coord_rows_C)


def _z_loss(x: TermInputs) -> Tensor:
    """Squared logsumexp of the logits, which keeps them from drifting (PaLM, Chowdhery et al. 2022)."""
    return x.log_z_N**2


register_term("text_ce", _text_ce, needs="text_rows", weight_field="text_weight")
register_term("coord_ce", _coord_ce, needs="coord_rows", denominator="tokens", weight_field="coord_ce_weight")
register_term("soft_ce", _soft_ce, needs="coord_logits", weight_field="soft_ce_weight", diagnostic=True)
register_term("w1", _w1, needs="coord_logits", weight_field="w1_weight", diagnostic=True)
register_term("gate", lambda x: x.gate_C, needs="gate", weight_field="gate_weight", diagnostic=True)
register_term("box", _box, needs="box", weight_field="box_weight")
register_term("dfl", _dfl, needs="coord_logits")
register_term("huber", _huber, needs="expectation")
register_term("diou", _diou, needs="box")
register_term("ciou", _ciou, needs="box")
register_term("z_loss", _z_loss, needs="log_z", weight_field="z_loss_weight")
