"""`train --dry-run`: what a run would be (settings, data, vocabulary, rates, memory) without its weights."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import nn

from coord_losses import CoordObjective

from .collating import collate_samples
from .config import RunConfig
from .console import say, swift_log
from .picture_set import load_sets, make_shapes
from .pipeline import open_run, sample_set
from .ranks import world_size
from .samples import SampleSet
from .tiny_model import check_model_path, tiny_outline
from .training import count_parameters

_ENCODED = 256  # the batch that is rehearsed is made of the longest of these


def dry_run(config: RunConfig) -> dict[str, Any]:
    """Print the plan of a run; returns its figures.

    Raises:
        InputError: whatever would stop the run before its first step.
    """
    check_model_path(config)
    say(yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False).rstrip())
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        train = _pictures(config, folder)
        base = config.model.path or tiny_outline(config, folder / "base", train)
        without_shards = config.model_copy(
            update={"training": {k: v for k, v in config.training.items() if k != "deepspeed"}}
        )
        opened = open_run(without_shards, folder, base, evaluates=False, outline=True)
        with swift_log(folder / "swift.log"):
            figures = _rehearse(config, opened, sample_set(without_shards, opened, train))
    return figures


def _pictures(config: RunConfig, folder: Path):
    if config.data.annotations is None:
        count = min(config.data.shapes.train, _ENCODED)
        say(f"train: generated shapes, {config.data.shapes.train} pictures ({count} looked at)")
        return make_shapes(config.data.shapes, "train", count, folder, keep_files=False)
    train, _ = load_sets(config)
    say(f"train: {len(train)} pictures, digest {train.digest}; {len(train.problems)} bad records left out")
    return train


def _rehearse(config: RunConfig, opened, samples) -> dict[str, Any]:
    from .memory import loss_appetite, rehearse_step
    from .swift_pipeline import plan_optimizer

    arguments = opened.pipeline.args
    model, optimizer = plan_optimizer(opened.pipeline, config.custom.coord_offset)
    parameters = count_parameters(model)
    rows = model.get_output_embeddings().weight.shape[0]
    say(f"model: {parameters['all']:,} parameters, {parameters['trained']:,} trained")
    if opened.vocab is not None:
        ids = opened.vocab.ids
        say(f"vocabulary: {rows} rows, coordinates {ids[0]}..{ids[-1]}, markers {opened.markers}")
    groups = _groups(model, optimizer)
    for group in groups:
        say(
            f"  lr {group['lr']:g}, weight decay {group['weight_decay']:g}: {group['tensors']} tensors, "
            f"{group['parameters']:,} parameters ({group['example']}, ...)"
        )
    size = arguments.per_device_train_batch_size
    looked_at = [samples[index] for index in range(min(len(samples), _ENCODED))]
    looked_at.sort(key=lambda sample: len(sample["input_ids"]), reverse=True)
    kept = _kept_bytes(config, samples, looked_at)
    chosen = [dict(looked_at[index % len(looked_at)]) for index in range(size)]
    objective = CoordObjective(config.custom.objective, opened.vocab)
    batch = collate_samples(chosen, opened.pipeline.template.data_collator, opened.vocab, config.data.packing)
    labels, slots = batch["labels"], batch["coord_slots"]
    supervised = int((labels[:, 1:] != -100).sum())
    trained_head = model.get_output_embeddings().weight.requires_grad
    appetite = loss_appetite(objective, rows, labels, slots, trained_head)
    step = rehearse_step(model, optimizer, batch, supervised, appetite)
    say(f"step: {size} samples of up to {labels.shape[1]} tokens, {supervised} supervised rows, on each rank")
    shards = world_size() if config.training.get("deepspeed") else 1
    saved = (step.gradients + step.optimizer) * (shards - 1) // shards
    figures = {
        "weights": step.weights,
        "gradients": step.gradients // shards,
        "optimizer": step.optimizer // shards,
        "activations": step.activations,
        "head and loss": appetite.forward,
        "samples kept encoded": kept,
        "peak": step.peak - saved + kept,
    }
    for name, value in figures.items():
        say(f"  {name:20} {value / 1e6:12,.1f} MB")
    return figures | {"groups": groups, "parameters": parameters}


def _kept_bytes(config: RunConfig, samples: SampleSet, looked_at: list[dict[str, Any]]) -> int:
    """In the memory of the host, which a GPU's peak leaves out."""
    total = len(samples) if config.data.annotations is not None else config.data.shapes.train
    if torch.cuda.is_available() or not samples.keeps(total):
        return 0
    tensors = [value for sample in looked_at for value in sample.values() if isinstance(value, torch.Tensor)]
    return sum(tensor.numel() * tensor.itemsize for tensor in tensors) * total // len(looked_at)


def _groups(model: nn.Module, optimizer) -> list[dict[str, Any]]:
    names = {id(parameter): name for name, parameter in model.named_parameters()}
    return [
        {
            "lr": group["lr"],
            "weight_decay": group["weight_decay"],
            "tensors": len(group["params"]),
            "parameters": sum(parameter.numel() for parameter in group["params"]),
            "example": names[id(group["params"][0])],
        }
        for group in optimizer.param_groups
    ]
