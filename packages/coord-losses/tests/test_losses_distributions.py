"""Soft targets, soft cross-entropy, W1, gate and expectation against naive references in float64."""

import math

import pytest
import torch
from scipy.stats import wasserstein_distance

from coord_codec import CoordGrid
from coord_losses import expectation, soft_cross_entropy, soft_targets, vocab_gate, wasserstein1

F64 = torch.float64


def naive_targets(t, num_bins, sigma, truncate):
    weights = [
        math.exp(-((i - t) ** 2) / (2 * sigma**2)) if abs(i - t) <= truncate else 0 for i in range(num_bins)
    ]
    return [w / sum(weights) for w in weights]


def random_logits(*shape, scale=3.0, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=F64) * scale


@pytest.mark.parametrize(
    ("num_bins", "sigma", "truncate"), [(1000, 2.0, 16), (10, 0.7, 2), (7, 30.0, 100), (5, 1e-30, 3)]
)
def test_soft_targets_follow_their_formula_at_the_edges_too(num_bins, sigma, truncate):
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


def test_truncate_zero_is_one_hot():
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
def test_soft_targets_refuse_what_has_no_distribution(bins, kwargs, words):
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
    torch.testing.assert_close(
        soft_cross_entropy(logits, soft_targets(bins, 30, truncate=0, dtype=F64)).sum, expected
    )


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_w1_is_scipys_distance_over_999(temperature):
    logits = random_logits(8, 1000, scale=2.0)
    q = soft_targets(torch.tensor([0, 1, 5, 300, 500, 900, 998, 999]), dtype=F64)
    p = torch.softmax(logits / temperature, 1).numpy()
    expected = [
        wasserstein_distance(range(1000), range(1000), u, v) / 999 for u, v in zip(p, q.numpy(), strict=True)
    ]
    assert wasserstein1(logits, q, temperature).sum.item() == pytest.approx(sum(expected), rel=1e-9)


def test_w1_by_hand():
    # All mass one bin from a one-hot target among five: 1/4; at the wrong end: 1.
    logits = torch.full((2, 5), -1e4, dtype=F64)
    logits[0, 2] = logits[1, 4] = 1e4
    q = soft_targets(torch.tensor([1, 0]), 5, truncate=0, dtype=F64)
    assert wasserstein1(logits[:1], q[:1]).sum.item() == pytest.approx(0.25)
    assert wasserstein1(logits[1:], q[1:]).sum.item() == pytest.approx(1.0)


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
def test_gate_is_minus_log_of_the_coordinate_mass(temperature):
    logits = random_logits(4, 20)
    ids = range(12, 17)
    mass = torch.softmax(logits / temperature, 1)[:, 12:17].sum(1)
    assert vocab_gate(logits, ids, temperature).sum.item() == pytest.approx(
        -mass.log().sum().item(), rel=1e-12
    )
    assert (
        vocab_gate(logits, torch.tensor(list(ids)), temperature).sum
        == vocab_gate(logits, ids, temperature).sum
    )


def test_gate_by_hand():
    # Four equal logits, one of them a coordinate: -ln(1/4).
    assert vocab_gate(torch.zeros(1, 4, dtype=F64), [2]).sum.item() == pytest.approx(math.log(4))


def test_expectation_is_the_mean_of_the_grid():
    grid = CoordGrid(bins=5, scale=8)
    logits = random_logits(3, 5)
    values = [grid.dequantize(k) for k in range(5)]
    p = torch.softmax(logits / 2.0, 1).tolist()
    expected = [sum(w * v for w, v in zip(row, values, strict=True)) for row in p]
    assert expectation(logits, grid, temperature=2.0).tolist() == pytest.approx(expected, rel=1e-12)


def test_expectation_knows_the_default_grid():
    logits = torch.full((2, 1000), -1e4)
    logits[0, 0] = logits[1, 999] = 1e4
    assert expectation(logits).tolist() == pytest.approx([0.0, 0.999])
    assert expectation(torch.zeros(1, 1000, dtype=F64)).item() == pytest.approx(0.4995)


def test_expectation_refuses_the_full_vocabulary():
    with pytest.raises(ValueError, match="coordinate tokens' logits only"):
        expectation(torch.zeros(1, 1001))


def every_loss(logits, ids):
    q = soft_targets(torch.arange(3) + 1, len(ids), sigma=1.0, truncate=3, dtype=F64)[: len(logits)]
    coord = logits[:, ids]
    yield "soft_ce", lambda x: soft_cross_entropy(x[:, ids], q, 0.7).sum
    yield "w1", lambda x: wasserstein1(x[:, ids], q, 0.7).sum
    yield "gate", lambda x: vocab_gate(x, ids, 0.7).sum
    yield "expectation", lambda x: expectation(x[:, ids], CoordGrid(len(ids), 10), 0.7).sum()
    assert coord.shape[1] == len(ids)


@pytest.mark.parametrize("index", range(4))
def test_gradients(index):
    logits = random_logits(3, 14).requires_grad_()
    _, loss = list(every_loss(logits, list(range(5, 12))))[index]
    assert torch.autograd.gradcheck(loss, logits)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("index", range(4))
def test_extreme_logits_stay_finite(index, dtype):
    logits = torch.zeros(3, 14)
    logits[0, 6], logits[1, 2], logits[2] = 1e4, 1e4, -1e4
    logits[2, 13] = 1e4
    logits = logits.to(dtype).requires_grad_()
    _, loss = list(every_loss(logits, list(range(5, 12))))[index]
    value = loss(logits)
    assert value.dtype == torch.float32
    value.backward()
    assert torch.isfinite(value)
    assert torch.isfinite(logits.grad).all()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("index", range(4))
def test_half_precision_logits_are_computed_in_float32(index, dtype):
    logits = random_logits(3, 14).to(dtype)
    _, loss = list(every_loss(logits, list(range(5, 12))))[index]
    torch.testing.assert_close(loss(logits), loss(logits.float()), rtol=0, atol=0)
    torch.testing.assert_close(loss(logits).double(), loss(logits.double()), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("index", range(4))
def test_float64_stays_float64(index):
    logits = random_logits(3, 14)
    assert list(every_loss(logits, list(range(5, 12))))[index][1](logits).dtype == F64


@pytest.mark.parametrize("index", range(3))
def test_no_rows_give_a_zero_in_the_graph(index):
    logits = torch.zeros(0, 14, requires_grad=True)
    _, loss = list(every_loss(logits, list(range(5, 12))))[index]
    value = loss(logits)
    assert value.item() == 0.0
    value.backward()
    assert logits.grad.shape == (0, 14)


def test_targets_take_no_gradient():
    q = soft_targets(torch.tensor([1]), 5).requires_grad_()
    logits = torch.zeros(1, 5, requires_grad=True)
    (soft_cross_entropy(logits, q).sum + wasserstein1(logits, q).sum).backward()
    assert q.grad is None
