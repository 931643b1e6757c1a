"""Small updates in bfloat16: `dtype="auto"` keeps them, a bfloat16 table loses them."""

import pytest
import torch
from offset_tiny import batch, prepared, shake, tables_of, tiny

from coord_adapter import install_coord_offset_adapter


def movement(base_dtype, table_dtype, steps=200, lr=1e-5):
    """How far the tables went in 200 steps from the same non-zero start, [K, H] in float64."""
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


def test_two_hundred_bfloat16_steps_follow_float32():
    expected = movement(torch.float32, "auto")
    kept = movement(torch.bfloat16, "auto")
    lost = movement(torch.bfloat16, "bfloat16")
    assert expected.norm() > 0.01
    assert kept.norm().item() == pytest.approx(expected.norm().item(), rel=0.1)
    assert torch.cosine_similarity(kept.flatten(), expected.flatten(), dim=0) > 0.9
    assert lost.norm() < 0.5 * expected.norm()


def test_auto_follows_the_model_where_deepspeed_keeps_a_float32_master():
    pytest.importorskip("deepspeed", reason="the float32 master is DeepSpeed's")
    from transformers.integrations import HfDeepSpeedConfig

    settings = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": {"stage": 2}}
    keeps_master = HfDeepSpeedConfig({**settings, "bf16": {"enabled": True}})
    assert tables_of(prepared(dtype=torch.bfloat16)).embed_offset.dtype == torch.bfloat16
    assert tables_of(prepared(dtype=torch.float32)).embed_offset.dtype == torch.float32
    del keeps_master
    without = HfDeepSpeedConfig({**settings, "bf16": {"enabled": "auto"}})
    assert tables_of(prepared(dtype=torch.bfloat16)).embed_offset.dtype == torch.float32
    del without
