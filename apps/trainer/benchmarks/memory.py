"""Compares the memory of a training step, part by part, with the estimate of `train --dry-run`.

Every storage that torch allocates on the CPU during two real steps is counted from its first use until it is freed, as
the allocator of a GPU would count it. Cases are the tiny model and Qwen3-VL-2B's width and vocabulary with four layers.

    uv run python apps/trainer/benchmarks/memory.py [CASE ...]
"""

import contextlib
import io
import tempfile
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import torch
import typer

PARTS = ("weights", "gradients", "optimizer", "activations", "head and loss", "peak")
COMMON = [
    "custom.coord_soft_ce_w1.enabled=true",
    "evaluation.images=none",
    "run.threads=1",
    "training.gradient_accumulation_steps=1",
    "training.max_steps=2",
    "training.report_to=[]",
]
SHAPES = ["data.shapes.train=16", "data.shapes.heldout=1", "training.per_device_train_batch_size=16"]
LORA = ["training.tuner_type=lora", "training.target_modules=[all-linear]", "custom.coord_offset.enabled=true"]
DORA = [*LORA, "training.use_dora=true"]
CASES = {
    "tiny": SHAPES,
    "tiny-dora": [*SHAPES, *DORA],
    "2B-full-bf16": ["model.dtype=bfloat16"],
    "2B-lora-bf16": ["model.dtype=bfloat16", *LORA],
    "2B-dora-bf16": ["model.dtype=bfloat16", *DORA],
    "2B-dora-checkpointing-bf16": ["model.dtype=bfloat16", *DORA, "training.gradient_checkpointing=true"],
    "2B-lora-fp32": ["model.dtype=float32", *LORA],
}
"""Settings of each case; those of 2B have one image of 1280 x 960 pixels with ten objects."""
Case = StrEnum("Case", {name: name for name in CASES})


def compare(words: list[str], scratch: Path) -> tuple[dict[str, int], dict[str, int]]:
    """Return the planned and the measured bytes of each part of a step under these settings."""
    from coord_trainer.config.run_config import load_run_config
    from coord_trainer.preview import dry_run

    config = load_run_config(None, [*COMMON, *words])
    with contextlib.redirect_stdout(io.StringIO()):
        planned = dry_run(config)
        measured = measure(config, scratch)
    planned["peak"] -= planned["samples kept encoded"]  # which are not part of a step
    return {part: planned[part] for part in PARTS}, measured


def measure(config, folder: Path) -> dict[str, int]:
    """Return the bytes of each part of a real step, the second of two, so that the optimizer has its state."""
    from coord_losses import CoordObjective, global_denominators
    from coord_trainer.data.load import load_data
    from coord_trainer.model.memory import LiveBytes
    from coord_trainer.model.tiny import base_checkpoint
    from coord_trainer.swift.open_run import open_run, sample_set
    from coord_trainer.swift.trainer import active_head
    from coord_trainer.training.head import RowHead, row_selecting_head

    # Model, optimizer and a batch of the longest samples, as the dry run plans them
    train = load_data(config, folder / "data").train
    opened = open_run(config, folder, base_checkpoint(config, folder, train), evaluates=False)
    model, optimizer = opened.plan_optimizer()
    samples = sample_set(config, opened, train)
    encoded = sorted((samples[i] for i in range(len(samples))), key=lambda s: len(s["input_ids"]), reverse=True)
    batch = opened.collate([dict(encoded[i % len(encoded)]) for i in range(opened.batch_size)])
    labels, slots = batch["labels"], batch["coord_slots"]
    names = ("input_ids", "attention_mask", "position_ids", "mm_token_type_ids", "pixel_values", "image_grid_thw")
    names += ("cu_seq_lens_q", "max_length_q", "image_cu_seqlens", "image_max_seqlen")
    inputs = {name: batch[name] for name in names if name in batch}
    half = config.model.dtype == "bfloat16"
    model.train()
    objective, head_and_loss = CoordObjective(config.custom.objective, opened.vocab), 0

    class WatchedHead(RowHead):
        def take(self, x_BTD):
            self.before, self.peak = live.now, live.peak
            live.peak = live.now
            return super().take(x_BTD)

        def sums(self):
            nonlocal head_and_loss
            head_and_loss = live.peak - self.before
            live.peak = max(live.peak, self.peak)
            return super().sums()

    with LiveBytes("cpu") as live:
        for tensor in (*model.parameters(), *model.buffers()):
            live.count(tensor)
        weights = live.now
        for tensor in inputs.values():
            live.count(tensor)  # lengths are numbers, which it leaves out
        held = live.now
        for _ in range(2):
            live.peak = live.now
            denominators = global_denominators([(labels, slots)], opened.vocab)
            rows = WatchedHead(objective, labels, slots, denominators=denominators)
            with row_selecting_head(model, active_head(model), rows), torch.autocast("cpu", torch.bfloat16, half):
                sums = model(**inputs, use_cache=False).logits
            rows.total(rows.rejoin(sums)).backward()
            del rows, sums
            gradients = sum(p.grad.nbytes for p in model.parameters() if p.grad is not None)
            optimizer.step()
            optimizer.zero_grad()
        states, peak = live.now - held, live.peak
    activations = max(peak - weights - gradients - states, 0)
    found = (weights, gradients, states, activations, head_and_loss, peak)
    return dict(zip(PARTS, found, strict=True))


def main(cases: Annotated[list[Case], typer.Argument(help="all of them if there are none")] = list(Case)) -> None:  # noqa: B006
    """Print the parts of each case: planned and measured MB, and their ratio."""
    from model_sizes import write_base, write_images

    print(f"| case | {' | '.join(PARTS)} |\n|---|{'---|' * len(PARTS)}")
    for case in cases:
        words = CASES[case.value]
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            if case.value.startswith("2B"):
                base = write_base("Qwen3-VL-2B", folder / "base", layers=4, weights=True)
                images = write_images(folder / "images", 1280, 960, objects=10)
                words = [*words, f"model.path={base}", f"data.annotations={images}", "data.heldout_annotations=null"]
                words.append("training.per_device_train_batch_size=1")
            planned, measured = compare(words, folder)
        cells = [
            f"{planned[part] / 1e6:,.1f} / {measured[part] / 1e6:,.1f} = {planned[part] / max(measured[part], 1):.3f}"
            for part in PARTS
        ]
        print(f"| {case.value} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    typer.run(main)
