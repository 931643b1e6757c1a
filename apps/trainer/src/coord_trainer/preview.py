"""Previews a run without training: its plan (`train --dry-run`)."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import nn

from coord_adapter import offset_parameters
from coord_codec.counts import counted
from coord_detect.console import say, world_size
from coord_losses import CoordObjective
from coord_trainer.config.run_config import RunConfig
from coord_trainer.config.without_effect import settings_without_effect
from coord_trainer.console import swift_log
from coord_trainer.data.load import load_training
from coord_trainer.data.mixture import Mixture
from coord_trainer.data.samples import Samples
from coord_trainer.data.shapes import make_shapes
from coord_trainer.model.model_path import check_model_path
from coord_trainer.model.parameters import count_parameters
from coord_trainer.model.tiny import tiny_without_weights
from coord_trainer.swift.open_run import OpenRun, open_run, sample_set
from coord_trainer.training_stage import report_length

_ENCODED = 256
"""Number of encoded samples, of which the longest form the simulated batch."""


def dry_run(config: RunConfig, ranks: int | None = None) -> dict[str, Any]:
    """Print the plan of a run: data, steps, rates, memory, and the settings; returns its groups and memory.

    DeepSpeed would shard over `ranks`; None stands for those that were started.

    Raises:
        InputError: the run could not reach its first step.
    """
    check_model_path(config.model)
    for line in settings_without_effect(config):
        say(f"note: {line}")
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        mixture, train = _data(config, folder)
        base = config.model.path or tiny_without_weights(config, folder / "base", mixture)
        without_shards = config.model_copy(
            update={"training": {k: v for k, v in config.training.items() if k != "deepspeed"}}
        )
        opened = open_run(without_shards, folder, base, evaluates=False, without_weights=True)
        for source in mixture.sources:
            report_length(config, opened, source)
        samples = config.data.shapes.train
        if config.data.given:
            samples = len(mixture)
        say(
            f"{opened.steps_for(samples):,} steps of {opened.samples_per_step} samples, of {samples:,} samples in an "
            f"epoch; loss: {config.custom.loss_in_words}"
        )
        with swift_log(folder / "swift.log"):
            figures = _simulate(config, opened, sample_set(without_shards, opened, train), ranks or world_size())
    say("settings that are not defaults:")
    say(yaml.safe_dump(config.model_dump(mode="json", exclude_unset=True), sort_keys=False).rstrip())
    return figures


def _data(config: RunConfig, folder: Path) -> tuple[Mixture, Mixture]:
    """Return what is trained on, and the source of it whose samples are the longest."""
    if not config.data.given:
        count = min(config.data.shapes.train, _ENCODED)
        say(f"train: generated shapes, {counted(config.data.shapes.train, 'image')} ({count} of them encoded)")
        shapes = make_shapes(config.data.shapes, "train", count, folder, config.data.geometry)
        mixture = Mixture.of_one(shapes, config.data)
        return mixture, mixture
    mixture = load_training(config)
    annotated = [(source, source.images) for source in mixture.sources if source.images is not None]
    longest, images = max(annotated, key=lambda each: each[1].target_counts.max(initial=0))
    problems = counted(len(images.problems), "problem")
    say(f"train: {counted(len(images), 'image')}, digest {images.digest}; {problems}")
    if len(mixture.sources) > 1:
        say(f"  of {len(mixture.sources)} sources, the one with the most objects in an image")
    return mixture, Mixture.of([replace(longest, weight=None)], config.run.seed)


def _simulate(config: RunConfig, opened: OpenRun, samples: Samples, ranks: int) -> dict[str, Any]:
    from coord_trainer.model.memory import measure_loss, simulate_step, under_zero

    # Model: parameters, vocabulary and learning rates.
    model, optimizer = opened.plan_optimizer()
    parameters = count_parameters(model)
    rows = len(model.get_output_embeddings().weight)
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

    # Step: a batch of the longest samples on a model without weights.
    size = opened.batch_size
    encoded = [samples[index] for index in range(min(len(samples), _ENCODED))]
    encoded.sort(key=lambda sample: len(sample["input_ids"]), reverse=True)
    kept = _kept_bytes(config, samples, encoded)
    chosen = [dict(encoded[index % len(encoded)]) for index in range(size)]
    objective = CoordObjective(config.custom.objective, opened.vocab)
    batch = opened.collate(chosen)
    labels, slots = batch["labels"], batch["coord_slots"]
    supervised = int((labels[:, 1:] != -100).sum())
    say(
        f"step: {counted(size, 'sample')} of up to {labels.shape[1]} tokens, {supervised} supervised rows, on each rank"
    )
    tables = [table for tables in offset_parameters(model).values() for table in tables]
    head, offsets = model.get_output_embeddings().weight, max((len(table) for table in tables), default=0)
    loss = measure_loss(objective, head, labels, slots, offsets)
    try:
        step = simulate_step(model, opened.family, optimizer, batch, supervised, loss)
    except Exception as error:  # of the model's own code: a forward pass that looks at values, which are not there
        first = str(error).strip().partition("\n")[0]
        say(f"memory: the step of {opened.family.name} cannot be simulated ({type(error).__name__}: {first})")
        return {"groups": groups, "parameters": parameters}

    # Memory: DeepSpeed keeps float32 copies, and shards over the ranks.
    if config.training.get("deepspeed"):
        from coord_trainer.swift.pipeline import read_deepspeed

        zero = read_deepspeed(config.training["deepspeed"]).get("zero_optimization") or {}
        step = under_zero(step, zero, ranks, parameters["trained"], config.model.dtype != "float32")
    figures = {
        "weights": step.weights,
        "gradients": step.gradients,
        "optimizer": step.optimizer,
        "activations": step.activations,
        "head and loss": loss.forward,
        "samples kept encoded": kept,
        "peak": step.peak + kept,
    }
    for name, value in figures.items():
        say(f"  {name:20} {value / 1e6:12,.1f} MB")
    return figures | {"groups": groups, "parameters": parameters}


def _kept_bytes(config: RunConfig, samples: Samples, encoded: list[dict[str, Any]]) -> int:
    """Return the bytes of encoded samples if they are kept in memory; 0 with a GPU, whose memory does not hold them."""
    total = config.data.shapes.train
    if config.data.given:
        total = len(samples)
    if torch.cuda.is_available() or not samples.keeps(total):
        return 0
    tensors = [value for sample in encoded for value in sample.values() if isinstance(value, torch.Tensor)]
    return sum(tensor.numel() * tensor.itemsize for tensor in tensors) * total // len(encoded)


def _groups(model: nn.Module, optimizer: torch.optim.Optimizer) -> list[dict[str, Any]]:
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
        if group["params"]  # the group without weight decay is empty for LoRA alone
    ]
