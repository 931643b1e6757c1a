"""The head below PEFT's wrappers with coordinate offsets, against the edited rows of a model that has none."""

from copy import deepcopy

import pytest
import torch
from peft import LoraConfig, get_peft_model
from transformers import Qwen3Config, Qwen3ForCausalLM

from coord_adapter import install_coord_offset_adapter, offset_parameters, with_offset_modules
from coord_codec import CoordVocab, find_layout
from coord_losses import CoordObjective, ObjectiveConfig, ObjectSlots
from coord_trainer.training.head import RowHead, row_selecting_head

pytest.importorskip("swift")
V, H, FIRST = 1100, 16, 50
VOCAB = CoordVocab(FIRST)
START, END = 2, 3
IDS = [*VOCAB.ids, START, END]
BOXES = ((10, 200, 500, 900), (0, 1, 999, 998))


def base(tied):
    torch.manual_seed(0)
    sizes = {"hidden_size": H, "intermediate_size": 24, "num_hidden_layers": 1, "head_dim": 8}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}
    return Qwen3ForCausalLM(Qwen3Config(vocab_size=V, tie_word_embeddings=tied, **sizes, **heads)).double()


def batch():
    rows = [[7, START, 11 + n, *(FIRST + side for side in box), END, 4] for n, box in enumerate(BOXES)]
    ids = torch.tensor(rows)
    labels = ids.clone()
    labels[:, 0] = -100
    layouts = [find_layout(row.tolist(), VOCAB, (START, END)) for row in labels]
    return ids, labels, ObjectSlots.from_layouts(layouts, labels, [None] * len(rows), VOCAB)


@pytest.mark.slow
@pytest.mark.parametrize("fused", [True, False], ids=["fused", "readable"])
@pytest.mark.parametrize("head_lora", [False, True], ids=["plain head", "LoRA on the head"])
@pytest.mark.parametrize("tie_head", [True, False])
@pytest.mark.parametrize("tied", [True, False])
def test_row_head_with_offsets_gives_the_loss_and_gradients_of_edited_rows(tied, tie_head, head_lora, fused):
    from coord_trainer.swift.trainer import active_head

    if tied and head_lora:
        pytest.skip("PEFT does not adapt a head that is the embedding")
    prepared = base(tied)
    install_coord_offset_adapter(prepared, IDS, tie_head=tie_head)
    targets = ["q_proj", *(["lm_head"] if head_lora else [])]
    model = get_peft_model(prepared, LoraConfig(**with_offset_modules({"r": 2, "target_modules": targets})))
    model.double()
    tables = offset_parameters(model)
    embed, head = tables["embed"][0], (tables["head"] or tables["embed"])[0]
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:  # the second matrix of LoRA begins as zero
                parameter.normal_(std=0.1)

    ids, labels, slots = batch()
    objective = CoordObjective(ObjectiveConfig.mixed(), VOCAB)
    rows = RowHead(objective, labels, slots, want_diagnostics=True, fused=fused)
    with row_selecting_head(model, active_head(model), rows):
        found = rows.rejoin(model(input_ids=ids, use_cache=False).logits).total()
    found.backward()

    plain = deepcopy(base(tied))
    lora = {name: p.detach() for name, p in model.named_parameters() if "lora_" in name}
    edited = {}
    for name, table in (("model.embed_tokens.weight", embed), ("lm_head.weight", head)):
        rows_VH = plain.get_parameter("model.embed_tokens.weight" if tied else name).detach().clone()
        edited[name] = rows_VH.index_add(0, torch.tensor(IDS), table.detach()).requires_grad_()
    weights = dict(edited)
    for layer in ("model.layers.0.self_attn.q_proj", *(["lm_head"] if head_lora else [])):
        a, b = (lora[f"base_model.model.{layer}.lora_{side}.default.weight"] for side in "AB")
        scale = model.base_model.get_submodule(f"model.{layer}").scaling["default"]
        weights[f"{layer}.weight"] = (
            weights.get(f"{layer}.weight", plain.get_parameter(f"{layer}.weight")) + scale * b @ a
        )
    plain.config.tie_word_embeddings, plain.lm_head.weight = (
        False,
        torch.nn.Parameter(edited["lm_head.weight"].detach()),
    )
    logits_BTV = torch.func.functional_call(plain, weights, kwargs={"input_ids": ids, "use_cache": False}).logits
    keep = labels[:, 1:] != -100
    expected = objective(logits_BTV[:, :-1][keep], labels[:, 1:][keep], slots).total()
    expected.backward()

    torch.testing.assert_close(found, expected, rtol=1e-9, atol=0)
    in_embed, in_head = (edited[name].grad[torch.tensor(IDS)] for name in edited)
    wanted = [in_embed, in_head] if tables["head"] else [in_embed + in_head]
    given = [embed.grad, head.grad] if tables["head"] else [embed.grad]
    for one, other in zip(given, wanted, strict=True):
        assert other.abs().max() > 1e-3
        torch.testing.assert_close(one, other, rtol=1e-7, atol=1e-10)
