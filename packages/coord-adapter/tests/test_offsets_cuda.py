"""Offsets on a GPU: logits and gradients are those of the CPU, which other tests compare with edited rows."""

import pytest
import torch
from offset_tiny import IDS, OTHERS, batch, peft_model, prepared, tables_of, tiny

from coord_adapter import active_offsets, install_coord_offset_adapter

losses = pytest.importorskip("coord_losses", reason="compares through the objective of coord-losses")

DEVICE = "cuda"
pytestmark = [pytest.mark.cuda, pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device")]


def inputs(device=DEVICE):
    return {name: tensor.to(device) for name, tensor in batch().items()}


def forward_backward(model, device):
    """Logits, and the gradient of every trained parameter by name."""
    logits = model(**inputs(device)).logits
    labels = batch()["input_ids"][:, 1:].flatten().to(device)
    torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1).float(), labels).backward()
    return logits.detach().cpu(), {n: p.grad.cpu() for n, p in model.named_parameters() if p.requires_grad}


@pytest.mark.parametrize("build", [prepared, peft_model], ids=["bare", "peft"])
def test_logits_and_gradients_equal_those_of_the_cpu(combination, build):
    expected, expected_grads = forward_backward(build(*combination), "cpu")
    found, grads = forward_backward(build(*combination).to(DEVICE), DEVICE)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    assert grads.keys() == expected_grads.keys()
    for name, grad in grads.items():
        torch.testing.assert_close(grad, expected_grads[name], rtol=1e-3, atol=1e-4, msg=name)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
def test_fresh_tables_change_no_bit_and_shaken_ones_no_other_column(combination, dtype):
    tied, tie_head = combination
    base = tiny(tied, dtype).to(DEVICE)
    before = base(**inputs()).logits
    adapter = install_coord_offset_adapter(base, IDS, tie_head=tie_head)
    assert {p.device.type for p in adapter.parameters()} == {DEVICE}
    assert torch.equal(base(**inputs()).logits, before)
    hidden = torch.randn(3, 64, device=DEVICE).to(dtype)
    plain = base.lm_head(hidden)
    with torch.no_grad():
        for table in adapter.parameters():
            table.normal_(0, 0.05)
    moved = base.lm_head(hidden)
    assert torch.equal(moved[:, OTHERS], plain[:, OTHERS])
    assert not torch.equal(moved[:, IDS], plain[:, IDS])


def test_fused_objective_with_offsets_equals_the_model_s_own_logits(combination):
    model = prepared(*combination, dtype=torch.bfloat16).to(DEVICE)
    labels = batch()["input_ids"].to(DEVICE)
    hidden = model.model(**inputs()).last_hidden_state
    objective = losses.CoordObjective(losses.ObjectiveConfig(), None)
    offsets = active_offsets(model)
    rows, targets = losses.supervised_rows(hidden, labels)
    table = {"offsets_KH": offsets.offsets, "offset_ids_K": offsets.ids}
    fused = objective.fused(rows, offsets.head_weight, targets, **table).total()
    readable = objective(*losses.supervised_rows(model.lm_head(hidden), labels)).total()
    torch.testing.assert_close(fused, readable, rtol=5e-3, atol=0)
    table = tables_of(model).embed_offset
    found, expected = (torch.autograd.grad(x, table, retain_graph=True)[0] for x in (fused, readable))
    assert torch.linalg.vector_norm(found - expected) < 0.02 * torch.linalg.vector_norm(expected)
