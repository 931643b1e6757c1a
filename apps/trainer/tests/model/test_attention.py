"""Attention within samples and images against transformers, which takes one image after another."""

import copy

import pytest
import torch
from naive_varlen import naive_varlen_attn
from transformers import Qwen3VLForConditionalGeneration

from coord_detect.model import attention
from coord_detect.model.attention import attend_by_sample


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


@pytest.mark.slow
@pytest.mark.parametrize("kernel", ["sdpa_attention_forward", "varlen_attn"])
@pytest.mark.parametrize(
    ("grids", "calls"),
    [([[1, 4, 6]] * 5, 1), ([[1, 4, 6], [1, 6, 4]], 1), ([[1, 4, 6], [1, 4, 4]], 2), ([[1, 4, 6]], 1)],
    ids=["one size", "as many patches", "two sizes", "one image"],
)
def test_outputs_and_gradients_are_those_of_one_image_after_another(plain, monkeypatch, grids, calls, kernel):
    together, seen = copy.deepcopy(plain), []
    attend_by_sample(together)
    expected = patches_of(plain, grids)
    if kernel == "varlen_attn":
        monkeypatch.setattr(attention, kernel, naive_varlen_attn)
        monkeypatch.setattr(attention, "_runs_varlen", lambda query: True)
        calls = 1
    own = getattr(attention, kernel)
    monkeypatch.setattr(attention, kernel, lambda *a, **k: seen.append(1) or own(*a, **k))
    found = patches_of(together, grids)
    assert len(seen) == calls * len(plain.model.visual.blocks)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


@pytest.mark.parametrize("causal", [True, False])
def test_grouped_heads_and_the_lengths_reach_the_kernel(monkeypatch, causal):
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, heads, 9, 8) for heads in (4, 2, 2))
    bounds, module = torch.tensor([0, 2, 9], dtype=torch.int32), torch.nn.Module()
    module.is_causal, module.num_key_value_groups = causal, 2
    given = {"cu_seq_lens_q": bounds, "max_length_q": 7, "scaling": 0.3}
    expected, _ = attention._attend(module, query, key, value, None, **given)
    seen = []
    monkeypatch.setattr(attention, "_runs_varlen", lambda query: True)
    monkeypatch.setattr(attention, "varlen_attn", lambda *a, **k: seen.append((a, k)) or naive_varlen_attn(*a, **k))
    found, _ = attention._attend(module, query, key, value, None, **given)
    torch.testing.assert_close(found, expected)
    ((q, k, v, *lengths), settings) = seen[0]
    assert (q.shape, k.shape, v.shape) == ((9, 4, 8), (9, 2, 8), (9, 2, 8))
    assert lengths[0] is lengths[1] is bounds and lengths[2:] == [7, 7]
    assert settings == {"scale": 0.3, "window_size": (-1, 0) if causal else (-1, -1)}


def test_rows_without_bounds_and_windows_are_refused():
    row = torch.randn(1, 2, 3, 8)
    bounds = {"cu_seq_lens_q": torch.tensor([0, 3]), "max_length_q": 3}
    for mask, given in ((None, {}), (torch.ones(1), bounds), (None, bounds | {"sliding_window": 2})):
        with pytest.raises(ValueError, match="packed rows alone"):
            attention._attend(torch.nn.Module(), row, row, row, mask, **given)


def test_other_attention_is_left_alone(plain):
    eager = copy.deepcopy(plain)
    eager.set_attn_implementation("eager")
    attend_by_sample(eager, packed=True)
    assert {part.config._attn_implementation for part in (eager.model.visual, eager.model.language_model)} == {"eager"}


@pytest.mark.slow
def test_attention_that_is_chosen_afterwards_is_the_one_used(plain):
    changed = copy.deepcopy(plain)
    attend_by_sample(changed)
    for chosen in ("eager", "sdpa"):
        changed.set_attn_implementation(chosen)
        plain.set_attn_implementation(chosen)
        for one, other in zip(patches_of(changed, [[1, 4, 6]] * 2), patches_of(plain, [[1, 4, 6]] * 2), strict=True):
            assert torch.equal(one, other)
