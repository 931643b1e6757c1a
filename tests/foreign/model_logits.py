"""Saves the inputs and logits that the installed transformers makes of an image: FOLDER OUT."""

import sys

import torch
import transformers
from PIL import Image

folder, out = sys.argv[1:]
processor = transformers.AutoProcessor.from_pretrained(folder)
model = transformers.AutoModelForImageTextToText.from_pretrained(folder, dtype=torch.float32).eval()
image = Image.radial_gradient("L").resize((90, 60)).convert("RGB")
content = [{"type": "image"}, {"type": "text", "text": "find<|coord_7|><|coord_12|>"}]
text = processor.apply_chat_template([{"role": "user", "content": content}], tokenize=False, add_generation_prompt=True)
inputs = processor(text=[text], images=[image], return_tensors="pt")
with torch.no_grad():
    logits = model(**inputs).logits
kept = {name: inputs[name] for name in ("input_ids", "pixel_values", "image_grid_thw")}
torch.save({"version": transformers.__version__, "logits": logits} | kept, out)
