"""Gradient checkpointing, compilation, generation, half precision: the ways a model is run."""

import pytest
import torch
from offset_tiny import IDS, batch, logits, peft_model, prepared, shake, tables_of, tiny
from torch import nn

from coord_adapter import install_coord_offset_adapter


def gradients(model):
    model.train()
    model(**batch(), labels=batch()["input_ids"]).loss.backward()
    return {name: parameter.grad for name, parameter in model.named_parameters() if parameter.requires_grad}


@pytest.mark.parametrize("reentrant", [True, False])
@pytest.mark.parametrize("input_grads", [True, False])
def test_gradient_checkpointing_changes_no_gradient(reentrant, input_grads):
    expected = gradients(peft_model(tie_head=False))
    model = peft_model(tie_head=False)
    model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": reentrant})
    if input_grads:
        model.enable_input_require_grads()
    torch.testing.assert_close(gradients(model), expected)


def test_input_grads_enabled_before_the_install_change_no_gradient():
    base = tiny()
    base.enable_input_require_grads()
    base.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": True})
    base.requires_grad_(False)
    adapter = install_coord_offset_adapter(base, IDS)
    shake(base)
    expected = gradients(prepared())["coord_offset_adapter.embed_offset"]
    gradients(base)
    torch.testing.assert_close(adapter.embed_offset.grad, expected)


@pytest.mark.slow
@pytest.mark.parametrize("build", [prepared, peft_model])
def test_hooks_compile_without_a_graph_break(build):
    """The model below the hooks is left out: compiling it takes twelve seconds, and says nothing of them."""
    model = build()

    class Vocabulary(nn.Module):
        def __init__(self):
            super().__init__()
            self.owner = model

        def forward(self, ids_BT):
            return model.get_output_embeddings()(model.get_input_embeddings()(ids_BT))

    ids_BT, tables = batch()["input_ids"], list(tables_of(model).parameters())
    expected = Vocabulary()(ids_BT)
    found = torch.compile(Vocabulary(), backend="aot_eager", fullgraph=True)(ids_BT)
    torch.testing.assert_close(found, expected)
    for value in zip(*(torch.autograd.grad(out.logsumexp(-1).sum(), tables) for out in (found, expected)), strict=True):
        torch.testing.assert_close(*value)


@pytest.mark.parametrize("keep", [1, 3, torch.tensor([0, 5, 9])], ids=["last", "three", "chosen"])
def test_logits_to_keep_selects_moved_logits(keep):
    model = peft_model()
    whole = logits(model)
    part = logits(model, **batch(), logits_to_keep=keep)
    expected = whole[:, -keep:] if isinstance(keep, int) else whole[:, keep]
    torch.testing.assert_close(part, expected, rtol=1e-5, atol=1e-5)


def test_generation_with_cache_equals_recomputing_each_prefix():
    model = peft_model()
    with torch.no_grad():
        tables_of(model).embed_offset.mul_(20)  # the coordinates win
    prompt = {key: value[:, :8] for key, value in batch().items()}
    made = model.generate(**prompt, max_new_tokens=6, do_sample=False, pad_token_id=0)
    ids_BT = prompt["input_ids"]
    for _ in range(6):
        step = logits(model, input_ids=ids_BT, attention_mask=torch.ones_like(ids_BT))[:, -1].argmax(-1)
        ids_BT = torch.cat([ids_BT, step[:, None]], 1)
    assert torch.equal(made, ids_BT)
    assert set(made[:, 8:].flatten().tolist()) & set(IDS)


def test_inputs_embeds_of_a_keyword_call_give_equal_logits():
    model = prepared()
    embeds_BTH = model.get_input_embeddings()(input=batch()["input_ids"])
    torch.testing.assert_close(
        logits(model, inputs_embeds=embeds_BTH, attention_mask=batch()["attention_mask"]), logits(model)
    )


def test_autocast_gradients_reach_the_float32_tables():
    model = prepared(tie_head=False).train()
    with torch.autocast("cpu", torch.bfloat16):
        out = model(**batch(), labels=batch()["input_ids"])
    out.loss.backward()
    for table in tables_of(model).parameters():
        assert table.grad.dtype == torch.float32
        assert table.grad.abs().sum() > 0


def movement(base_dtype, table_dtype, steps=60, lr=1e-5):
    """How far the tables went in sixty steps from the same non-zero start, [K, H] in float64."""
    model = tiny(dtype=base_dtype)
    model.requires_grad_(False)
    adapter = install_coord_offset_adapter(model, range(40, 80), dtype=table_dtype)
    shake(model)
    start = adapter.embed_offset.detach().double().clone()
    optimizer = torch.optim.AdamW([adapter.embed_offset], lr=lr, weight_decay=0.0)
    inputs = batch(rows=1, length=32)
    inputs["input_ids"] = inputs["input_ids"] % 40 + 40
    for _ in range(steps):
        model.train()(**inputs, labels=inputs["input_ids"]).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return adapter.embed_offset.detach().double() - start


@pytest.mark.slow
def test_sixty_bfloat16_steps_follow_float32():
    expected = movement(torch.float32, "auto")
    kept = movement(torch.bfloat16, "auto")
    lost = movement(torch.bfloat16, "bfloat16")
    assert expected.norm() > 0.01
    assert kept.norm().item() == pytest.approx(expected.norm().item(), rel=0.1)
    assert torch.cosine_similarity(kept.flatten(), expected.flatten(), dim=0) > 0.9
    assert lost.norm() < 0.5 * expected.norm()
