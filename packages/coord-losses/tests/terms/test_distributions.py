"""Soft targets, soft cross-entropy, W1, gate and expectation against naive references in float64."""

import math

import pytest
import torch

from coord_codec import CoordGrid
from coord_losses import expectation, soft_cross_entropy, soft_targets, vocab_gate, wasserstein1

F64 = torch.float64


def naive_targets(t, num_bins, sigma, truncate):
    weights = [math.exp(-((i - t) ** 2) / (2 * sigma**2)) if abs(i - t) <= truncate else 0 for i in range(num_bins)]
    return [w / sum(weights) for w in weights]


def random_logits(*shape, scale=3.0, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64) * scale


@pytest.mark.parametrize(
    ("num_bins", "sigma", "truncate"), [(1000, 2.0, 16), (10, 0.7, 2), (7, 30.0, 100), (5, 1e-30, 3)]
)
def test_soft_targets_equal_their_formula_at_the_edges_too(num_bins, sigma, truncate):
    bins = [0, 1, num_bins // 2, num_bins - 2, num_bins - 1]
    expected = torch.tensor([naive_targets(t, num_bins, sigma, truncate) for t in bins], dtype=F64)
    found = soft_targets(torch.tensor(bins), num_bins, sigma, truncate, dtype=F64)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(found.sum(1), torch.ones(5, dtype=F64))


def test_soft_targets_reach_exactly_as_far_as_truncate():
    q = soft_targets(torch.tensor([500, 3]))
    assert (q > 0).sum(1).tolist() == [33, 20]
    assert q[0, 484] > 0
    assert q[0, 483] == 0


def test_soft_targets_with_truncate_zero_are_one_hot():
    assert soft_targets(torch.tensor([2]), 4, truncate=0).tolist() == [[0, 0, 1, 0]]


@pytest.mark.parametrize(
    ("bins", "kwargs", "words"),
    [
        ([1000], {}, "token ids"),
        ([-1], {}, "0..999"),
        ([1], {"sigma": 0.0}, "sigma"),
        ([1], {"truncate": -1}, "truncate"),
    ],
)
def test_soft_targets_refuse_bad_arguments(bins, kwargs, words):
    with pytest.raises(ValueError, match=words):
        soft_targets(torch.tensor(bins), **kwargs)


def test_soft_cross_entropy_by_hand():
    # Two bins, p = (3/4, 1/4), q = (1/2, 1/2): -(ln(3/4) + ln(1/4)) / 2.
    logits = torch.tensor([[math.log(3.0), 0.0]], dtype=F64)
    found = soft_cross_entropy(logits, torch.tensor([[0.5, 0.5]], dtype=F64))
    assert found.sum.item() == pytest.approx(-(math.log(0.75) + math.log(0.25)) / 2, abs=1e-15)
    assert found.count.item() == 1
    assert found.count.dtype == torch.int64


@pytest.mark.parametrize("temperature", [0.3, 1.0, 4.0])
def test_soft_cross_entropy_is_a_plain_sum(temperature):
    logits = random_logits(6, 50)
    q = soft_targets(torch.tensor([0, 3, 20, 21, 48, 49]), 50, dtype=F64)
    expected = 0.0
    for row, target in zip((logits / temperature).tolist(), q.tolist(), strict=True):
        log_z = math.log(sum(math.exp(z) for z in row))
        expected -= sum(t * (z - log_z) for z, t in zip(row, target, strict=True))
    assert soft_cross_entropy(logits, q, temperature).sum.item() == pytest.approx(expected, rel=1e-12)


def test_soft_cross_entropy_of_one_hot_targets_is_cross_entropy():
    logits, bins = random_logits(5, 30), torch.tensor([0, 7, 8, 28, 29])
    expected = torch.nn.functional.cross_entropy(logits, bins, reduction="sum")
    torch.testing.assert_close(soft_cross_entropy(logits, soft_targets(bins, 30, truncate=0, dtype=F64)).sum, expected)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_wasserstein1_equals_scipy_distance_over_999(temperature):
    from scipy.stats import wasserstein_distance  # slow to import

    logits = random_logits(8, 1000, scale=2.0)
    q = soft_targets(torch.tensor([0, 1, 5, 300, 500, 900, 998, 999]), dtype=F64)
    p = torch.softmax(logits / temperature, 1).numpy()
    expected = [wasserstein_distance(range(1000), range(1000), u, v) / 999 for u, v in zip(p, q.numpy(), strict=True)]
    assert wasserstein1(logits, q, temperature).sum.item() == pytest.approx(sum(expected), rel=1e-9)


def test_wasserstein1_by_hand():
    # All mass one bin from a one-hot target among five: 1/4; at the wrong end: 1.
    logits = torch.full((2, 5), -1e4, dtype=F64)
    logits[0, 2] = logits[1, 4] = 1e4
    q = soft_targets(torch.tensor([1, 0]), 5, truncate=0, dtype=F64)
    assert wasserstein1(logits[:1], q[:1]).sum.item() == pytest.approx(0.25)
    assert wasserstein1(logits[1:], q[1:]).sum.item() == pytest.approx(1.0)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_vocab_gate_is_minus_log_of_the_coordinate_mass(temperature):
    logits = random_logits(4, 20)
    ids = range(12, 17)
    mass = torch.softmax(logits / temperature, 1)[:, 12:17].sum(1)
    assert vocab_gate(logits, ids, temperature).sum.item() == pytest.approx(-mass.log().sum().item(), rel=1e-12)
    assert vocab_gate(logits, torch.tensor(list(ids)), temperature).sum == vocab_gate(logits, ids, temperature).sum


def test_vocab_gate_keeps_its_digits_at_low_temperature():
    """At T = .01 both sums are about 3,000 and their difference, 1e-9 to 1e-3, is below float32's step there."""
    logits = random_logits(6, 20, scale=0.03) + 30
    logits[:, 12:17] += torch.linspace(0.1, 0.25, 6, dtype=F64)[:, None]
    exact, found = logits.clone().requires_grad_(), logits.float().requires_grad_()
    scaled = exact / 0.01
    expected = torch.logsumexp(scaled, 1) - torch.logsumexp(scaled[:, 12:17], 1)
    assert 1e-11 < expected.min() < expected.max() < 0.1
    for n, value in enumerate(expected):
        one = vocab_gate(found[n : n + 1], range(12, 17), 0.01).sum
        assert one.item() == pytest.approx(value.item(), rel=2e-3)  # logits of 30 are rounded by 1e-6, / T
        one.backward()
    expected.sum().backward()
    torch.testing.assert_close(found.grad.double(), exact.grad, rtol=5e-3, atol=1e-9)


def test_vocab_gate_of_a_vocabulary_of_coordinates_alone_is_zero():
    logits = random_logits(3, 5).requires_grad_()
    value = vocab_gate(logits, range(5)).sum
    value.backward()
    assert value.item() == 0
    assert logits.grad.abs().sum() == 0


def test_soft_cross_entropy_ignores_a_logit_of_minus_infinity_outside_the_window():
    q = soft_targets(torch.tensor([2, 3]), 8, sigma=1.0, truncate=2, dtype=F64)
    logits = random_logits(2, 8)
    logits[:, 7] = -torch.inf
    logits.requires_grad_()
    value = soft_cross_entropy(logits, q).sum
    expected = soft_cross_entropy(logits.detach()[:, :7], q[:, :7]).sum
    assert value.item() == pytest.approx(expected.item(), rel=1e-12)
    value.backward()
    assert torch.isfinite(logits.grad).all()
    inside = logits.detach().clone()
    inside[0, 2] = -torch.inf  # the true bin itself
    assert soft_cross_entropy(inside, q).sum.item() == math.inf


def test_vocab_gate_by_hand():
    # Four equal logits, one of them a coordinate: -ln(1/4).
    assert vocab_gate(torch.zeros(1, 4, dtype=F64), [2]).sum.item() == pytest.approx(math.log(4))


IDS = list(range(5, 12))
Q = soft_targets(torch.arange(3) + 1, 7, sigma=1.0, truncate=3, dtype=F64)
LOSSES = {
    "soft_ce": lambda x: soft_cross_entropy(x[:, IDS], Q[: len(x)], 0.7).sum,
    "w1": lambda x: wasserstein1(x[:, IDS], Q[: len(x)], 0.7).sum,
    "gate": lambda x: vocab_gate(x, IDS, 0.7).sum,
    "expectation": lambda x: expectation(x[:, IDS], CoordGrid(7, 10), 0.7).sum(),
}
every_loss = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES)


