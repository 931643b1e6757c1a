"""What the offsets do to embeddings, logits and gradients, against rows edited by hand."""

import pytest
import torch
from offset_tiny import (
    IDS,
    IMAGE,
    OTHERS,
    VISION_END,
    VISION_START,
    H,
    V,
    batch,
    logits,
    prepared,
    tables_of,
    tiny,
)
from torch.nn.functional import cross_entropy

from coord_adapter import MODULE_NAME, install_coord_offset_adapter


def edited_by_hand(tied, adapter):
    """The base with its rows moved: embedding and head held apart, each with its own copy of the weight."""
    model = tiny(tied, torch.float64)
    head = model.lm_head.weight.detach().clone()
    embed = model.get_input_embeddings().weight.detach().clone()
    for row, token in enumerate(IDS):
        embed[token] += adapter.embed_offset[row].detach()
        head[token] += (adapter.embed_offset if adapter.tied else adapter.head_offset)[row].detach()
    model.get_input_embeddings().weight = torch.nn.Parameter(embed)
    model.lm_head.weight = torch.nn.Parameter(head)
    return model


def test_logits_equal_a_model_whose_rows_were_edited(combination):
    tied, tie_head = combination
    model = prepared(tied, tie_head, torch.float64)
    reference = edited_by_hand(tied, tables_of(model))
    torch.testing.assert_close(logits(model), logits(reference), rtol=1e-9, atol=1e-9)
    assert (logits(model) - logits(tiny(tied, torch.float64))).abs().max() > 0.1


def test_gradients_equal_those_of_the_edited_rows(combination):
    tied, tie_head = combination
    model = prepared(tied, tie_head, torch.float64)
    reference = edited_by_hand(tied, tables_of(model))
    for each in (model, reference):
        ids_BT = batch()["input_ids"]
        cross_entropy(each(**batch()).logits[:, :-1].flatten(0, 1), ids_BT[:, 1:].flatten()).backward()
    adapter = tables_of(model)
    embed = reference.get_input_embeddings().weight.grad[IDS]
    head = reference.lm_head.weight.grad[IDS]
    if adapter.tied:
        torch.testing.assert_close(adapter.embed_offset.grad.double(), embed + head, rtol=1e-5, atol=1e-7)
    else:
        torch.testing.assert_close(adapter.embed_offset.grad.double(), embed, rtol=1e-5, atol=1e-7)
        torch.testing.assert_close(adapter.head_offset.grad.double(), head, rtol=1e-5, atol=1e-7)
    assert adapter.embed_offset.grad.abs().sum(1).gt(0).any()


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_a_fresh_install_is_the_base_bit_for_bit(combination, dtype):
    tied, tie_head = combination
    model = tiny(tied, dtype)
    before = logits(model)
    install_coord_offset_adapter(model, IDS, tie_head=tie_head)
    assert torch.equal(logits(model), before)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_every_other_id_keeps_its_bits(combination, dtype):
    tied, tie_head = combination
    base, model = tiny(tied, dtype), prepared(tied, tie_head, dtype)
    every = torch.arange(V)
    embeds, base_embeds = (m.get_input_embeddings()(every) for m in (model, base))
    assert torch.equal(embeds[OTHERS], base_embeds[OTHERS])
    assert not (embeds[IDS] == base_embeds[IDS]).all(1).any()
    hidden = torch.randn(3, 5, H, generator=torch.Generator().manual_seed(3)).to(dtype)
    columns, base_columns = (m.lm_head(hidden) for m in (model, base))
    assert torch.equal(columns[..., OTHERS], base_columns[..., OTHERS])
    assert not torch.equal(columns[..., IDS], base_columns[..., IDS])


def test_rows_follow_the_order_of_the_ids(combination):
    tied, tie_head = combination
    model = tiny(tied)
    install_coord_offset_adapter(model, IDS, tie_head=tie_head)
    base = model.get_input_embeddings().weight[IDS].clone()
    with torch.no_grad():
        tables_of(model).embed_offset.copy_(torch.arange(len(IDS))[:, None].expand(-1, H))
    moved = model.get_input_embeddings()(torch.tensor(IDS)) - base
    torch.testing.assert_close(moved[:, 0], torch.arange(len(IDS)).float())


def test_the_base_vocabulary_is_frozen_and_gets_no_gradient(combination):
    tied, tie_head = combination
    model = tiny(tied)
    model.train()
    install_coord_offset_adapter(model, IDS, tie_head=tie_head)
    model(**batch(), labels=batch()["input_ids"]).loss.backward()
    for layer in (model.get_input_embeddings(), model.lm_head):
        assert not layer.weight.requires_grad
        assert layer.weight.grad is None
    tables = dict(tables_of(model).named_parameters())
    assert set(tables) == ({"embed_offset"} if tie_head else {"embed_offset", "head_offset"})
    assert all(table.grad.abs().sum() > 0 for table in tables.values())


def test_base_keys_keep_their_names_and_values(combination):
    tied, tie_head = combination
    before = tiny(tied).state_dict()
    after = prepared(tied, tie_head).state_dict()
    ours = {key for key in after if key.startswith(f"{MODULE_NAME}.")}
    assert set(after) - ours == set(before)
    assert all(torch.equal(after[key], before[key]) for key in before)
    names = {key.removeprefix(f"{MODULE_NAME}.") for key in ours}
    assert names == {"token_ids", "embed_offset", "head_offset", "fingerprint", "format_version"}


def test_images_pass_and_coordinates_beside_them_move():
    patches = torch.randn(16, 3 * 2 * 16 * 16, generator=torch.Generator().manual_seed(0))
    ids_BT = torch.tensor([[1, VISION_START, *[IMAGE] * 4, VISION_END, *IDS[:6], 2]])
    inputs = {
        "input_ids": ids_BT, "attention_mask": torch.ones_like(ids_BT), "pixel_values": patches,
        "image_grid_thw": torch.tensor([[1, 4, 4]]), "mm_token_type_ids": (ids_BT == IMAGE).int(),
    }  # fmt: skip
    model = prepared(dtype=torch.float64)
    inputs["pixel_values"] = inputs["pixel_values"].double()
    torch.testing.assert_close(
        logits(model, **inputs),
        logits(edited_by_hand(True, tables_of(model)), **inputs),
        rtol=1e-6,
        atol=1e-6,
    )
