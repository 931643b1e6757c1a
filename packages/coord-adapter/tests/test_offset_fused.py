"""The row-selecting head: one call with another `lm_head.forward`, offsets applied by the caller."""

import contextlib

import pytest
import torch
from offset_tiny import IDS, batch, logits, lora, peft_model, prepared, shake, tables_of, tiny
from peft import get_peft_model
from torch.nn.functional import cross_entropy

from coord_adapter import active_offsets, bypass_head_hook, install_coord_offset_adapter


@contextlib.contextmanager
def fused_loss(model, rows_BT, targets_N):
    """Stand in for the head: select rows, take the loss with the offsets applied explicitly."""
    head = model.get_base_model().lm_head if hasattr(model, "get_base_model") else model.lm_head

    def forward(hidden_BTH):
        offsets = active_offsets(model)
        hidden_NH = hidden_BTH[rows_BT]
        logits_NV = hidden_NH @ offsets.head_weight.T
        logits_NV = logits_NV.index_add(1, offsets.ids, hidden_NH @ offsets.offsets.to(hidden_NH.dtype).T)
        return cross_entropy(logits_NV, targets_N, reduction="sum")[None]

    head.forward = forward
    try:
        with bypass_head_hook(model):
            yield
    finally:
        del head.forward


@pytest.mark.parametrize("build", [prepared, peft_model], ids=["bare", "peft"])
def test_fused_loss_and_gradients_equal_the_plain_head(combination, build):
    rows_BT = torch.zeros(2, 24, dtype=torch.bool)
    rows_BT[0, 3:20:2] = rows_BT[1, 5:] = True
    targets_N = torch.arange(int(rows_BT.sum())) * 7 % 300
    plain, fused = build(*combination), build(*combination)
    expected = cross_entropy(plain(**batch()).logits[rows_BT], targets_N, reduction="sum")
    expected.backward()
    with fused_loss(fused, rows_BT, targets_N):
        loss = fused(**batch()).logits[0]
        loss.backward()
    torch.testing.assert_close(loss, expected, rtol=1e-5, atol=1e-4)
    for (name, mine), (_, theirs) in zip(fused.named_parameters(), plain.named_parameters(), strict=True):
        if mine.requires_grad:
            torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-4, msg=name)
    assert torch.equal(logits(fused), logits(plain))


def test_the_bypass_ends_with_its_context_even_after_an_error():
    model = prepared()
    expected = logits(model)
    with pytest.raises(RuntimeError, match="inside"), bypass_head_hook(model), bypass_head_hook(model):
        raise RuntimeError("inside")
    assert torch.equal(logits(model), expected)
    with bypass_head_hook(model):
        assert not torch.equal(logits(model), expected)


def test_active_offsets_name_the_table_of_the_head():
    untied = prepared(tie_head=False)
    found = active_offsets(untied)
    assert found.ids.tolist() == IDS
    assert torch.equal(found.offsets, tables_of(untied).head_offset)
    assert found.head_weight is untied.lm_head.weight
    tied = peft_model()
    assert torch.equal(active_offsets(tied).offsets, tables_of(tied).embed_offset)
    assert active_offsets(torch.nn.DataParallel(tied)).ids.tolist() == IDS


def test_active_offsets_are_none_where_nothing_is_added():
    model = peft_model()
    with model.disable_adapter():
        assert active_offsets(model) is None
    assert active_offsets(tiny()) is None
    with bypass_head_hook(tiny()):
        pass


def test_a_head_with_lora_is_refused():
    base = tiny(False)
    install_coord_offset_adapter(base, IDS)
    model = shake(get_peft_model(base, lora(target_modules=["lm_head"])))
    with pytest.raises(ValueError, match="lm_head out of target_modules"):
        active_offsets(model)
