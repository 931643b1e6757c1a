"""Selecting and shifting the positions that are trained on."""

import torch
from torch import Tensor


def supervised_rows(x_BTD: Tensor, labels_BT: Tensor, ignore_index: int = -100) -> tuple[Tensor, Tensor]:
    """Pairs each supervised label with the row that predicts it, one position before.

    Rows come sample by sample, in order of position. A label in the first column has no row before it and
    is not trained on, as in Hugging Face's models.

    Args:
        x_BTD: hidden states or logits, one per position; further dimensions are kept.
        labels_BT: token ids, `ignore_index` where nothing is trained.
        ignore_index: the label that is left out.

    Returns:
        `(x_ND, targets_N)`: the rows and their token ids.

    Raises:
        ValueError: batch or length differ.
    """
    if x_BTD.shape[:2] != labels_BT.shape:
        raise ValueError(
            f"x_BTD is {tuple(x_BTD.shape)} and labels_BT {tuple(labels_BT.shape)}: "
            "the first two dimensions must agree"
        )
    mask_BS = supervised_mask(labels_BT, ignore_index)
    return x_BTD[:, :-1][mask_BS.to(x_BTD.device)], labels_BT[:, 1:][mask_BS]


def supervised_mask(labels_BT: Tensor, ignore_index: int = -100) -> Tensor:
    """Which positions 0..T-2 predict a supervised label [B, T-1]."""
    return labels_BT[:, 1:] != ignore_index


def row_numbers(labels_BT: Tensor, ignore_index: int = -100) -> Tensor:
    """The row each position became in `supervised_rows` [B, T-1], -1 for a position that was left out."""
    mask_BS = supervised_mask(labels_BT, ignore_index)
    numbers_BS = mask_BS.flatten().cumsum(dim=0).view(mask_BS.shape) - 1
    return torch.where(mask_BS, numbers_BS, -1)
