"""Matches expected boxes to ground-truth boxes within each image (Hungarian algorithm).

Shapes: M objects.
"""

import torch
from torch import Tensor

from coord_losses.terms.box import generalized_iou


@torch.no_grad()
def hungarian_pairs(
    predicted_M4: Tensor,
    boxes_M4: Tensor,
    image_M: Tensor,
    said_M: Tensor | None = None,
    label_M: Tensor | None = None,
    alpha_l1: float = 1.0,
    beta_giou: float = 1.0,
) -> Tensor:
    """Return the index of the ground-truth box that each predicted box is matched with, one to one per image [M].

    The matching minimises the sum of `alpha_l1 · L1 + beta_giou · (1 - GIoU) + [labels differ]` (Carion et al., ECCV
    2020; the predicted label is that of the text). The ground-truth boxes of an image are sorted first, so that their
    order does not affect the result, even in case of ties.

    Args:
        predicted_M4: predicted boxes (x1, y1, x2, y2)
        boxes_M4: ground-truth boxes
        image_M: the image of each predicted and of each ground-truth box
        said_M: label of each predicted box; None ignores labels
        label_M: label of each ground-truth box; None ignores labels
        alpha_l1: weight of L1, summed over the four sides
        beta_giou: weight of 1 - GIoU

    Example:
        >>> import torch
        >>> boxes = torch.tensor([[0.0, 0.0, 0.5, 0.5], [0.5, 0.5, 1.0, 1.0]])
        >>> hungarian_pairs(boxes.flip(0), boxes, torch.zeros(2))
        tensor([1, 0])
    """
    from scipy.optimize import linear_sum_assignment  # slow to import and rarely needed

    predicted_M4, boxes_M4 = predicted_M4.double().cpu(), boxes_M4.double().cpu()
    labels = None if said_M is None or label_M is None else (said_M.cpu(), label_M.cpu())
    pairs_M = torch.arange(len(boxes_M4))
    images_M = image_M.cpu()
    for image in set(images_M.tolist()):
        indices = (images_M == image).nonzero()[:, 0]
        keys = [(*boxes_M4[i].tolist(), 0 if labels is None else int(labels[1][i])) for i in indices]
        sorted_indices = indices[sorted(range(len(keys)), key=keys.__getitem__)]
        first, second = (side.flatten() for side in torch.meshgrid(indices, sorted_indices, indexing="ij"))
        l1 = (predicted_M4[first] - boxes_M4[second]).abs().sum(dim=1)
        cost = alpha_l1 * l1 + beta_giou * (1 - generalized_iou(predicted_M4[first], boxes_M4[second]))
        if labels is not None:
            cost = cost + (labels[0][first] != labels[1][second])
        # NaN, as of logits that overflowed, is no reason to stop: the loss is NaN with every pairing.
        rows, columns = linear_sum_assignment(cost.nan_to_num(nan=0.0).view(len(indices), -1).numpy())
        pairs_M[indices[torch.from_numpy(rows)]] = sorted_indices[torch.from_numpy(columns)]
    return pairs_M.to(image_M.device)
