"""Trains two steps in each trainer of TRL, by its fused head and by the logits of the live model, and prints both.

    PYTHONPATH=FOLDER_WITH_TRL python tests/foreign/trl_losses.py [sft dpo kto grpo rloo] [--without-moved-rows]

The second run replaces TRL's fused head by the plain formula from the logits that the model returns, which the hook of
the offsets has moved: the reference, which reads no weight.
"""

import importlib
import json
import sys
import tempfile
import types
import zlib

import torch
import transformers
import trl
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer, models, pre_tokenizers
from trl.trainer.utils import FusedCausalLMOutput

from coord_adapter import MODULE_NAME, hooks, install_coord_offset_adapter, with_offset_modules

V = 64
IDS = range(30, 60)
TRAINERS = {"sft": "SFT", "dpo": "DPO", "kto": "KTO", "grpo": "GRPO", "rloo": "RLOO"}


def tokenizer():
    words = {"<pad>": 0, "<unk>": 1, "<eos>": 2} | {f"w{i}": i for i in range(3, V)}
    plain = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    plain.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=plain, pad_token="<pad>", eos_token="<eos>", unk_token="<unk>"
    )


def adapted(tied=False):
    """A tiny model with LoRA and two tables of offsets, none of them zero."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "initializer_range": 0.5}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 2}
    base = transformers.Qwen2ForCausalLM(
        transformers.Qwen2Config(
            vocab_size=V, tie_word_embeddings=tied, pad_token_id=0, eos_token_id=2, bos_token_id=None, **sizes, **heads
        )
    )
    install_coord_offset_adapter(base, IDS, tie_head=False)
    model = get_peft_model(base, LoraConfig(**with_offset_modules({"r": 4, "target_modules": ["q_proj", "v_proj"]})))
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.add_(torch.randn(parameter.shape, generator=generator) * 0.3)
    return model


def text(length, seed):
    generator = torch.Generator().manual_seed(seed)
    return " ".join(f"w{i}" for i in torch.randint(3, V, (length,), generator=generator).tolist())


def reward(completions, **_):
    return [(zlib.crc32(text.encode()) % 97) / 97 for text in completions]


def trainer(name, model, folder):
    rows = [{"prompt": text(4, i)} for i in range(8)]
    more = {}
    for i, row in enumerate(rows):
        if name in ("sft", "kto"):
            row["completion"] = text(6, i + 50)
        if name == "kto":
            row["label"] = i % 2 == 0
        if name == "dpo":
            row |= {"chosen": text(6, i + 50), "rejected": text(5, i + 90)}
    options = {"num_generations": 2, "max_completion_length": 8, "beta": 0.1} if name in ("grpo", "rloo") else {}
    if options:
        more["reward_funcs"] = reward
    arguments = getattr(trl, f"{TRAINERS[name]}Config")(
        output_dir=folder, per_device_train_batch_size=2, max_steps=2, learning_rate=0.05, logging_steps=1, bf16=False,
        report_to="none", use_cpu=True, save_strategy="no", disable_tqdm=True, gradient_checkpointing=False,
        max_grad_norm=0.0, optim="sgd", **options,
    )  # fmt: skip
    kind = getattr(trl, f"{TRAINERS[name]}Trainer")
    return kind(
        model=model, args=arguments, train_dataset=Dataset.from_list(rows), processing_class=tokenizer(), **more
    )


def add_dense_head(model, temperature=1.0, outputs=(), **_):
    """What TRL's `add_fused_lm_head` computes, from the logits of the live model."""
    live = model.forward

    def forward(self, *args, fused_lm_head=False, labels=None, num_items_in_batch=None, **kwargs):
        if not fused_lm_head:
            return live(*args, **kwargs)
        log_probs = (live(*args, **kwargs | {"use_cache": False}).logits[:, :-1] / temperature).log_softmax(-1)
        labels, mask = labels[:, 1:], labels[:, 1:] != -100
        per_token = log_probs.gather(-1, labels.clamp(min=0)[..., None])[..., 0].masked_fill(~mask, 0)
        nothing = torch.zeros_like(per_token).detach()
        fields = {"entropy": -(log_probs.exp() * log_probs).sum(-1).detach()}
        fields |= {"mean_logits": nothing, "is_top1": nothing.bool()}
        return FusedCausalLMOutput(log_probs=per_token, label_mask=mask, loss=-per_token.sum() / mask.sum(), **fields)

    model.forward = types.MethodType(forward, model)


def two_steps(name, dense):
    """Return the loss of each step, the movement of each table, and the gradient's norm; or the error that stops it."""
    model = adapted()
    if dense:
        module = importlib.import_module(f"trl.trainer.{name}_trainer")
        module.add_fused_lm_head = add_dense_head
    tables = {n: p for n, p in model.named_parameters() if MODULE_NAME in n and p.requires_grad}
    before = {n: p.detach().clone() for n, p in tables.items()}
    with tempfile.TemporaryDirectory() as folder:
        trained = trainer(name, model, folder)
        transformers.set_seed(0)
        try:
            trained.train()
        except ValueError as error:
            return {"error": str(error)}
    log = [row for row in trained.state.log_history if "loss" in row]
    return {
        "loss": [row["loss"] for row in log],
        "grad_norm": [row["grad_norm"] for row in log],
        "moved": {n.rpartition(".")[2]: (p - before[n]).abs().sum().item() for n, p in tables.items()},
    }


if __name__ == "__main__":
    transformers.logging.set_verbosity_error()
    if "--without-moved-rows" in sys.argv:
        hooks.HeadLookup.__call__ = lambda self: hooks.output_head(self.owner)
    asked = [word for word in sys.argv[1:] if not word.startswith("--")] or list(TRAINERS)
    for name in asked:
        row = {"trainer": name, "fused": two_steps(name, dense=False), "dense": two_steps(name, dense=True)}
        print(json.dumps(row), flush=True)
