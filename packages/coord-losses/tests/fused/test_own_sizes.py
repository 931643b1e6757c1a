"""The fused form with its own sizes of blocks, on every device, against the readable form in float64."""

import pytest
import torch

from coord_codec import CoordGrid, CoordVocab
from coord_losses import CoordObjective, ObjectiveConfig, ObjectSlots

cuda = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")]
by_device = pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=cuda)])

V, H, ROWS, OBJECTS = (70_000, 64, 1100, 60) if torch.cuda.is_available() else (2600, 64, 150, 12)
SEEDS = range(5)
"""The gradient of a box is ill-conditioned at the kinks of GIoU: medians over several draws are compared."""
VOCAB = CoordVocab(V - 1000, CoordGrid(900, 900))
CONFIGS = {
    "a": ObjectiveConfig.group_a(),
    "b": ObjectiveConfig.group_b(),
    "soft": ObjectiveConfig.soft(),
    "soft, warmer": ObjectiveConfig.soft(temperature=2.0),
    "all terms": ObjectiveConfig.mixed(box_weight=1.0),
}
by_config = pytest.mark.parametrize("config", CONFIGS.values(), ids=CONFIGS.keys())
by_head = pytest.mark.parametrize("trained", [False, True], ids=["frozen", "trained"])
COORDS = list(VOCAB.ids)
WITH_MARKERS = [*COORDS[::-1], 3, V - 1]


def draw(dtype, ids, seed=0):
    """Inputs that have these digits in every dtype: what is compared is arithmetic, not rounding of inputs."""
    rng = torch.Generator().manual_seed(seed)
    targets = torch.randint(0, VOCAB.first_id, (ROWS,), generator=rng)
    rows = torch.randperm(ROWS, generator=rng)[: 4 * OBJECTS]
    targets[rows] = torch.randint(COORDS[0], COORDS[-1] + 1, (len(rows),), generator=rng)
    corners = torch.rand(OBJECTS, 2, 2, generator=rng)
    boxes = torch.cat([corners.amin(1), corners.amax(1)], dim=1)
    slots = ObjectSlots(rows.view(-1, 4), boxes, torch.zeros(OBJECTS, dtype=torch.long))
    hidden = torch.randn(ROWS, H, generator=rng).to(dtype)
    weight = (0.3 * torch.randn(V, H, generator=rng)).to(dtype)
    offsets = None if ids is None else 0.1 * torch.randn(len(ids), H, generator=rng)
    return hidden, weight, offsets, targets, slots


def run(device, form, dtype, config, trained, drawn, ids, **chunks):
    """Total and gradients, in float64."""
    hidden, weight, offsets, targets, slots = drawn
    objective = CoordObjective(config, VOCAB)
    hidden, weight = (x.to(device, dtype, copy=True) for x in (hidden, weight))
    inputs = [hidden.requires_grad_(), weight.requires_grad_(trained)]
    if offsets is not None:
        offsets = offsets.to(device, torch.promote_types(dtype, torch.float32), copy=True).requires_grad_()
        inputs.append(offsets)
    targets, slots = targets.to(device), slots.to(device)
    if form == "fused":
        out = objective.fused(hidden, weight, targets, slots, offsets, offset_ids_K=ids, **chunks)
    else:
        logits = hidden @ weight.T
        if offsets is not None:
            added = (hidden.to(offsets.dtype) @ offsets.T).to(logits.dtype)
            logits = logits.index_add(1, torch.tensor(ids, device=device), added)
        out = objective(logits, targets, slots)
    total = out.total()
    grads = torch.autograd.grad(total, [x for x in inputs if x.requires_grad])
    assert all(x.device.type == device for x in (total, *grads))
    return [x.detach().double() for x in (total, *grads)]


def errors(found, exact):
    return [torch.linalg.vector_norm(f - e) / torch.linalg.vector_norm(e) for f, e in zip(found, exact, strict=True)]


def medians(errors_of_seeds):
    return torch.tensor(errors_of_seeds).median(dim=0).values.tolist()


