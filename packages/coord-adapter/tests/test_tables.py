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
    peft_model,
    prepared,
    shake,
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


def test_logits_equal_those_of_edited_rows(combination):
    tied, tie_head = combination
    model = prepared(tied, tie_head, torch.float64)
    reference = edited_by_hand(tied, tables_of(model))
    torch.testing.assert_close(logits(model), logits(reference), rtol=1e-9, atol=1e-9)
    assert (logits(model) - logits(tiny(tied, torch.float64))).abs().max() > 0.1


def test_gradients_equal_those_of_edited_rows(combination):
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
def test_other_ids_keep_their_bits(combination, dtype):
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


def test_rows_follow_order_of_ids(combination):
    tied, tie_head = combination
    model = tiny(tied)
    install_coord_offset_adapter(model, IDS, tie_head=tie_head)
    base = model.get_input_embeddings().weight[IDS].clone()
    with torch.no_grad():
        tables_of(model).embed_offset.copy_(torch.arange(len(IDS))[:, None].expand(-1, H))
    moved = model.get_input_embeddings()(torch.tensor(IDS)) - base
    torch.testing.assert_close(moved[:, 0], torch.arange(len(IDS)).float())


def test_logits_beside_an_image_equal_those_of_edited_rows():
    patches = torch.randn(16, 3 * 2 * 16 * 16, generator=torch.Generator().manual_seed(0))
    ids_BT = torch.tensor([[1, VISION_START, *[IMAGE] * 4, VISION_END, *IDS[:6], 2]])
    inputs = {
        "input_ids": ids_BT, "attention_mask": torch.ones_like(ids_BT), "pixel_values": patches,
        "image_grid_thw": torch.tensor([[1, 4, 4]]), "mm_token_type_ids": (ids_BT == IMAGE).int(),
    }  # fmt: skip
    model = prepared(dtype=torch.float64)
    inputs["pixel_values"] = inputs["pixel_values"].double()
    torch.testing.assert_close(
        logits(model, **inputs), logits(edited_by_hand(True, tables_of(model)), **inputs), rtol=1e-6, atol=1e-6
    )


def test_bfloat16_embeddings_are_summed_in_float32_and_rounded_once():
    model = prepared(dtype=torch.bfloat16)
    adapter = tables_of(model)
    assert adapter.embed_offset.dtype == torch.float32
    rows = model.get_input_embeddings()(torch.tensor(IDS))
    expected = (model.get_input_embeddings().weight[IDS].float() + adapter.embed_offset).bfloat16()
    assert torch.equal(rows, expected)


@pytest.mark.slow
def test_state_dict_of_bare_model_restores_offsets_of_other_sizes():
    trained = prepared(tie_head=False)
    again = prepared(ids=[1, 2])
    again.load_state_dict(trained.state_dict())
    assert torch.equal(logits(again), logits(trained))
    trained, again = peft_model(tie_head=False), peft_model(ids=[1, 2])
    again.load_state_dict(trained.state_dict())  # also the copy that PEFT keeps of the tables as they were
    with trained.disable_adapter(), again.disable_adapter():
        assert torch.equal(logits(again), logits(trained))
    assert torch.equal(logits(again), logits(trained))
    for frozen in (True, False):
        again = prepared(ids=[1, 2])
        again.coord_offset_adapter.requires_grad_(not frozen)
        again.load_state_dict(prepared(tie_head=False).state_dict())
        tables = dict(again.coord_offset_adapter.named_parameters())
        assert {name: table.requires_grad for name, table in tables.items()} == dict.fromkeys(
            ("embed_offset", "head_offset"), not frozen
        )
    later = prepared().state_dict()
    later[f"{MODULE_NAME}.format_version"] += 1
    with pytest.raises(RuntimeError, match=r"format|version"):
        prepared().load_state_dict(later)


def test_state_dict_of_trained_parameters_alone_is_restored(combination):
    """As DeepSpeed saves a PEFT model: every buffer, and of the parameters those that learn."""
    trained = shake(peft_model(*combination))
    frozen = {name for name, parameter in trained.named_parameters() if not parameter.requires_grad}
    saved = {name: value for name, value in trained.state_dict().items() if name not in frozen}
    again = peft_model(*combination)
    again.load_state_dict(saved, strict=False)
    assert torch.equal(logits(again), logits(trained))
    with again.disable_adapter(), trained.disable_adapter():
        assert torch.equal(logits(again), logits(trained))
    table = f"base_model.model.{MODULE_NAME}.modules_to_save.default.embed_offset"
    del saved[table]
    with pytest.raises(RuntimeError, match=r"embed_offset.*missing"):
        again.load_state_dict(saved, strict=False)


def test_rows_of_a_head_that_zero_3_has_partitioned_are_not_lent():
    from coord_adapter.head_proof import MovedHead

    head = torch.nn.Linear(4, 6, bias=False)
    ids_K, offsets_KH = torch.tensor([1, 3]), torch.ones(2, 4)
    expected = head.weight.detach().clone()
    expected[ids_K] += 1
    assert torch.equal(MovedHead(head, ids_K, offsets_KH).weight, expected)
    head.weight.data = torch.empty(0)  # as DeepSpeed leaves it between the module's calls
    with pytest.raises(ValueError, match=r"ZeRO-3 has partitioned: .* use stage 2"):
        _ = MovedHead(head, ids_K, offsets_KH).weight
