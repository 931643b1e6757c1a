"""Saves the inputs and logits that the installed transformers makes of an image, or the error: OUT FOLDER..."""

import sys
from pathlib import Path

import torch
import transformers
from PIL import Image


def logits_or_error(folder):
    """Return `logits`, or the text of what it raises."""
    try:
        return logits(folder)
    except Exception as error:
        return f"{type(error).__name__}: {error}"


def logits(folder):
    """Return the inputs and the logits of a checkpoint for one image, as tensors by name."""
    processor = transformers.AutoProcessor.from_pretrained(folder, use_fast=True)
    model = transformers.AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).eval()
    image = Image.radial_gradient("L").resize((90, 60)).convert("RGB")
    content = [{"type": "image"}, {"type": "text", "text": "find<|coord_7|><|coord_12|>"}]
    turns = [{"role": "user", "content": content}]
    text = processor.apply_chat_template(turns, tokenize=False, add_generation_prompt=True)
    inputs = processor(text=[text], images=[image], return_tensors="pt")
    with torch.no_grad():
        output = model(**inputs).logits
    return {name: inputs[name] for name in ("input_ids", "pixel_values")} | {"logits": output}


if __name__ == "__main__":
    seen = {place.name: logits_or_error(place) for place in map(Path, sys.argv[2:])}
    torch.save(seen | {"version": transformers.__version__}, sys.argv[1])
