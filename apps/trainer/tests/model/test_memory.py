"""Memory of a step: what is counted, and what each stage of ZeRO shares out over the ranks."""

from types import SimpleNamespace

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from coord_codec import CoordGrid, CoordVocab
from coord_losses import CoordObjective, ObjectiveConfig
from coord_trainer.model import memory
from coord_trainer.model.memory import LiveBytes, StepMemory, measure_loss, under_zero


@pytest.mark.parametrize(
    ("stage", "weights", "gradients", "optimizer"),
    [(0, 2000, 2000, 12000), (1, 2000, 2020, 3000), (2, 2000, 520, 3000), (3, 500 + 600, 520, 3000)],
)
def test_each_stage_shares_one_part_more(stage, weights, gradients, optimizer):
    step = StepMemory(weights=2000, gradients=2000, optimizer=4000, activations=100, peak=8100)
    zero = {"stage": stage, "reduce_bucket_size": 10, "stage3_max_live_parameters": 300}
    found = under_zero(step, zero, ranks=4, trained=1000, half=True)
    assert (found.weights, found.gradients, found.optimizer) == (weights, gradients, optimizer)
    assert under_zero(step, zero | {"offload_optimizer": {"device": "cpu"}}, 4, 1000, True).optimizer == 0


@pytest.mark.parametrize(
    ("zero", "ranks", "half", "expected"),
    [
        # Weights in float32: no copy beside them; gradients of 4 bytes
        ({}, 1, False, (4000, 4000, 12000)),
        ({"stage": 0, "reduce_bucket_size": 10}, 4, True, (2000, 2000, 12000)),  # no bucket without a stage
        ({"stage": 1, "reduce_bucket_size": "auto"}, 4, True, (2000, 2000, 3000)),
        ({"stage": 2, "reduce_bucket_size": 5e1}, 2, True, (2000, 1100, 6000)),
        ({"stage": 3}, 4, True, (2000, 500, 3000)),  # all weights are gathered where the limit is not reached
        ({"stage": 3, "stage3_max_live_parameters": 0}, 4, True, (500, 500, 3000)),
        ({"stage": 2, "offload_optimizer": {"device": "none"}}, 4, True, (2000, 500, 3000)),
        ({"stage": 2, "offload_optimizer": {"device": "cpu"}}, 4, True, (2000, 500, 0)),
        ({"stage": 2, "offload_optimizer": None}, 4, True, (2000, 500, 3000)),
    ],
)
def test_sizes_of_each_setting(zero, ranks, half, expected):
    size = 2 if half else 4
    step = StepMemory(weights=1000 * size, gradients=1000 * size, optimizer=2000 * size, activations=100, peak=0)
    found = under_zero(step, zero, ranks, trained=1000, half=half)
    assert (found.weights, found.gradients, found.optimizer) == expected
    stage = zero.get("stage", 0)
    updated = expected[0] + expected[2] + 12000 // (ranks if stage else 1) + (expected[1] if stage == 3 else 0)
    assert found.peak == max(sum(expected) + 100, updated) and found.activations == 100


def test_frozen_weights_are_not_copied():
    step = StepMemory(weights=10_000, gradients=400, optimizer=800, activations=0, peak=0)
    found = under_zero(step, {"stage": 2}, 2, trained=100, half=True)
    assert (found.weights, found.gradients, found.optimizer) == (9600 + 200, 100, (800 + 400) // 2)


@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_each_storage_of_a_device_is_counted_once_while_it_lives(device):
    before = torch.zeros(5, device=device)
    with LiveBytes(device) as live:
        live.count(before)
        live.count(before[1:])
        live.count("no tensor")
        assert (live.now, live.peak) == (20, 20)
        new = before + 1
        part = new.view(5, 1)[2:]
        torch.zeros(100, device="meta" if device == "cpu" else "cpu")
        assert (live.now, live.peak) == (40, 40)
        del new
        assert live.now == 40  # a part of it lives
        del part
        assert (live.now, live.peak) == (20, 40)
        for given in torch.split(before * 2, 2):
            assert given.untyped_storage().nbytes() == 20 and live.now == 40


def test_products_are_cast_and_are_their_own_again_after_an_error():
    own = [(owner, name, vars(owner).get(name)) for owner, name in memory._PRODUCTS]
    x, image = torch.ones(2, 2), torch.ones(1, 2, 4, 4, requires_grad=True)
    with pytest.raises(RuntimeError, match="within"), memory._autocast(torch.bfloat16):
        products = [
            functional.linear(x, x, x[0]), torch.matmul(x, x), torch.bmm(x[None], x[None]), x @ x,
            functional.conv2d(image, torch.ones(3, 2, 1, 1), stride=2),
            functional.conv3d(image[None], torch.ones(3, 1, 1, 1, 1)),
        ]  # fmt: skip
        assert {found.dtype for found in products} == {torch.bfloat16} and products[4].shape == (1, 3, 2, 2)
        products[4].sum().backward()
        assert image.grad.dtype == torch.float32 and (x + x).dtype == torch.float32
        raise RuntimeError("within")
    assert own == [(owner, name, vars(owner).get(name)) for owner, name in memory._PRODUCTS]
    assert (x @ x).dtype == torch.float32 and "__matmul__" in dir(Tensor)


@pytest.mark.parametrize(("padded", "causal"), [(False, True), (True, False), (True, True)])
@pytest.mark.parametrize("groups", [1, 2])
def test_attention_keeps_inputs_output_a_number_a_row_and_the_mask_of_padded_text(padded, causal, groups):
    B, A, T, D = 2, 4, 8, 16
    query = torch.empty(B, A, T, D, device="meta", requires_grad=True)
    key, value = (torch.empty(B, A // groups, T, D, device="meta", requires_grad=True) for _ in range(2))
    with LiveBytes("meta") as live:
        for given in (query, key, value):
            live.count(given)
        before = live.now
        out, _ = memory._simulate_attention(SimpleNamespace(is_causal=causal), query, key, value, padded=padded)
        repeated = 2 * B * A * T * D if groups > 1 else 0
        mask = B * T * T if padded and causal else 0
        assert out.shape == (B, T, A, D)
        assert live.now - before == 4 * (
            repeated + 2 * B * A * T * D + B * A * T + mask
        )  # transposed, the output is a copy
        gradients = torch.autograd.grad(out.sum(), (query, key, value))
    assert [one.shape for one in gradients] == [query.shape, key.shape, value.shape]


@pytest.mark.parametrize("offsets", [0, 4, 12])
@pytest.mark.parametrize("trained", [False, True])
def test_memory_of_the_loss_grows_with_the_width_of_the_head(trained, offsets):
    """Measured at two small widths; the objective itself has the same bytes at the full one."""
    vocab = CoordVocab(20, CoordGrid(10, 10))
    objective = CoordObjective(ObjectiveConfig.soft(coord_ce_weight=1.0), vocab)
    labels = torch.tensor([[-100, 3, 21, 22, 5, 29], [-100, -100, 20, 4, 4, 7]])
    head = torch.zeros(3000, 256, requires_grad=trained)
    exact = memory.LossMemory(*memory._loss_memory(objective, head, 256, labels, None, offsets))
    found = measure_loss(objective, head, labels, None, offsets)
    for part in ("forward", "kept", "backward"):
        assert getattr(found, part) == pytest.approx(getattr(exact, part), rel=0.05) and getattr(exact, part) > 0, part
