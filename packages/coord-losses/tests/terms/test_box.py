"""GIoU and box loss; swapped corners above all."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from coord_losses import box_loss, generalized_iou

F64 = torch.float64
TARGET = torch.tensor([[0.3, 0.35, 0.6, 0.7]], dtype=F64)


def naive_giou(a, b):
    width = max(0.0, min(a[2], b[2]) - max(a[0], b[0]))
    height = max(0.0, min(a[3], b[3]) - max(a[1], b[1]))
    union = (a[2] - a[0]) * (a[3] - a[1]) + (b[2] - b[0]) * (b[3] - b[1]) - width * height
    hull = (max(a[2], b[2]) - min(a[0], b[0])) * (max(a[3], b[3]) - min(a[1], b[1]))
    return width * height / union - (hull - union) / hull


def proper_boxes(count, seed):
    corners = torch.rand(count, 2, 2, generator=torch.Generator().manual_seed(seed), dtype=F64)
    low, high = corners.amin(1), corners.amax(1) + 0.01
    return torch.cat([low, high], 1)


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        ([0, 0, 2, 2], [0, 0, 2, 2], 1.0),
        ([0, 0, 2, 2], [1, 1, 3, 3], 1 / 7 - 2 / 9),
        ([0, 0, 1, 1], [1, 0, 2, 1], 0.0),  # touching: nothing shared, the hull is full
        ([0, 0, 1, 1], [2, 0, 3, 1], -1 / 3),  # disjoint: a third of the hull is empty
        ([0, 0, 4, 4], [1, 1, 2, 2], 1 / 16),
        ([1, 1, 1, 1], [1, 1, 1, 1], 0.0),  # no area at all
    ],
)
def test_giou_by_hand(a, b, expected):
    found = generalized_iou(torch.tensor([a], dtype=F64), torch.tensor([b], dtype=F64))
    assert found.tolist() == pytest.approx([expected])


@pytest.mark.parametrize("side", [1e-2, 1e-4, 1e-8, 1e-15])
def test_giou_of_a_small_float32_box_with_itself_is_one(side):
    box = torch.tensor([[0.25, 0.5, 0.25, 0.5]]) if side > 1e-5 else torch.zeros(1, 4)
    box[:, 2:] += side
    box.requires_grad_()
    found = generalized_iou(box, box.detach())
    assert found.item() == 1.0
    found.sum().backward()
    assert torch.isfinite(box.grad).all()


def test_giou_of_small_float32_boxes_equals_float64():
    small = (1e-4 * proper_boxes(100, 7), 1e-4 * proper_boxes(100, 8))
    expected = [naive_giou(a, b) for a, b in zip(small[0].tolist(), small[1].tolist(), strict=True)]
    assert generalized_iou(*(x.float() for x in small)).tolist() == pytest.approx(expected, abs=1e-4)


def test_giou_of_proper_boxes_is_the_published_formula():
    a, b = proper_boxes(500, 1), proper_boxes(500, 2)
    expected = [naive_giou(x, y) for x, y in zip(a.tolist(), b.tolist(), strict=True)]
    assert generalized_iou(a, b).tolist() == pytest.approx(expected, rel=1e-10, abs=1e-12)


def test_giou_gradient():
    a, b = proper_boxes(8, 3).requires_grad_(), proper_boxes(8, 4).requires_grad_()
    assert torch.autograd.gradcheck(generalized_iou, (a, b))
    swapped = a.detach()[:, [2, 3, 0, 1]].requires_grad_()
    assert torch.autograd.gradcheck(generalized_iou, (swapped, b))


SWAPPED = {
    "x inside the target": [0.5, 0.4, 0.4, 0.6],
    "both inside the target": [0.5, 0.6, 0.45, 0.45],
    "the target's own corners, swapped": [0.6, 0.7, 0.3, 0.35],
    "around the target": [0.9, 0.95, 0.1, 0.05],
    "beside the target": [0.95, 0.4, 0.8, 0.6],
    "away on both axes": [0.15, 0.98, 0.05, 0.9],
}


@pytest.mark.slow
@pytest.mark.parametrize("loss", ["giou", "box"])
def test_swapped_corners_recover_under_gradient_descent(loss):
    boxes = torch.tensor(list(SWAPPED.values()), dtype=F64, requires_grad=True)
    targets = TARGET.expand(len(boxes), 4)
    for step in range(1000):
        value = (1 - generalized_iou(boxes, targets)).sum() if loss == "giou" else box_loss(boxes, targets).sum
        (gradient,) = torch.autograd.grad(value, boxes)
        with torch.no_grad():
            boxes -= 0.02 * 0.991**step * gradient / gradient.norm(dim=1, keepdim=True).clamp(min=1e-12)
    reached = dict(zip(SWAPPED, generalized_iou(boxes, targets).tolist(), strict=True))
    assert min(reached.values()) > 0.99, reached


@given(st.lists(st.floats(0, 1), min_size=4, max_size=4))
def test_giou_gradient_never_widens_an_inversion(corners):
    """Wherever x1 > x2, a step against the gradient of 1 - GIoU brings the two towards order."""
    box = torch.tensor([corners], dtype=F64, requires_grad=True)
    (1 - generalized_iou(box, TARGET)).sum().backward()
    for low, high in ((0, 2), (1, 3)):
        if corners[low] > corners[high]:
            assert (box.grad[0, low] - box.grad[0, high]).item() > 0


@settings(max_examples=3 * settings().max_examples)
@given(st.lists(st.sampled_from([0.0, 0.2, 0.5, 0.500001, 0.999, 1.0]), min_size=8, max_size=8))
def test_giou_is_bounded_and_finite_for_any_corners(corners):
    a = torch.tensor([corners[:4]], requires_grad=True)
    found = generalized_iou(a, torch.tensor([corners[4:]]))
    found.sum().backward()
    assert -1 - 1e-5 <= found.item() <= 1 + 1e-5
    assert torch.isfinite(a.grad).all()


def test_box_loss_by_hand():
    pred, true = torch.tensor([[0.0, 0, 2, 2]], dtype=F64), torch.tensor([[1.0, 1, 3, 3]], dtype=F64)
    found = box_loss(pred, true, alpha_l1=2.0, beta_giou=0.5)
    assert found.sum.item() == pytest.approx(2.0 * 4 + 0.5 * (1 - (1 / 7 - 2 / 9)))
    assert found.count.item() == 1


def test_box_loss_adds_up_over_boxes_and_takes_bfloat16():
    pred, true = proper_boxes(7, 5), proper_boxes(7, 6)
    one_by_one = sum(box_loss(p[None], t[None]).sum for p, t in zip(pred, true, strict=True))
    torch.testing.assert_close(box_loss(pred, true).sum, one_by_one)
    assert box_loss(pred.bfloat16(), true.bfloat16()).sum.dtype == torch.float32


def test_box_loss_of_no_boxes_is_a_zero_in_the_graph():
    pred = torch.zeros(0, 4, requires_grad=True)
    found = box_loss(pred, torch.zeros(0, 4))
    assert (found.sum.item(), found.count.item()) == (0.0, 0)
    found.sum.backward()
    assert pred.grad is not None
