"""The attention that this machine can run, in place of one that it cannot."""

from __future__ import annotations

from importlib.util import find_spec

import torch

from .config import RunConfig
from .console import say


def with_usable_attention(config: RunConfig) -> RunConfig:
    """`config`, with sdpa where flash-attention was asked for and cannot run; says so."""
    if config.model.attention != "flash_attention_2":
        return config
    if find_spec("flash_attn") is None:
        reason = "flash_attn is not installed"
    elif not torch.cuda.is_available():
        reason = "there is no GPU"
    elif config.model.dtype == "float32":
        reason = "it does not know float32, which model.dtype asks for"
    else:
        return config
    say(f"model.attention: sdpa instead of flash_attention_2, since {reason}")
    return config.model_copy(update={"model": config.model.model_copy(update={"attention": "sdpa"})})
