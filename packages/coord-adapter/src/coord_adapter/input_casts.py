"""Leaves out the casts of PEFT's LoRA layers that autocast undoes."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from peft.helpers import disable_input_dtype_casting


def without_input_casts(model: Any, autocast: bool) -> AbstractContextManager[None]:
    """Let LoRA layers take activations as they are, forward and backward, within this context.

    The factors are in float32, so PEFT casts the input of each layer to float32, and autocast casts it back for the
    product: the values are the same without, and a tenth of a step's memory traffic is left out. DoRA computes norms
    in the dtype of the input, so its casts stay.

    Args:
        model: of PEFT or not
        autocast: whether forward passes are under autocast
    """
    kinds = [(config.peft_type, getattr(config, "use_dora", False)) for config in _configs(model)]
    return disable_input_dtype_casting(model, active=autocast and bool(kinds) and set(kinds) == {("LORA", False)})


def _configs(model: Any) -> list[Any]:
    found = getattr(model, "peft_config", None)
    return list(found.values()) if isinstance(found, dict) else []
