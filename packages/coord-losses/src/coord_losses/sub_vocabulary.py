"""What the logits of the coordinate tokens alone decide: soft CE, W1 and box, and statistics for logging.

Shapes: C rows whose target is a coordinate, K coordinate tokens, M objects.
"""

import torch
from torch import Tensor

from coord_codec import CoordGrid
from coord_losses.batch import Batch
from coord_losses.box import box_loss
from coord_losses.config import ObjectiveConfig
from coord_losses.cross_entropy import soft_cross_entropy
from coord_losses.expectation import expectation
from coord_losses.soft_targets import soft_targets
from coord_losses.terms import LossTerm
from coord_losses.wasserstein import wasserstein1


def sub_vocabulary_terms(
    coord_logits_CK: Tensor, batch: Batch, config: ObjectiveConfig, grid: CoordGrid
) -> dict[str, LossTerm]:
    """Soft CE, W1 and box loss, those of them that have a weight.

    Args:
        coord_logits_CK: float32 or better, one row per coordinate target.
        batch: true bins, and which of the C rows decode which box.
        config: weights, temperatures and targets.
        grid: what a bin is worth.
    """
    terms = {}
    if config.soft_ce_weight or config.w1_weight:
        targets_CK = _targets(coord_logits_CK, batch.bins_C, config)
        if config.soft_ce_weight:
            terms["soft_ce"] = soft_cross_entropy(coord_logits_CK, targets_CK, config.temperature)
        if config.w1_weight:
            terms["w1"] = wasserstein1(coord_logits_CK, targets_CK, config.temperature)
    if config.box_weight:
        slot_logits_PK = coord_logits_CK[batch.slots_M4.flatten()]  # P = 4 M
        pred_M4 = expectation(slot_logits_PK, grid, config.expectation_temperature).view(-1, 4)
        terms["box"] = box_loss(pred_M4, batch.boxes_M4, config.alpha_l1, config.beta_giou)
    return terms


def sub_vocabulary_diagnostics(
    coord_logits_CK: Tensor, bins_C: Tensor, config: ObjectiveConfig
) -> dict[str, LossTerm]:
    """Soft CE and W1 whether trained on or not; entropy and expected error at temperature 1."""
    targets_CK = _targets(coord_logits_CK, bins_C, config)
    p_CK = coord_logits_CK.softmax(dim=1)
    distance_CK = (torch.arange(p_CK.shape[1], device=bins_C.device) - bins_C[:, None]).abs()
    return {
        "soft_ce": soft_cross_entropy(coord_logits_CK, targets_CK, config.temperature),
        "w1": wasserstein1(coord_logits_CK, targets_CK, config.temperature),
        "coord_entropy": LossTerm.of(torch.special.entr(p_CK).sum(dim=1)),
        "coord_error_bins": LossTerm.of((p_CK * distance_CK).sum(dim=1)),
    }


def _targets(coord_logits_CK: Tensor, bins_C: Tensor, config: ObjectiveConfig) -> Tensor:
    return soft_targets(
        bins_C, coord_logits_CK.shape[1], config.target_sigma, config.target_truncate, coord_logits_CK.dtype
    )
