"""The loss of shapes other than boxes: L1 of all coordinates, and GIoU of the boxes around the shapes.

Shapes: M objects, P coordinates of all objects.
"""

import torch
from torch import Tensor

from coord_losses.terms.box import generalized_iou
from coord_losses.terms.loss_term import at_least_float32

_SIDES = 4


def shape_l1_per_object(expected_P: Tensor, true_P: Tensor, object_P: Tensor, num_objects: int) -> Tensor:
    """Return four times the mean absolute error of each object's coordinates [M].

    The factor makes the loss comparable with that of a box, which is summed over four sides.

    Args:
        expected_P: expected coordinates
        true_P: ground-truth coordinates
        object_P: the object of each coordinate
        num_objects: M

    Example:
        >>> import torch
        >>> shape_l1_per_object(torch.tensor([0.5, 0.5]), torch.tensor([0.25, 0.5]), torch.tensor([0, 0]), 1)
        tensor([0.5000])
    """
    expected_P = at_least_float32(expected_P)
    zeros_M = expected_P.new_zeros(num_objects)
    sum_M = zeros_M.index_add(0, object_P, (expected_P - true_P.to(expected_P.dtype)).abs())
    count_M = zeros_M.index_add(0, object_P, torch.ones_like(expected_P))
    return _SIDES * sum_M / count_M.clamp(min=1)


def boxes_around(expected_P: Tensor, is_x_P: Tensor, object_P: Tensor, num_objects: int) -> Tensor:
    """Return the boxes around shapes [M, 4]: smallest and largest x and y, differentiable where these are unique.

    Args:
        expected_P: coordinates, alternating x and y
        is_x_P: whether each coordinate is an x
        object_P: the object of each coordinate
        num_objects: M

    Example:
        >>> import torch
        >>> triangle, is_x = torch.tensor([0.5, 0.1, 0.9, 0.5, 0.1, 0.5]), torch.tensor([True, False] * 3)
        >>> boxes_around(triangle, is_x, torch.zeros(6, dtype=torch.long), 1)
        tensor([[0.1000, 0.1000, 0.9000, 0.5000]])
    """
    start_M = expected_P.new_zeros(num_objects)
    sides = [
        start_M.scatter_reduce(0, object_P[axis_P], expected_P[axis_P], how, include_self=False)
        for how in ("amin", "amax")
        for axis_P in (is_x_P, ~is_x_P)
    ]
    return torch.stack(sides, dim=1)


def shape_giou_per_object(predicted_M4: Tensor, boxes_M4: Tensor) -> Tensor:
    """Return 1 - GIoU of the boxes around predicted and ground-truth shapes [M]; 0 if the latter has no area.

    Args:
        predicted_M4: boxes around the expected coordinates
        boxes_M4: boxes around the ground-truth shapes
    """
    has_area_M = (boxes_M4[:, 2:] > boxes_M4[:, :2]).all(dim=1)
    return torch.where(has_area_M, 1 - generalized_iou(predicted_M4, boxes_M4), 0.0)
