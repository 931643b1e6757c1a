"""The built-in loss terms, one row each, in the order of `ObjectiveOutput.terms`.

Text and coordinate CE have the same denominator: their sum is the cross-entropy of all supervised tokens, and the scale
of the text gradient does not depend on the other terms.
"""

import torch
from torch import Tensor

from coord_losses.inputs import TermInputs
from coord_losses.terms.box import box_loss_per_object
from coord_losses.terms.cross_entropy import soft_cross_entropy_per_row, token_nll
from coord_losses.terms.registry import register_term
from coord_losses.terms.shape import shape_giou_per_object, shape_loss_per_object
from coord_losses.terms.wasserstein import wasserstein1_per_row

# Functions of the inputs, one value per element


def _text_ce(x: TermInputs) -> Tensor:
    return x.smoothed(x.text_nll_T, x.batch.text_rows)


def _coord_ce(x: TermInputs) -> Tensor:
    return x.smoothed(x.coord_nll_C, x.batch.coord_rows_C)


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


def _entropy(x: TermInputs) -> Tensor:
    p_CK = x.coord_logits_CK.softmax(dim=1)
    return -torch.xlogy(p_CK, p_CK).sum(dim=1)


def _error_bins(x: TermInputs) -> Tensor:
    p_CK = x.coord_logits_CK.softmax(dim=1)
    distance_CK = (torch.arange(p_CK.shape[1], device=p_CK.device) - x.bins_C[:, None]).abs()
    return (p_CK * distance_CK).sum(dim=1)


def _coord_vocab_mass(x: TermInputs) -> Tensor:
    # p(target) = p(any coordinate) · p(target | a coordinate)
    return torch.exp(token_nll(x.coord_logits_CK, x.bins_C) - x.coord_nll_C)


# Terms that can be trained

register_term(
    "text_ce",
    _text_ce,
    needs="text_rows",
    weight_field="text_weight",
    loss_key="text_loss",
    linear=True,
    title="text CE",
    unit="nats",
    formula="-log p(target), full vocabulary",
)
register_term(
    "coord_ce",
    _coord_ce,
    needs="coord_rows",
    denominator="tokens",
    weight_field="coord_ce_weight",
    loss_key="coord_ce_loss",
    linear=True,
    title="coordinate CE",
    unit="nats",
    formula="-log p(target), full vocabulary",
    source="Chen et al., pix2seq, ICLR 2022",
)
register_term(
    "soft_ce",
    _soft_ce,
    needs="coord_logits",
    weight_field="soft_ce_weight",
    diagnostic=True,
    title="soft CE",
    unit="nats",
    formula="-Σ q log p over the coordinate tokens, q a truncated Gaussian around the target",
    source="Szegedy et al., CVPR 2016; with distances: Chung et al., DIST2Loss, arXiv 2503.02379",
)
register_term(
    "w1",
    _w1,
    needs="coord_logits",
    weight_field="w1_weight",
    diagnostic=True,
    title="W1",
    unit="fraction of the range",
    formula="Σ abs(CDF_p - CDF_q) / (K - 1) over the coordinate tokens",
    source="Vallender 1974",
)
register_term(
    "gate",
    lambda x: x.gate_C,
    needs="gate",
    weight_field="gate_weight",
    diagnostic=True,
    linear=True,
    title="gate",
    unit="nats",
    formula="-log p(any coordinate token)",
)
register_term(
    "box",
    _box,
    needs="box",
    weight_field="box_weight",
    loss_key="coord_loss",
    title="box (L1 + GIoU)",
    formula="alpha_l1 · L1 + beta_giou · (1 - GIoU) of the expected box",
    source="Rezatofighi et al., CVPR 2019; Carion et al., ECCV 2020",
)

# Quantities that are measured only, at temperature 1

register_term(
    "coord_vocab_mass",
    _coord_vocab_mass,
    needs=("coord_rows", "coord_logits"),
    diagnostic=True,
    trainable=False,
    title="mass on coordinate tokens",
    formula="p(any coordinate token), full vocabulary",
)
register_term(
    "coord_entropy",
    _entropy,
    needs="coord_logits",
    diagnostic=True,
    trainable=False,
    title="entropy",
    unit="nats",
    formula="-Σ p log p over the coordinate tokens",
)
register_term(
    "coord_error_bins",
    _error_bins,
    needs="coord_logits",
    diagnostic=True,
    trainable=False,
    title="expected distance from the true bin",
    unit="bins",
    formula="Σ p_k · abs(k - target) over the coordinate tokens",
)
register_term(
    "coord_token_ce",
    lambda x: x.coord_nll_C,
    needs="coord_rows",
    diagnostic=True,
    trainable=False,
    title="CE per coordinate token",
    unit="nats",
    formula="-log p(target), full vocabulary, per coordinate token",
)
