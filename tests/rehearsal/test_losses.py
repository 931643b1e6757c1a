"""The losses on a simulated device: nothing mixed, equal values, and one wait a micro-batch."""

import pytest
import torch
from simulated_device import SimulatedDevice, on_device, watch_backward

from coord_codec import CoordGrid, CoordVocab
from coord_losses import CoordObjective, ObjectiveConfig, ObjectSlots, registered_terms

V, H = 90, 6
VOCAB = CoordVocab(30, CoordGrid(40, 40))
IDS = [*VOCAB.ids, 3, 80]
TERMS = {name: term for name, term in registered_terms().items() if term.trainable}


GROUPS = {
    "a": ObjectiveConfig.group_a(),
    "b": ObjectiveConfig.group_b(),
    "c": ObjectiveConfig.group_c(),
    "soft": ObjectiveConfig.soft(),
    "all": ObjectiveConfig.mixed(box_weight=1.0),
}


def problem():
    rng = torch.Generator().manual_seed(0)
    targets = torch.randint(0, VOCAB.first_id, (40,), generator=rng)
    rows = torch.randperm(40, generator=rng)[:16]
    targets[rows] = torch.randint(VOCAB.ids[0], VOCAB.ids[-1] + 1, (16,), generator=rng)
    corners = torch.rand(4, 2, 2, generator=rng)
    boxes = torch.cat([corners.amin(1), corners.amax(1)], dim=1)
    hidden, weight = torch.randn(40, H, generator=rng), torch.randn(V, H, generator=rng)
    offsets = 0.1 * torch.randn(len(IDS), H, generator=rng)
    return hidden, weight, offsets, targets, ObjectSlots(rows.view(-1, 4), boxes, torch.zeros(4, dtype=torch.long))


def on_simulated(slots):
    return ObjectSlots(on_device(slots.rows_M4), on_device(slots.boxes_M4), on_device(slots.image_M))


def total_and_gradients(config, form, trained, place=lambda x: x):
    hidden, weight, offsets, targets, slots = problem()
    hidden, weight, offsets, targets = (place(x) for x in (hidden, weight, offsets, targets))
    hidden.requires_grad_(), weight.requires_grad_(trained), offsets.requires_grad_()
    slots = slots if place(slots.rows_M4) is slots.rows_M4 else on_simulated(slots)
    objective = CoordObjective(config, VOCAB)
    if form == "fused":
        output = objective.fused(hidden, weight, targets, slots, offsets, offset_ids_K=IDS, chunk_rows=7)
    else:
        logits = hidden @ weight.T
        ids = place(torch.tensor(IDS))
        output = objective(logits.index_add(1, ids, hidden @ offsets.T), targets, slots)
    total = watch_backward(output.total())
    wanted = [x for x in (hidden, weight, offsets) if x.requires_grad]
    grads = torch.autograd.grad(total, wanted)
    return [x.detach().as_subclass(torch.Tensor) for x in (total, *grads)], output.diagnostics()


@pytest.mark.parametrize("form", ["fused", "readable"])
@pytest.mark.parametrize("trained", [False, True], ids=["frozen", "trained"])
@pytest.mark.parametrize("name", GROUPS)
def test_groups_mix_nothing_and_wait_once(name, trained, form):
    expected, _ = total_and_gradients(GROUPS[name], form, trained)
    with SimulatedDevice() as device:
        found, _ = total_and_gradients(GROUPS[name], form, trained, on_device)
    assert not device.mismatches
    assert sum(device.waits_of("coord_losses", "coord_codec").values()) == 1, device.waits
    assert all(torch.equal(f, e) for f, e in zip(found, expected, strict=True))


@pytest.mark.parametrize("form", ["fused", "readable"])
@pytest.mark.parametrize("name", TERMS)
def test_every_registered_term_mixes_nothing(name, form):
    field = TERMS[name].weight_field
    config = ObjectiveConfig(**({field: 1.0} if field else {"extra_weights": {name: 1.0}}))
    expected, _ = total_and_gradients(config, form, True)
    with SimulatedDevice() as device:
        found, _ = total_and_gradients(config, form, True, on_device)
    assert not device.mismatches
    assert all(torch.equal(f, e) for f, e in zip(found, expected, strict=True))
