"""The loss of objects that are no boxes: L1 of every coordinate, and GIoU of the boxes around the shapes.

Shapes: M objects, P coordinates of all of them.
"""

import torch
from torch import Tensor

from coord_losses.terms.box import generalized_iou
from coord_losses.terms.loss_term import at_least_float32

_SIDES = 4


def shape_l1_per_object(expected_P: Tensor, true_P: Tensor, object_P: Tensor, num_objects: int) -> Tensor:
    """Return four times the mean distance of an object's coordinates [M].

    Four times, so that a box, whose four sides are summed, and a shape of any number of vertices weigh alike.

    Args:
        expected_P: expected coordinates
        true_P: true coordinates
        object_P: the object that each belongs to
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
    """Return the boxes around shapes [M, 4]: least and largest x and y, differentiable where they are unique.

    Args:
        expected_P: coordinates, x and y in turn
        is_x_P: which of them are x
        object_P: the object that each belongs to
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
    """Return 1 - GIoU of the boxes around predicted and true shapes [M]; 0 where the true one has no area.

    Args:
        predicted_M4: boxes around the expected coordinates
        boxes_M4: boxes around the true shapes
    """
    has_area_M = (boxes_M4[:, 2:] > boxes_M4[:, :2]).all(dim=1)
    return torch.where(has_area_M, 1 - generalized_iou(predicted_M4, boxes_M4), 0.0)
