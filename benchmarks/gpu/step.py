"""Times a training step at the size of Qwen3-VL-2B: our objective on selected rows against full logits.

    python benchmarks/gpu/step.py [--samples 16] [--objects 20] [--attention flash_attention_2] [--quick] [--device cpu]

The weights are random in bfloat16, with rank-16 LoRA on the text model's linear layers, offsets of the thousand
coordinate ids and AdamW; samples of one 512 x 512 image are packed into one row. The loss on full logits is that of
transformers. Both variants alternate on one model. "No loss" is the same step with the sum of hidden states in place
of head and loss. Where coord_trainer is installed, attention and patch embedding are the trainer's, and the peak that
`train --dry-run` computes stands beside the measured one. `apps/trainer/benchmarks/step.py` compares with the step of
ms-swift, where that is installed.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

import torch
import typer
from geometry import QWEN3_VL_2B, TINY, Geometry, build, packed_batch
from measure import Device, DeviceOption, Quick, cost, machine, megabytes, note, release, tell
from peft import LoraConfig, get_peft_model
from peft.helpers import disable_input_dtype_casting
from torch import Tensor, nn

from coord_adapter import active_offsets, bypass_head_hook, install_coord_offset_adapter, with_offset_modules
from coord_losses import CoordObjective, ObjectiveConfig, ObjectSlots, supervised_rows

LAYERS = r".*language_model.*\.(q_proj|k_proj|v_proj|o_proj|gate_proj|up_proj|down_proj)"

SOFT = "ours, soft CE + W1 + gate"


@contextmanager
def head_replaced(model: nn.Module, forward: Callable[[Tensor], Tensor]):
    """Let the head of the model compute something else within this block."""
    head = model.get_output_embeddings()
    head.forward = forward
    try:
        with bypass_head_hook(model):
            yield
    finally:
        del head.forward


def transformers_loss(model: nn.Module, inputs: dict, labels_BT: Tensor, _: ObjectSlots) -> Tensor:
    return model(**inputs, labels=labels_BT, use_cache=False).loss


def our_loss(config: ObjectiveConfig, vocab) -> Callable[..., Tensor]:
    objective = CoordObjective(config, vocab)

    def loss(model: nn.Module, inputs: dict, labels_BT: Tensor, slots: ObjectSlots) -> Tensor:
        def forward(hidden_BTH: Tensor) -> Tensor:
            offsets = active_offsets(model)
            hidden_NH, targets_N = supervised_rows(hidden_BTH, labels_BT)
            output = objective.fused(
                hidden_NH, offsets.head_weight, targets_N, slots, offsets.offsets, offset_ids_K=offsets.ids
            )
            return output.total()[None, None]

        with head_replaced(model, forward):
            return model(**inputs, use_cache=False).logits.sum()

    return loss


def no_loss(model: nn.Module, inputs: dict, *_: object) -> Tensor:
    with head_replaced(model, lambda hidden_BTH: hidden_BTH.float().sum()[None, None]):
        return model(**inputs, use_cache=False).logits.sum()


def adapted(geometry: Geometry, device: str, attention: str) -> nn.Module:
    """Build the model with LoRA and offsets."""
    base = build(geometry, device, torch.bfloat16, attention).train()
    try:
        from coord_detect.model.attention import attend_by_sample
        from coord_detect.model.patch_embedding import multiply_patches
    except ImportError as error:
        note(f"attention of transformers: {error}")
    else:
        multiply_patches(base)
        attend_by_sample(base, packed=True)
    install_coord_offset_adapter(base, geometry.vocab.ids)
    return get_peft_model(base, LoraConfig(**with_offset_modules({"r": 16, "target_modules": LAYERS})))


def planned(geometry: Geometry, attention: str, batch: tuple, checkpointing: bool) -> int | None:
    """Return the peak in bytes that the dry run computes for our step with soft CE; None without coord_trainer."""
    try:
        from coord_detect.families.registry import FAMILIES
        from coord_trainer.model.memory import measure_loss, simulate_step
    except ImportError as error:
        note(f"no plan: {error}")
        return None
    model = adapted(geometry, "meta", attention)
    if checkpointing:
        model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.enable_input_require_grads()
    trained = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trained, foreach=False, fused=False)
    inputs = {name: x.cpu() for name, x in batch[0].items() if isinstance(x, Tensor)}
    labels_1T, slots = batch[1].cpu(), batch[2].to("cpu")
    objective = CoordObjective(ObjectiveConfig.soft(), geometry.vocab)
    head = model.get_output_embeddings().weight
    loss = measure_loss(objective, head, labels_1T, slots, len(geometry.vocab.ids))
    supervised = int((labels_1T[:, 1:] != -100).sum())
    return simulate_step(model, FAMILIES["qwen3_vl"], optimizer, inputs, supervised, loss).peak


def main(
    samples: Annotated[int, typer.Option(help="in the row")] = 16,
    objects: Annotated[int, typer.Option(help="in each sample")] = 20,
    attention: Annotated[str, typer.Option(help="as transformers names it")] = "sdpa",
    device: DeviceOption = Device.cuda,
    quick: Quick = False,
) -> None:
    """Compare training steps with our objective and with transformers' loss."""
    print(machine(device))
    geometry, side = (TINY, 64) if quick else (QWEN3_VL_2B, 512)
    if quick:
        samples, objects = 3, 2
    model = adapted(geometry, device, attention)
    optimizer = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=1e-4, fused=True)
    batch = packed_batch(samples, objects, side, geometry.vocab, device)
    batch[0]["pixel_values"] = batch[0]["pixel_values"].to(torch.bfloat16)
    tokens, supervised = batch[1].numel(), int((batch[1][:, 1:] != -100).sum())
    losses = {
        "transformers, CE on full logits": transformers_loss,
        "ours, CE alone": our_loss(ObjectiveConfig.group_a(), geometry.vocab),
        SOFT: our_loss(ObjectiveConfig.soft(), geometry.vocab),
        "ours, all terms": our_loss(ObjectiveConfig.mixed(box_weight=1.0), geometry.vocab),
        "no loss": no_loss,
    }

    def rows() -> Iterator[list[object]]:
        for checkpointing in (False, True):
            if checkpointing:
                model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            first = None
            for name, loss in losses.items():
                note(f"step: {name}, checkpointing {checkpointing}")

                def step(loss: Callable[..., Tensor] = loss) -> None:
                    with disable_input_dtype_casting(model):  # as the trainer does under autocast
                        with torch.autocast(device, torch.bfloat16):  # PEFT's LoRA is in float32
                            value = loss(model, *batch)
                        value.backward()
                    optimizer.step()
                    optimizer.zero_grad()

                found = cost(step, device, repeats=5)
                first = first or found
                plan = planned(geometry, attention, batch, checkpointing) if name == SOFT else None
                yield [
                    name,
                    "yes" if checkpointing else "no",
                    f"{found.seconds * 1e3:.1f}",
                    f"{found.seconds / first.seconds:.3f}",
                    f"{tokens / found.seconds:,.0f}",
                    megabytes(found.peak_bytes),
                    megabytes(plan),
                    megabytes(found.extra_bytes),
                    found.syncs,
                ]
                release(device)

    tell(
        "loss | gradient checkpointing | ms a step | of transformers' | tokens/s | peak MB | planned MB | "
        "above weights and optimizer | host waits",
        rows(),
        f"{sum(p.numel() for p in model.parameters()):,} parameters, {attention}, one row of {tokens:,} tokens "
        f"({samples} samples of {objects} objects), {supervised:,} of them supervised",
    )


if __name__ == "__main__":
    typer.run(main)
