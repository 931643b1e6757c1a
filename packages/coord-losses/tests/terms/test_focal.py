"""Distribution focal loss and Huber of the expectation, against their formulas."""

import math

import pytest
import torch

from coord_codec import CoordGrid
from coord_losses import distribution_focal_loss, expectation, expectation_huber

F64 = torch.float64


@pytest.mark.parametrize("temperature", [0.5, 1.0])
def test_distribution_focal_loss_is_the_published_formula(temperature):
    logits = torch.randn(6, 9, generator=torch.Generator().manual_seed(0), dtype=F64)
    true = [0.0, 0.25, 3.5, 7.999, 8.0, 11.0]  # the last one lies beyond the last bin
    expected = 0.0
    for row, y in zip(torch.softmax(logits / temperature, 1).tolist(), true, strict=True):
        inside = min(y, 8.0)
        left = min(math.floor(inside), 7)
        expected -= (left + 1 - inside) * math.log(row[left]) + (inside - left) * math.log(row[left + 1])
    found = distribution_focal_loss(logits, torch.tensor(true), temperature)
    assert found.sum.item() == pytest.approx(expected, rel=1e-6)
    assert found.count.item() == 6


def test_distribution_focal_loss_is_least_at_the_sub_bin_coordinate():
    logits = torch.zeros(1, 20, dtype=F64, requires_grad=True)
    for _ in range(600):
        (gradient,) = torch.autograd.grad(distribution_focal_loss(logits, torch.tensor([7.3])).sum, logits)
        with torch.no_grad():
            logits -= 4 * gradient
    assert expectation(logits, CoordGrid(20, 20)).item() == pytest.approx(7.3 / 20, abs=1e-3)


def test_distribution_focal_loss_is_differentiable_and_finite():
    logits = torch.randn(3, 6, generator=torch.Generator().manual_seed(1), dtype=F64).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: distribution_focal_loss(x, torch.tensor([0.0, 2.5, 5.0])).sum, logits)
    edge = torch.zeros(1, 4, requires_grad=True)
    masked = torch.where(torch.arange(4) == 3, -torch.inf, edge)
    value = distribution_focal_loss(masked, torch.tensor([2.0])).sum
    value.backward()
    assert value.item() == pytest.approx(math.log(3))
    assert torch.isfinite(edge.grad).all()
    assert distribution_focal_loss(torch.zeros(1, 1), torch.tensor([0.0])).sum.item() == 0  # one bin
    assert distribution_focal_loss(torch.zeros(2, 5).bfloat16(), torch.ones(2)).sum.dtype == torch.float32


@pytest.mark.parametrize("delta", [0.01, 0.2])
def test_huber_is_quadratic_inside_delta_and_linear_outside(delta):
    differences = [0.0, 0.004, 0.01, 0.05, -0.3]
    expected = sum(d * d / (2 * delta) if abs(d) < delta else abs(d) - delta / 2 for d in differences)
    true = torch.full((5,), 0.5, dtype=F64)
    found = expectation_huber(true + torch.tensor(differences, dtype=F64), true, delta)
    assert found.sum.item() == pytest.approx(expected)
    with pytest.raises(ValueError, match="delta"):
        expectation_huber(true, true, 0.0)
