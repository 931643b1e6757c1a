"""Images attended to together against transformers, which takes one after another."""

import copy

import pytest
import torch
from transformers import Qwen3VLForConditionalGeneration

from coord_trainer.model import vision_tower
from coord_trainer.model.vision_tower import attend_to_images_together


@pytest.fixture(scope="module")
def plain(tiny_model):
    return Qwen3VLForConditionalGeneration.from_pretrained(tiny_model, dtype=torch.float64)


def patches_of(model, grids):
    """Return pixels of images with so many patches, and the tower's answer with its gradients."""
    torch.manual_seed(0)
    grid = torch.tensor(grids)
    width = model.model.visual.patch_embed.proj.weight[0].numel()
    pixels = torch.randn(int(grid.prod(1).sum()), width, dtype=torch.float64)
    model.zero_grad()
    found = model.model.visual(pixels, grid_thw=grid)
    total = found.pooler_output.square().sum() + sum(f.square().sum() for f in found.deepstack_features)
    total.backward()
    gradients = [parameter.grad.clone() for parameter in model.model.visual.parameters() if parameter.grad is not None]
    return [found.pooler_output.detach(), *gradients]


@pytest.mark.parametrize(
    ("grids", "calls"),
    [([[1, 4, 6]] * 5, 1), ([[1, 4, 6], [1, 6, 4]], 1), ([[1, 4, 6], [1, 4, 4]], 2), ([[1, 4, 6]], 1)],
    ids=["one size", "as many patches", "two sizes", "one image"],
)
def test_outputs_and_gradients_are_those_of_one_image_after_another(plain, monkeypatch, grids, calls):
    together = copy.deepcopy(plain)
    layers = attend_to_images_together(together)
    assert layers == len(plain.model.visual.blocks)
    expected = patches_of(plain, grids)
    seen = []
    attend = vision_tower.sdpa_attention_forward
    monkeypatch.setattr(vision_tower, "sdpa_attention_forward", lambda *a, **k: seen.append(1) or attend(*a, **k))
    found = patches_of(together, grids)
    assert len(seen) == calls * layers
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_other_attention_is_left_alone(plain):
    eager = copy.deepcopy(plain)
    eager.set_attn_implementation("eager")
    assert attend_to_images_together(eager) == 0
    assert eager.model.visual.config._attn_implementation == "eager"


def test_attention_that_is_chosen_afterwards_is_the_one_used(plain):
    changed = copy.deepcopy(plain)
    attend_to_images_together(changed)
    for chosen in ("eager", "sdpa"):
        changed.set_attn_implementation(chosen)
        plain.set_attn_implementation(chosen)
        for one, other in zip(patches_of(changed, [[1, 4, 6]] * 2), patches_of(plain, [[1, 4, 6]] * 2), strict=True):
            assert torch.equal(one, other)


def test_a_run_is_opened_with_it(opened_run, monkeypatch):
    _, run, _, samples = opened_run
    seen = []
    attend = vision_tower.sdpa_attention_forward
    monkeypatch.setattr(vision_tower, "sdpa_attention_forward", lambda *a, **k: seen.append(1) or attend(*a, **k))
    run.model.set_attn_implementation({"vision_config": "sdpa_images_together"})  # which other tests may have changed
    batch = run.collate([samples[index] for index in range(3)])
    run.model.model.visual(batch["pixel_values"], grid_thw=batch["image_grid_thw"])
    assert len(seen) == len(run.model.model.visual.blocks)
