"""The tiny Qwen3-VL of these tests: random weights, and offsets that are never zero."""

import contextlib
import copy
import functools

import torch
from peft import LoraConfig, get_peft_model
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

from coord_adapter import (
    MODULE_NAME,
    active_offsets,
    bypass_head_hook,
    install_coord_offset_adapter,
    with_offset_modules,
)

V, H = 300, 64
IMAGE, VIDEO, VISION_START, VISION_END = 296, 297, 298, 299
# Neither sorted nor contiguous: tables in the order given must not rely on either.
IDS = [*range(279, 239, -1), 5, 290, 17]
OTHERS = [token for token in range(V) if token not in IDS]
TEXT_LAYERS = r".*language_model.*\.(q_proj|v_proj)"


def tiny(tied=True, dtype=torch.float32, seed=0, vocab=V):
    """A copy of its own: to build the model takes three times as long."""
    model = copy.deepcopy(_built(tied, dtype, seed, vocab))
    torch.manual_seed(seed)
    return model


@functools.cache
def _built(tied, dtype, seed, vocab):
    torch.manual_seed(seed)
    rope = {"rope_type": "default", "rope_theta": 10000.0, "mrope_section": [4, 2, 2]}
    text = {
        "vocab_size": vocab, "hidden_size": H, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "max_position_embeddings": 512,
        "rope_parameters": rope, "tie_word_embeddings": tied, "initializer_range": 0.2, "bos_token_id": None,
        "eos_token_id": None,
    }  # fmt: skip
    vision = {
        "depth": 1, "hidden_size": 32, "intermediate_size": 64, "num_heads": 2, "out_hidden_size": H,
        "patch_size": 16, "num_position_embeddings": 64, "deepstack_visual_indexes": [0],
    }  # fmt: skip
    config = Qwen3VLConfig(
        text_config=text, vision_config=vision, tie_word_embeddings=tied, image_token_id=IMAGE,
        video_token_id=VIDEO, vision_start_token_id=VISION_START, vision_end_token_id=VISION_END,
    )  # fmt: skip
    return Qwen3VLForConditionalGeneration(config).to(dtype).eval()


def batch(seed=1, rows=2, length=24):
    """Random ids of both kinds, the placeholders of images excluded."""
    ids_BT = torch.randint(0, IMAGE, (rows, length), generator=torch.Generator().manual_seed(seed))
    ids_BT[:, ::3] = torch.tensor(IDS)[ids_BT[:, ::3] % len(IDS)]
    return {"input_ids": ids_BT, "attention_mask": torch.ones_like(ids_BT)}


def shake(model, std=0.05, seed=7):
    """Move everything trainable away from zero, so that nothing passes by being zero."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn(parameter.shape, generator=generator).to(parameter.dtype) * std)
    return model


def prepared(tied=True, tie_head=True, dtype=torch.float32, ids=IDS, fingerprint=None, **kwargs):
    """A frozen base with (non-zero) offsets, without PEFT."""
    model = tiny(tied, dtype)
    model.requires_grad_(False)
    install_coord_offset_adapter(model, ids, tie_head=tie_head, fingerprint=fingerprint, **kwargs)
    return shake(model)


def ready(tied=True, ids=IDS, **kwargs):
    """A base with tables that are zero."""
    base = tiny(tied)
    install_coord_offset_adapter(base, ids, **kwargs)
    return base


def lora(**kwargs):
    return LoraConfig(**with_offset_modules({"r": 4, "target_modules": TEXT_LAYERS, **kwargs}))


def peft_model(tied=True, tie_head=True, dtype=torch.float32, ids=IDS, fingerprint="f00d", **kwargs):
    """The base with offsets and LoRA, all of them non-zero, in eval mode."""
    base = tiny(tied, dtype)
    install_coord_offset_adapter(base, ids, tie_head=tie_head, fingerprint=fingerprint)
    return shake(get_peft_model(base, lora(**kwargs))).eval()


def tables_of(model):
    """The adapter module in use, below PEFT's wrapper where there is one."""
    module = (
        model.get_submodule(MODULE_NAME) if hasattr(model, MODULE_NAME) else model.base_model.model.coord_offset_adapter
    )
    return module.modules_to_save[module.active_adapters[0]] if hasattr(module, "modules_to_save") else module


@contextlib.contextmanager
def fused_head(model, select, loss):
    """Stand in for the head of a model: select rows, and take the loss with the offsets applied explicitly."""
    head = model.get_base_model().lm_head if hasattr(model, "get_base_model") else model.lm_head

    def forward(hidden_BTH):
        offsets, hidden_NH = active_offsets(model), select(hidden_BTH)
        logits_NV = hidden_NH @ offsets.head_weight.T
        logits_NV = logits_NV.index_add(1, offsets.ids, hidden_NH @ offsets.offsets.to(hidden_NH.dtype).T)
        return loss(logits_NV)[None]

    head.forward = forward
    try:
        with bypass_head_hook(model):
            yield
    finally:
        del head.forward


def logits(model, **kwargs):
    with torch.no_grad():
        return model(**(kwargs or batch())).logits