@pytest.mark.drawn(2, "config")
@by_device
@by_config
@by_head
@pytest.mark.parametrize("ids", [None, COORDS, WITH_MARKERS], ids=["no offsets", "coordinates", "markers too"])
def test_float32_equals_float64_up_to_rounding(config, trained, ids, device):
    drawn = draw(torch.float32, ids)
    exact = run(device, "readable", torch.float64, config, trained, drawn, ids)
    found = run(device, "fused", torch.float32, config, trained, drawn, ids)
    assert max(errors(found, exact)) < 2e-5


@pytest.mark.slow
def test_ids_that_are_changed_in_place_are_read_again():
    """As when an adapter with other ids is loaded into the same buffer."""
    config, first, second = CONFIGS["all terms"], [3, 4, V - 1], [COORDS[0], 5, COORDS[7]]
    drawn, ids = draw(torch.float32, first), torch.tensor(first)
    for now in (first, second, first):
        ids.copy_(torch.tensor(now))
        found = run("cpu", "fused", torch.float32, config, True, drawn, ids)
        exact = run("cpu", "readable", torch.float64, config, True, drawn, now)
        assert max(errors(found, exact)) < 2e-5


@pytest.mark.slow
@by_device
@pytest.mark.parametrize(
    ("config", "trained", "dtype", "ids"),
    [
        ("all terms", True, torch.bfloat16, WITH_MARKERS),
        ("all terms", False, torch.float16, COORDS),
        ("soft, warmer", False, torch.bfloat16, None),
        ("b", True, torch.float16, WITH_MARKERS),
    ],
    ids=str,
)
def test_half_precision_is_as_accurate_as_the_readable_form(config, trained, dtype, ids, device):
    config, usual, whole, split = CONFIGS[config], [], [], []
    for seed in SEEDS:
        drawn = draw(dtype, ids, seed)
        exact = run(device, "readable", torch.float64, config, trained, drawn, ids)
        usual.append(errors(run(device, "readable", dtype, config, trained, drawn, ids), exact))
        whole.append(errors(run(device, "fused", dtype, config, trained, drawn, ids), exact))
        split.append(errors(run(device, "fused", dtype, config, trained, drawn, ids, chunk_rows=ROWS // 4), exact))
    for found in (whole, split):
        assert all(f <= 1.3 * u + 0.004 for f, u in zip(medians(found), medians(usual), strict=True))


@pytest.mark.cuda
@cuda[1]
@by_head
def test_autocast_rounds_the_products_alone(trained):
    config, found = CONFIGS["all terms"], []
    for seed in SEEDS:
        drawn = draw(torch.float32, COORDS, seed)
        exact = run("cuda", "readable", torch.float64, config, trained, drawn, COORDS)
        with torch.autocast("cuda", torch.bfloat16):
            found.append(errors(run("cuda", "fused", torch.float32, config, trained, drawn, COORDS), exact))
    total, *grads = medians(found)
    assert total < 2e-3
    assert max(grads) < 0.02


@pytest.mark.cuda
@cuda[1]
@by_config
def test_backward_of_a_frozen_head_never_waits_for_the_device(config):
    hidden, weight, _, targets, slots = draw(torch.bfloat16, None)
    hidden = hidden.cuda().requires_grad_()
    objective = CoordObjective(config, VOCAB)
    total = objective.fused(hidden, weight.cuda(), targets.cuda(), slots.to("cuda")).total()
    torch.cuda.set_sync_debug_mode("error")
    try:
        total.backward()
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert torch.isfinite(hidden.grad).all()


@pytest.mark.cuda
@cuda[1]
def test_memory_stays_far_below_that_of_full_logits():
    hidden, weight, _, targets, slots = draw(torch.bfloat16, None)
    hidden, weight = hidden.repeat(4, 1).cuda().requires_grad_(), weight.cuda()
    targets, slots = targets.repeat(4).cuda(), slots.to("cuda")
    objective = CoordObjective(CONFIGS["all terms"], VOCAB)
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    objective.fused(hidden, weight, targets, slots).total().backward()
    extra = torch.cuda.max_memory_allocated() - before
    assert extra < 0.6 * 4 * ROWS * V * 2  # of the logits in bfloat16 alone, without a gradient
