"""DDP, ZeRO-2 and ZeRO-3 on two CPU ranks against one process with the same global batch.

Usage: offset_ranks.py FOLDER. The ranks are forks of this process, so that the libraries are imported once. Every check
is an assertion; rank 0 writes FOLDER/done.
"""

import os
import sys
from pathlib import Path

import deepspeed
import deepspeed.ops
import torch
import torch.distributed as dist
from deepspeed.ops.op_builder.cpu import ShareMemCommBuilder
from offset_tiny import IDS, batch, fused_head, logits, peft_model, tables_of, tiny
from torch.multiprocessing import start_processes
from torch.nn.functional import cross_entropy

from coord_adapter import CoordOffsetConfig, build_param_groups, load_adapter, read_offsets

STEPS = 2  # the plain loss, and the fused one
TARGETS_BT = torch.tensor(IDS)[torch.arange(2 * 24).reshape(2, 24) % len(IDS)]


def optimizer_of(model):
    groups = [{"params": [p for p in model.parameters() if p.requires_grad], "lr": 1e-3, "weight_decay": 0.1}]
    config = CoordOffsetConfig(tie_head=False, embed_lr=1e-2, head_lr=5e-3)
    return torch.optim.AdamW(build_param_groups("multimodal_coord_offset", model, groups, config))


def plain_loss(call, rank):
    return cross_entropy(call(**batch(seed=rank)).logits.flatten(0, 1).float(), TARGETS_BT.flatten())


def fused_loss(call, model, rank):
    """The same, with the head's `forward` replaced for one call."""
    with fused_head(
        model,
        lambda hidden_BTH: hidden_BTH.flatten(0, 1),
        lambda logits_NV: cross_entropy(logits_NV.float(), TARGETS_BT.flatten()),
    ):
        return call(**batch(seed=rank)).logits[0]


def reference():
    """One process, both ranks' batches in each step."""
    model = peft_model(False, tie_head=False).train()
    optimizer = optimizer_of(model)
    losses = []
    for _ in range(STEPS):
        loss = (plain_loss(model, 0) + plain_loss(model, 1)) / 2
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    return model, losses


def mean_over_ranks(loss):
    loss = loss.detach().clone()
    dist.all_reduce(loss)
    return loss.item() / dist.get_world_size()


def train_ddp(rank):
    model = peft_model(False, tie_head=False).train()
    wrapped = torch.nn.parallel.DistributedDataParallel(model)  # find_unused_parameters stays off
    optimizer = optimizer_of(model)
    losses = []
    for step in range(STEPS):
        loss = fused_loss(wrapped, model, rank) if step % 2 else plain_loss(wrapped, rank)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(mean_over_ranks(loss))
    return model, losses


def train_zero(rank, stage, dtype=torch.float32):
    model = peft_model(False, tie_head=False, dtype=dtype).train()
    settings = {
        "train_micro_batch_size_per_gpu": 2,
        "gradient_accumulation_steps": 1,
        "gradient_clipping": 0.0,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,
        "zero_optimization": {"stage": stage, "stage3_param_persistence_threshold": 0},
        "bf16": {"enabled": dtype == torch.bfloat16},
    }
    engine, *_ = deepspeed.initialize(model=model, optimizer=optimizer_of(model), config=settings)
    losses = []
    for step in range(STEPS):
        loss = fused_loss(engine, model, rank) if step % 2 else plain_loss(engine, rank)
        engine.backward(loss)
        engine.step()
        losses.append(mean_over_ranks(loss))
    return model, losses, engine


def optimizer_elements(optimizer):
    """Elements of one Adam moment that this rank holds."""
    states = optimizer.optimizer.state.values()
    return sum(state["exp_avg"].numel() for state in states)


def assert_sharded(engine, trainable):
    mine = torch.tensor(optimizer_elements(engine.optimizer))
    total = mine.clone()
    dist.all_reduce(total)
    assert trainable <= total < 1.05 * trainable, (int(total), trainable)
    assert mine < 0.6 * trainable, (int(mine), trainable)


def assert_like(model, losses, expected_model, expected_losses, label):
    worst = max(abs(a - b) for a, b in zip(losses, expected_losses, strict=True))
    assert worst < 1e-4, (label, losses, expected_losses)
    torch.testing.assert_close(logits(model.eval()), logits(expected_model.eval()), rtol=1e-3, atol=1e-3, msg=label)


def assert_rejects(action, word):
    try:
        action()
    except (ValueError, RuntimeError) as error:
        assert word in str(error), error
    else:
        raise AssertionError(f"nothing was raised, expected {word!r}")


def main(rank, folder):
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE="2", MASTER_ADDR="localhost", MASTER_PORT="0")
    dist.init_process_group("gloo", init_method=f"file://{folder}/rendezvous", rank=rank, world_size=2)
    torch.set_num_threads(1)
    # Compiling DeepSpeed's faster CPU collective takes a minute, and a lock left behind blocks the next run.
    deepspeed.ops.__compatible_ops__[ShareMemCommBuilder.NAME] = False
    deepspeed.init_distributed("gloo")
    expected_model, expected_losses = reference()
    trainable = sum(p.numel() for p in expected_model.parameters() if p.requires_grad)

    model, losses = train_ddp(rank)
    assert_like(model, losses, expected_model, expected_losses, "ddp")

    model, losses, engine = train_zero(rank, stage=2)
    assert_sharded(engine, trainable)
    if rank == 0:
        model.save_pretrained(folder / "zero2")
    dist.barrier()
    restored = load_adapter(tiny(False), folder / "zero2")
    assert_like(restored, losses, expected_model, expected_losses, "zero2")
    assert read_offsets(folder / "zero2").ids.tolist() == IDS

    model, losses, engine = train_zero(rank, stage=3)
    assert_sharded(engine, trainable)
    whole = engine._zero3_consolidated_16bit_state_dict()  # what accelerate gathers to save
    if rank == 0:
        model.save_pretrained(folder / "zero3", state_dict=whole)
        model.save_pretrained(folder / "ungathered")
    dist.barrier()
    restored = load_adapter(tiny(False), folder / "zero3")
    assert_like(restored, losses, expected_model, expected_losses, "zero3")
    assert_rejects(lambda: load_adapter(tiny(False), folder / "ungathered"), "ZeRO-3")
    engine.save_checkpoint(str(folder / "engine"))
    with deepspeed.zero.GatheredParameters(list(tables_of(model).parameters()), modifier_rank=0):
        kept = tables_of(model).embed_offset.detach().clone()
        tables_of(model).embed_offset.data.zero_()
    engine.load_checkpoint(str(folder / "engine"))
    with deepspeed.zero.GatheredParameters(list(tables_of(model).parameters())):
        assert torch.equal(tables_of(model).embed_offset, kept)

    model, losses, _ = train_zero(rank, stage=2, dtype=torch.bfloat16)
    assert tables_of(model).embed_offset.dtype == torch.bfloat16  # DeepSpeed casts and keeps a float32 master
    assert losses[-1] < losses[0]
    if rank == 0:
        model.save_pretrained(folder / "bf16")
        assert torch.equal(read_offsets(folder / "bf16").embed, tables_of(model).embed_offset)
        restored = tables_of(load_adapter(tiny(False, torch.bfloat16), folder / "bf16"))
        assert torch.equal(restored.head_offset, tables_of(model).head_offset.float())
        (folder / "done").touch()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    start_processes(main, (Path(sys.argv[1]),), nprocs=2, start_method="fork")