@every_loss
def test_losses_pass_gradcheck(loss):
    logits = random_logits(3, 14).requires_grad_()
    assert torch.autograd.gradcheck(loss, logits)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@every_loss
def test_losses_of_extreme_logits_stay_finite(loss, dtype):
    logits = torch.zeros(3, 14)
    logits[0, 6], logits[1, 2], logits[2] = 1e4, 1e4, -1e4
    logits[2, 13] = 1e4
    logits = logits.to(dtype).requires_grad_()
    value = loss(logits)
    assert value.dtype == torch.float32
    value.backward()
    assert torch.isfinite(value)
    assert torch.isfinite(logits.grad).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@every_loss
def test_losses_of_half_precision_are_computed_in_float32(loss, dtype):
    logits = random_logits(3, 14).to(dtype)
    torch.testing.assert_close(loss(logits), loss(logits.float()), rtol=0, atol=0)
    torch.testing.assert_close(loss(logits).double(), loss(logits.double()), rtol=1e-5, atol=1e-6)


@every_loss
def test_losses_of_no_rows_are_a_zero_in_the_graph(loss):
    logits = torch.zeros(0, 14, requires_grad=True)
    value = loss(logits)
    assert value.item() == 0.0
    value.backward()
    assert logits.grad.shape == (0, 14)


def test_soft_targets_get_no_gradient():
    q = soft_targets(torch.tensor([1]), 5).requires_grad_()
    logits = torch.zeros(1, 5, requires_grad=True)
    (soft_cross_entropy(logits, q).sum + wasserstein1(logits, q).sum).backward()
    assert q.grad is None
