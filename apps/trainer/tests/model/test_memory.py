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
