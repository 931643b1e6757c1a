"""Teaches a frozen Hugging Face model a box with LoRA and coordinate offsets, in a plain PyTorch loop."""

import torch
from peft import LoraConfig, get_peft_model
from transformers import Qwen3Config, Qwen3ForCausalLM

from coord_adapter import install_coord_offset_adapter, with_offset_modules
from coord_codec import CoordVocab, find_layout
from coord_losses import CoordExp, CoordObjective, ObjectiveConfig, ObjectSlots, supervised_rows

torch.manual_seed(0)
vocab = CoordVocab(first_id=100)  # of a real model: CoordVocab.from_tokenizer(tokenizer)
sizes = {"hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "head_dim": 16}
base = Qwen3ForCausalLM(Qwen3Config(vocab_size=1100, num_attention_heads=4, num_key_value_heads=2, **sizes))
install_coord_offset_adapter(base, vocab.ids, fingerprint=vocab.fingerprint())
model = get_peft_model(base, LoraConfig(**with_offset_modules({"r": 8, "target_modules": "all-linear"})))

box, start, end = [0.1, 0.25, 0.5, 0.75], 98, 99
tokens = [7, start, 42, *(vocab.bin_to_id(vocab.grid.quantize(side)) for side in box), end]
ids, labels = torch.tensor([tokens]), torch.tensor([[-100, *tokens[1:]]])  # the prompt is not trained on
layout = find_layout(tokens, vocab, markers=(start, end))
objects = ObjectSlots.from_layouts([layout], labels, [[box]], vocab)
objective = CoordObjective(ObjectiveConfig.soft(box_weight=1.0), vocab)
optimizer = torch.optim.AdamW((p for p in model.parameters() if p.requires_grad), lr=5e-3)
for step in range(61):
    logits = model(input_ids=ids).logits
    output = objective(*supervised_rows(logits, labels), objects)
    output.total().backward()
    optimizer.step()
    optimizer.zero_grad()
    if step % 20 == 0:
        print(step, {name: round((term.sum / term.count).item(), 3) for name, term in output.terms.items()})
boxes = CoordExp(vocab)(logits, [[found.logit_positions for found in layout.objects]])
print("expected box", boxes[0].tolist())
model.save_pretrained("adapter")
