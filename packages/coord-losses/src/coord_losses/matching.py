"""Which true box each object is compared with: its own one in the text, or the cheapest of its image (Hungarian).

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
    """Return which true box each predicted box is paired with, one to one within its image [M].

    The pairs have the least sum of `alpha_l1 · L1 + beta_giou · (1 - GIoU) + [other label]` (Carion et al., ECCV 2020,
    with the label of the text for the predicted one). The true boxes of an image are sorted first, so that the order
    in which they are given changes no pair, not even where several sums are equal.

    Args:
        predicted_M4: predicted boxes (x1, y1, x2, y2)
        boxes_M4: true boxes
        image_M: the image of each predicted and of each true box
        said_M: label of each predicted box; None for none
        label_M: label of each true box; None for none
        alpha_l1: weight of L1, summed over the four sides
        beta_giou: weight of 1 - GIoU

    Example:
        >>> import torch
        >>> boxes = torch.tensor([[0.0, 0.0, 0.5, 0.5], [0.5, 0.5, 1.0, 1.0]])
        >>> hungarian_pairs(boxes.flip(0), boxes, torch.zeros(2))
        tensor([1, 0])
    """
    from scipy.optimize import linear_sum_assignment  # slow to import, and seldom needed

    predicted_M4, boxes_M4 = predicted_M4.double().cpu(), boxes_M4.double().cpu()
    labels = None if said_M is None or label_M is None else (said_M.cpu(), label_M.cpu())
    pairs_M = torch.arange(len(boxes_M4))
    images_M = image_M.cpu()
    for image in set(images_M.tolist()):
        mine = (images_M == image).nonzero()[:, 0]
        keys = [(*boxes_M4[i].tolist(), 0 if labels is None else int(labels[1][i])) for i in mine]
        others = mine[sorted(range(len(keys)), key=keys.__getitem__)]
        first, second = (side.flatten() for side in torch.meshgrid(mine, others, indexing="ij"))
        l1 = (predicted_M4[first] - boxes_M4[second]).abs().sum(dim=1)
        cost = alpha_l1 * l1 + beta_giou * (1 - generalized_iou(predicted_M4[first], boxes_M4[second]))
        if labels is not None:
            cost = cost + (labels[0][first] != labels[1][second])
        rows, columns = linear_sum_assignment(cost.view(len(mine), -1).numpy())
        pairs_M[mine[torch.from_numpy(rows)]] = others[torch.from_numpy(columns)]
    return pairs_M.to(image_M.device)
