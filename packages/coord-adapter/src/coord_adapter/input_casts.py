"""Leaves out the casts of PEFT's LoRA layers that autocast undoes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from peft.helpers import disable_input_dtype_casting


@contextmanager
def without_input_casts(model: Any, autocast: bool) -> Iterator[None]:
    """Let LoRA layers take activations as they are, forward and backward, within this context.

    The factors are in float32, so PEFT casts the input of each layer to float32, and autocast casts it back for the
    product: the values are the same without, and a step takes less time and memory. DoRA computes norms in the dtype of
    the input, so its casts stay.

    Args:
        model: of PEFT or not
        autocast: whether forward passes are under autocast

    Example:
        >>> import torch
        >>> from peft import LoraConfig, get_peft_model
        >>> model = get_peft_model(torch.nn.Sequential(torch.nn.Linear(4, 4)), LoraConfig(target_modules=["0"]))
        >>> with without_input_casts(model, autocast=True):
        ...     model.base_model.model[0].cast_input_dtype_enabled
        False
    """
    configs = getattr(model, "peft_config", None)
    kinds = (
        {(c.peft_type, getattr(c, "use_dora", False)) for c in configs.values()} if isinstance(configs, dict) else ()
    )
    with disable_input_dtype_casting(model, active=autocast and kinds == {("LORA", False)}):
        yield
