"""What an image looks like to the vision tower: the mean over its merged patches.

Shapes: N images, H hidden width of the language model.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from PIL import Image

from coord_codec import InputError
from coord_trainer.families.table import FAMILIES
from coord_trainer.model.checkpoint import LoadedCheckpoint


@torch.inference_mode()
def image_features(checkpoint: LoadedCheckpoint, images: Sequence[Image.Image]) -> np.ndarray:
    """Return the features [N, H] of images, of length 1, from the vision tower alone.

    Args:
        checkpoint: the model
        images: upright and RGB

    Raises:
        InputError: the model is of no known family
        ValueError: the processor refuses an image
    """
    model = checkpoint.model.get_base_model() if hasattr(checkpoint.model, "get_base_model") else checkpoint.model
    family = FAMILIES.get(model.config.model_type)
    if family is None:
        raise InputError(f"the model's model_type {model.config.model_type!r} is not in the table of families")
    taken: list[torch.Tensor] = []
    hook = model.get_submodule(family.merger).register_forward_hook(lambda _, args, output: taken.append(output))
    rows = []
    try:
        for image in images:
            media = checkpoint.processor.image_processor(images=[image], return_tensors="pt")
            model.get_image_features(**{name: media[name].to(model.device) for name in family.image_inputs})
            tokens_TH = taken.pop().float().flatten(0, -2)
            rows.append(torch.nn.functional.normalize(tokens_TH.mean(dim=0), dim=0).cpu().numpy())
    finally:
        hook.remove()
    return np.stack(rows) if rows else np.zeros((0, 0))
