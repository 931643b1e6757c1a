"""Memory of a step under DeepSpeed: what each stage of ZeRO shares out over the ranks."""

import pytest

from coord_trainer.model.memory import StepMemory, under_zero


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
