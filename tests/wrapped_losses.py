"""Losses of a tiny model with offsets in each wrapping on two ranks, beside those of its logits in one process.

    python tests/wrapped_losses.py [process] [fsdp2] [tensor] [zero]

Prints a row of JSON for each wrapping and loss: the loss and its reference, and how far the gradients of the tables
are from the reference, as a part of the largest. `rows` multiplies by the head's weight itself, as TRL does.
"""

import json
import os
import sys
import tempfile
from types import MethodType

import accelerate
import torch
import torch.distributed as dist
import transformers
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import Replicate, init_device_mesh
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.multiprocessing import start_processes
from torch.nn.functional import cross_entropy, rms_norm

from coord_adapter import MODULE_NAME, install_coord_offset_adapter
from coord_codec import CoordGrid, CoordVocab
from coord_losses import CoordObjective, ObjectiveConfig, supervised_rows
from coord_losses.hf import patch

RANKS, V, LENGTH = 2, 64, 12
VOCAB = CoordVocab(first_id=30, grid=CoordGrid(bins=20, scale=20))
LOSSES = ("transformers", "objective", "rows")
OBJECTIVE = CoordObjective(ObjectiveConfig.soft(coord_ce_weight=0.5), VOCAB)
IDS_BT = torch.randint(3, V, (2 * RANKS, LENGTH), generator=torch.Generator().manual_seed(2))
IDS_BT[:, ::2] = 30 + IDS_BT[:, ::2] % 20
COUNTS = {
    "tokens": len(IDS_BT) * (LENGTH - 1),
    "coord_tokens": int(((IDS_BT >= 30) & (IDS_BT < 50))[:, 1:].sum()),
    "objects": 1,
}


def adapted():
    """A frozen tiny model with two tables of offsets, neither of them zero."""
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "initializer_range": 0.5}
    config = transformers.Qwen2Config(
        vocab_size=V, tie_word_embeddings=False, num_attention_heads=2, num_key_value_heads=2, **sizes
    )
    model = transformers.Qwen2ForCausalLM(config).requires_grad_(False)
    install_coord_offset_adapter(model, range(30, 50), tie_head=False)
    with torch.no_grad():
        for table in tables(model).values():
            table.add_(torch.randn(table.shape) * 0.3)
    return model


def tables(model):
    return {n.rpartition(".")[2]: p for n, p in model.named_parameters() if MODULE_NAME in n and p.requires_grad}


def multiply_by_weight(self, input_ids=None, labels=None, num_items_in_batch=None, **kwargs):
    """What the loss of TRL does: the head is never called."""
    hidden_BTH = self.model(input_ids=input_ids).last_hidden_state
    logits_BTV = hidden_BTH @ self.get_output_embeddings().weight.T
    loss = cross_entropy(logits_BTV[:, :-1].flatten(0, 1), labels[:, 1:].flatten(), reduction="sum")
    return {"loss": loss / num_items_in_batch}


def loss_of(model, loss, ids_BT):
    """The share of these rows in the loss of the batch, by the model's own forward pass."""
    asked = {"denominators": COUNTS} if loss == "objective" else {"num_items_in_batch": COUNTS["tokens"]}
    return model(input_ids=ids_BT, labels=ids_BT, **asked)["loss"]


def reference(loss):
    """Loss and gradients of the whole batch, from the logits of the live model in one process."""
    model = adapted()
    rows = supervised_rows(model(input_ids=IDS_BT).logits, IDS_BT)
    value = OBJECTIVE(*rows).total(COUNTS) if loss == "objective" else cross_entropy(*rows)
    value.backward()
    return value.item(), {name: table.grad for name, table in tables(model).items()}


def prepared(loss):
    model = adapted()
    if loss == "objective":
        patch(model, OBJECTIVE)
    if loss == "rows":
        model.forward = MethodType(multiply_by_weight, model)
    return model


def dispatched(loss):
    """accelerate's hooks of a device map, in one process."""
    model = prepared(loss)
    places = dict.fromkeys(["model.embed_tokens", "model.layers", "model.norm", "model.rotary_emb", "lm_head"], "cpu")
    accelerate.dispatch_model(model, places | {MODULE_NAME: "cpu"}, main_device="cpu", force_hooks=True)
    value = loss_of(model, loss, IDS_BT)
    value.backward()
    return value.item(), {name: table.grad for name, table in tables(model).items()}


