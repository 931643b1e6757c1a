"""Trains two steps in each trainer of TRL, by its fused head and by the logits of the live model, and prints both.

    PYTHONPATH=FOLDER_WITH_TRL python tests/foreign/trl_losses.py [sft dpo kto grpo rloo] [--without-moved-rows]
        [--wrapped]

The second run replaces TRL's fused head by the plain formula from the logits that the model returns, which the hook of
the offsets has moved: the reference, which reads no weight. With `--wrapped` the first run is one in each wrapping, on
two ranks with half of each batch, and the second in one process.
"""

import contextlib
import importlib
import json
import os
import sys
import tempfile
import types
import zlib
from pathlib import Path

import torch
import torch.distributed as dist
import transformers
import trl
from accelerate import FullyShardedDataParallelPlugin
from accelerate.utils.fsdp_utils import fsdp2_prepare_model
from datasets import Dataset
from peft import LoraConfig, get_peft_model
from tokenizers import Tokenizer, models, pre_tokenizers
from torch.multiprocessing import start_processes
from trl.trainer.utils import FusedCausalLMOutput

from coord_adapter import MODULE_NAME, hooks, install_coord_offset_adapter, with_offset_modules

V = 64
IDS = range(30, 60)
RANKS = 2
WRAPPINGS = {"DeepSpeed ZeRO 2": 2, "DeepSpeed ZeRO 3": 3, "FSDP2": None}
"""Wrappings, and their stage of DeepSpeed."""
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


def zero(stage):
    """Options of a trainer for DeepSpeed, which partitions from the first element on and takes torch's optimizer."""
    partitioned = {"stage": stage, "stage3_param_persistence_threshold": 0, "stage3_prefetch_bucket_size": 0}
    of_trainer = dict.fromkeys(["train_micro_batch_size_per_gpu", "gradient_accumulation_steps"], "auto")
    plain = {"zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False, "gradient_clipping": 0.0}
    return {"deepspeed": {"zero_optimization": partitioned} | of_trainer | plain}


def trainer(name, model, folder, batch, more_options):
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
        output_dir=folder, per_device_train_batch_size=batch, max_steps=2, learning_rate=0.05, logging_steps=1,
        bf16=False, report_to="none", save_strategy="no", disable_tqdm=True, gradient_checkpointing=False,
        max_grad_norm=0.0, optim="sgd", use_cpu=True, **options, **more_options,
    )  # fmt: skip
    os.environ.pop("ACCELERATE_USE_CPU", None)  # with which accelerate ignores DeepSpeed without a word
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


def shard(trained):
    """What accelerate does with FSDP2, which it leaves out on a CPU."""
    plugin = FullyShardedDataParallelPlugin(fsdp_version=2, auto_wrap_policy="transformer_based_wrap")
    state = types.SimpleNamespace(fsdp_plugin=plugin)
    fsdp2_prepare_model(types.SimpleNamespace(state=state, mixed_precision="no"), trained.model)
    trained.accelerator.prepare_model = lambda model, **_: model


def whole_tables(model):
    """Copies of the trained tables, gathered from the ranks."""
    tables = {n.rpartition(".")[2]: p for n, p in model.named_parameters() if MODULE_NAME in n and p.requires_grad}
    gathered = contextlib.nullcontext()
    if any(hasattr(table, "ds_id") for table in tables.values()):
        import deepspeed

        gathered = deepspeed.zero.GatheredParameters(list(tables.values()))
    with gathered:
        return {n: getattr(p, "full_tensor", p.detach)().detach().clone() for n, p in tables.items()}


def two_steps(name, dense=False, wrapping=None, batch=2):
    """Return the loss of each step, the movement of each table, and the gradient's norm; or the error that stops it."""
    model = adapted()
    if dense:
        module = importlib.import_module(f"trl.trainer.{name}_trainer")
        module.add_fused_lm_head = add_dense_head
    before, stage = whole_tables(model), WRAPPINGS.get(wrapping)
    with tempfile.TemporaryDirectory() as folder:
        trained = trainer(name, model, folder, batch, zero(stage) if stage else {})
        transformers.set_seed(0)
        if wrapping == "FSDP2":
            shard(trained)
        try:
            trained.train()
        except ValueError as error:
            return {"error": str(error)}
    log = [row for row in trained.state.log_history if "loss" in row]
    return {
        "loss": [row["loss"] for row in log],
        "grad_norm": [row.get("grad_norm") for row in log],
        "moved": {n: (table - before[n]).abs().sum().item() for n, table in whole_tables(model).items()},
    }


def be_a_rank(rank, folder, name, wrapping):
    torch.set_num_threads(1)  # in a fork, which has none of the other threads
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS), LOCAL_WORLD_SIZE=str(RANKS))
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="0", DS_ACCELERATOR="cpu", LOCAL_SIZE=str(RANKS))
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=RANKS)
    if WRAPPINGS[wrapping]:
        import deepspeed.ops
        from deepspeed.ops.op_builder.cpu import ShareMemCommBuilder

        deepspeed.ops.__compatible_ops__[ShareMemCommBuilder.NAME] = False  # it would be compiled, for a minute
    row = two_steps(name, wrapping=wrapping)
    if rank == 0:
        (Path(folder) / "row").write_text(json.dumps(row))
    dist.destroy_process_group()


def on_ranks(name, wrapping):
    """What `two_steps` returns on the first of two ranks."""
    with tempfile.TemporaryDirectory() as folder:
        start_processes(be_a_rank, (folder, name, wrapping), nprocs=RANKS, start_method="fork")
        return json.loads((Path(folder) / "row").read_text())


if __name__ == "__main__":
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    if "--without-moved-rows" in sys.argv:
        hooks.HeadLookup.__call__ = lambda self: hooks.output_head(self.owner)
    asked = [word for word in sys.argv[1:] if not word.startswith("--")] or list(TRAINERS)
    wrapped = "--wrapped" in sys.argv
    for name in asked:
        runs = {w: on_ranks(name, w) for w in WRAPPINGS} if wrapped else {None: two_steps(name)}
        dense = two_steps(name, dense=True, batch=2 * RANKS if wrapped else 2)
        for wrapping, fused in runs.items():
            print(json.dumps({"trainer": name, "wrapping": wrapping, "fused": fused, "dense": dense}), flush=True)
