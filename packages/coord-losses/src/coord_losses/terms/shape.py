"""The losses of shapes other than boxes: L1 of all coordinates, and GIoU of the boxes around the shapes.

A geometry names its regression loss (`coord_codec.Geometry.loss`), a key of `SHAPE_LOSSES` or a function of its own.

Shapes: M objects, P coordinates of all objects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from coord_losses.terms.box import generalized_iou
from coord_losses.terms.loss_term import at_least_float32

if TYPE_CHECKING:
    from coord_losses.slots import CoordRows

_SIDES = 4


def shape_l1_per_object(
    expected_P: Tensor, true_P: Tensor, object_P: Tensor, num_objects: int, is_angle_P: Tensor | None = None
) -> Tensor:
    """Return four times the mean absolute error of each object's coordinates [M].

    The factor makes the loss comparable with that of a box, which is summed over four sides. The error of an angle is
    the shorter way around, since angles 0 and 1 are the same.

    Args:
        expected_P: expected coordinates
        true_P: ground-truth coordinates
        object_P: the object of each coordinate
        num_objects: M
        is_angle_P: whether each coordinate is an angle; None if none is

    Example:
        >>> import torch
        >>> shape_l1_per_object(torch.tensor([0.5, 0.5]), torch.tensor([0.25, 0.5]), torch.tensor([0, 0]), 1)
        tensor([0.5000])
    """
    expected_P = at_least_float32(expected_P)
    zeros_M = expected_P.new_zeros(num_objects)
    error_P = (expected_P - true_P.to(expected_P.dtype)).abs()
    if is_angle_P is not None:
        error_P = torch.where(is_angle_P, torch.minimum(error_P, 1 - error_P), error_P)
    sum_M = zeros_M.index_add(0, object_P, error_P)
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


def boxes_of_shapes(expected_P: Tensor, coords: CoordRows, num_objects: int) -> Tensor:
    """Return the boxes around expected shapes [M, 4] within the image, differentiable.

    Args:
        expected_P: the expected coordinates
        coords: the objects of the coordinates, and their geometry
        num_objects: M

    Example:
        >>> import torch
        >>> from coord_losses import CoordRows
        >>> point = CoordRows(torch.tensor([0, 1]), torch.tensor([0.5, 0.25]), torch.tensor([0, 0]))
        >>> boxes_of_shapes(torch.tensor([0.5, 0.25]), point, 1)
        tensor([[0.5000, 0.2500, 0.5000, 0.2500]])
    """
    kind = coords.geometry
    if kind.has_points:
        return boxes_around(expected_P, coords.is_x_P, coords.object_P, num_objects)
    if kind.fixed:
        boxes = kind.box_of(expected_P.view(num_objects, kind.least).unbind(1), torch)
        return torch.stack(boxes, dim=1).clamp(0, 1)
    counts = torch.bincount(coords.object_P, minlength=num_objects).tolist()
    rows = [torch.stack(kind.box_of(part.unbind(), torch)) for part in torch.split(expected_P, counts)]
    return torch.stack(rows).clamp(0, 1) if rows else expected_P.new_zeros(0, _SIDES)


def _l1(expected_P: Tensor, coords: CoordRows, num_objects: int) -> Tensor:
    angles_P = coords.is_angle_P if "angle" in coords.geometry.numbers else None
    return shape_l1_per_object(expected_P, coords.true_P, coords.object_P, num_objects, angles_P)


SHAPE_LOSSES: Mapping[str, Callable[[Tensor, CoordRows, int], Tensor]] = MappingProxyType({"l1": _l1})
"""Regression losses of shapes by name: each takes the expected coordinates [P], their rows and M, and returns [M]."""


def shape_loss_per_object(expected_P: Tensor, coords: CoordRows, num_objects: int) -> Tensor:
    """Return the regression loss that the geometry names for each object [M]; 0 if it names none.

    Args:
        expected_P: the expected coordinates
        coords: the objects and ground truth of the coordinates, and their geometry
        num_objects: M

    Raises:
        ValueError: if the geometry names an unknown loss
    """
    loss = type(coords.geometry).loss  # of the class: a function must not become a method
    if loss is None:
        return expected_P.new_zeros(num_objects) + 0 * expected_P.sum()
    function = SHAPE_LOSSES.get(loss) if isinstance(loss, str) else loss
    if function is None:
        raise ValueError(
            f"geometry {coords.geometry.name}: loss: expected {', '.join(SHAPE_LOSSES)}, a function of your own or "
            f"None, found {loss!r}"
        )
    return function(expected_P, coords, num_objects)


def shape_giou_per_object(predicted_M4: Tensor, boxes_M4: Tensor) -> Tensor:
    """Return 1 - GIoU of the boxes around predicted and ground-truth shapes [M]; 0 if the latter has no area.

    Args:
        predicted_M4: boxes around the expected coordinates
        boxes_M4: boxes around the ground-truth shapes
    """
    has_area_M = (boxes_M4[:, 2:] > boxes_M4[:, :2]).all(dim=1)
    return torch.where(has_area_M, 1 - generalized_iou(predicted_M4, boxes_M4), 0.0)