def kernelized(loss):
    """What `use_kernels=True` does, in one process: `kernelize` puts the forward pass of a layer on each module."""
    model, called = prepared(loss), []

    def forward(self, hidden_states):
        called.append(self)
        return rms_norm(hidden_states, hidden_states.shape[-1:], self.weight, self.variance_epsilon)

    norms = [module for module in model.modules() if type(module).__name__ == "Qwen2RMSNorm"]
    for norm in norms:
        norm.forward = MethodType(forward, norm)
    value = loss_of(model, loss, IDS_BT)
    value.backward()
    assert called == norms
    return value.item(), {name: table.grad for name, table in tables(model).items()}


def own_rows():
    return IDS_BT[dist.get_rank() :: RANKS]


def summed(value):
    total = value.detach().clone()
    dist.all_reduce(total)
    return total.item()


def fsdp2(loss):
    model = prepared(loss)
    for layer in model.model.layers:
        fully_shard(layer, mesh=init_device_mesh("cpu", (RANKS,)))
    fully_shard(model, mesh=init_device_mesh("cpu", (RANKS,)))
    value = loss_of(model, loss, own_rows())
    (value * RANKS).backward()  # ranks' gradients are averaged
    return summed(value), {name: table.grad.full_tensor() for name, table in tables(model).items()}


def zero(stage):
    def wrapped(loss):
        import deepspeed.ops
        from deepspeed.ops.op_builder.cpu import ShareMemCommBuilder
        from deepspeed.utils import safe_get_full_grad

        deepspeed.ops.__compatible_ops__[ShareMemCommBuilder.NAME] = False  # it would be compiled, for minutes
        model = prepared(loss)
        own = tables(model)
        # From the first element on: by default, what is smaller than 100,000 stays whole.
        partitioned = {"stage": stage, "stage3_param_persistence_threshold": 0}
        config = {"train_micro_batch_size_per_gpu": 1, "zero_optimization": partitioned}
        config |= {"zero_allow_untested_optimizer": True, "zero_force_ds_cpu_optimizer": False}
        engine, *_ = deepspeed.initialize(model=model, optimizer=torch.optim.SGD(own.values(), 0.1), config=config)
        assert model.lm_head.weight.numel() == (0 if stage == 3 else V * 16)
        value = loss_of(engine, loss, own_rows())
        engine.backward(value * RANKS)
        return summed(value), {name: safe_get_full_grad(table).clone() for name, table in own.items()}

    return wrapped


def tensor_parallel(site):
    plans = {
        "head": {"lm_head": ColwiseParallel(output_layouts=Replicate())},
        "embedding": {"model.embed_tokens": RowwiseParallel(input_layouts=Replicate())},
    }

    def wrapped(loss):
        model = prepared(loss)
        parallelize_module(model, init_device_mesh("cpu", (RANKS,)), plans[site])
        return loss_of(model, loss, IDS_BT).item(), {}

    return wrapped


WRAPPINGS = {
    "process": {"accelerate's device map": dispatched, "hub kernels": kernelized},
    "fsdp2": {"FSDP2 (`fully_shard`)": fsdp2},
    "tensor": {f"tensor parallelism of the {site}": tensor_parallel(site) for site in ("head", "embedding")},
    "zero": {f"DeepSpeed ZeRO {stage}": zero(stage) for stage in (2, 3)},
}


def print_row(wrapping, loss, wrapped):
    expected, gradients = reference(loss)
    row = {"wrapping": wrapping, "loss": loss, "expected": expected}
    try:
        row["found"], found = wrapped(loss)
        row["gap"] = {n: ((found[n] - g).abs().max() / g.abs().max()).item() for n, g in gradients.items()}
    except ValueError as error:
        row["error"] = str(error)
    if not dist.is_initialized() or dist.get_rank() == 0:
        print(json.dumps(row), flush=True)


def print_rows(names):
    for name in names:
        for wrapping, wrapped in WRAPPINGS[name].items():
            for loss in LOSSES[:1] if name == "tensor" else LOSSES:
                print_row(wrapping, loss, wrapped)


def be_a_rank(rank, folder, names):
    torch.set_num_threads(1)  # in a fork, which has none of the other threads
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=str(RANKS), LOCAL_SIZE=str(RANKS))
    os.environ.update(MASTER_ADDR="localhost", MASTER_PORT="0", DS_ACCELERATOR="cpu")
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=RANKS)
    print_rows(names)
    dist.destroy_process_group()


def main(names):
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    print_rows([name for name in names if name == "process"])
    with tempfile.TemporaryDirectory() as folder:
        on_ranks = [name for name in names if name != "process"]
        start_processes(be_a_rank, (folder, on_ranks), nprocs=RANKS, start_method="fork")


if __name__ == "__main__":
    main(sys.argv[1:] or list(WRAPPINGS))
