"""Previews a run without training: its plan (`train --dry-run`), and one sample token by token (`inspect`)."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import torch
import yaml
from torch import nn

from coord_codec import InputError, SequenceLayout
from coord_data.image_set import ImageSet
from coord_losses import CoordObjective
from coord_trainer.config.run_config import RunConfig
from coord_trainer.console import say, swift_log, world_size
from coord_trainer.data.load import load_training, train_of
from coord_trainer.data.mixed import ConversationSamples
from coord_trainer.data.samples import SampleSet
from coord_trainer.data.shapes import make_shapes
from coord_trainer.model.checkpoint import count_parameters
from coord_trainer.model.tiny import base_checkpoint, check_model_path, tiny_outline
from coord_trainer.swift.open_run import OpenRun, open_run, sample_set

_ENCODED = 256
"""Number of encoded samples, of which the longest form the simulated batch."""


def dry_run(config: RunConfig) -> dict[str, Any]:
    """Print the plan of a run; returns its parameter groups and memory.

    Raises:
        InputError: the run could not reach its first step.
    """
    check_model_path(config)
    say(yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False).rstrip())
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        train = _images(config, folder)
        base = config.model.path or tiny_outline(config, folder / "base", train)
        without_shards = config.model_copy(
            update={"training": {k: v for k, v in config.training.items() if k != "deepspeed"}}
        )
        opened = open_run(without_shards, folder, base, evaluates=False, outline=True)
        with swift_log(folder / "swift.log"):
            figures = _simulate(config, opened, sample_set(without_shards, opened, train))
    return figures


def _images(config: RunConfig, folder: Path) -> ImageSet:
    if not config.data.given:
        count = min(config.data.shapes.train, _ENCODED)
        say(f"train: generated shapes, {config.data.shapes.train} images ({count} of them encoded)")
        geometry = config.data.geometry
        return make_shapes(config.data.shapes, "train", count, folder, geometry)
    mixture = load_training(config)
    train = max(mixture.image_sets, key=lambda images: images.target_counts.max(initial=0))
    say(f"train: {len(train)} images, digest {train.digest}; {len(train.problems)} problems")
    if len(mixture.parts) > 1:
        say(f"  of {len(mixture.parts)} sources, the one with the most objects in an image")
    return train


def _simulate(config: RunConfig, opened: OpenRun, samples: SampleSet) -> dict[str, Any]:
    from coord_trainer.model.memory import measure_loss, simulate_step

    model, optimizer = opened.plan_optimizer()
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
    size = opened.batch_size
    encoded = [samples[index] for index in range(min(len(samples), _ENCODED))]
    encoded.sort(key=lambda sample: len(sample["input_ids"]), reverse=True)
    kept = _kept_bytes(config, samples, encoded)
    chosen = [dict(encoded[index % len(encoded)]) for index in range(size)]
    objective = CoordObjective(config.custom.objective, opened.vocab)
    batch = opened.collate(chosen)
    labels, slots = batch["labels"], batch["coord_slots"]
    supervised = int((labels[:, 1:] != -100).sum())
    trained_head = model.get_output_embeddings().weight.requires_grad
    loss = measure_loss(objective, rows, labels, slots, trained_head)
    step = simulate_step(model, optimizer, batch, supervised, loss)
    say(f"step: {size} samples of up to {labels.shape[1]} tokens, {supervised} supervised rows, on each rank")
    shards = world_size() if config.training.get("deepspeed") else 1
    saved = (step.gradients + step.optimizer) * (shards - 1) // shards
    figures = {
        "weights": step.weights,
        "gradients": step.gradients // shards,
        "optimizer": step.optimizer // shards,
        "activations": step.activations,
        "head and loss": loss.forward,
        "samples kept encoded": kept,
        "peak": step.peak - saved + kept,
    }
    for name, value in figures.items():
        say(f"  {name:20} {value / 1e6:12,.1f} MB")
    return figures | {"groups": groups, "parameters": parameters}


def _kept_bytes(config: RunConfig, samples: SampleSet, encoded: list[dict[str, Any]]) -> int:
    """Return the bytes of encoded samples if they are kept in memory; 0 with a GPU, whose memory does not hold them."""
    total = len(samples) if config.data.given else config.data.shapes.train
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
    ]


def inspect_sample(config: RunConfig, number: int) -> None:
    """Print image and target, or a conversation, and a line per token: id, token, whether it is supervised, its role.

    Args:
        config: of the run
        number: index of the record over all sources in their order

    Raises:
        InputError: the data is faulty, or there is no such record.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        train = train_of(config, folder / "data")
        index, parts = number, iter(train.parts)
        part = next(parts)
        while index >= len(part.content):
            index -= len(part.content)
            part = next(parts, None)
            if part is None:
                count = sum(len(source.content) for source in train.parts)
                raise InputError(f"--sample: expected 0 to {count - 1}, found {number}")
        content = part.content
        opened = open_run(config, folder, base_checkpoint(config, folder, train), evaluates=False)
        if isinstance(content, ImageSet):
            one_image = content.select([content.instances[index]])
            instance, of_source = one_image.instances[0], config.model_copy(update={"data": part.data})
            with opened.any_length():
                sample = sample_set(of_source, opened, one_image, augments=True)[0]
            size = f"{instance.width} x {instance.height} pixels"
            say(f"image {instance.image}, {size}, {len(instance.targets)} objects")
        else:
            with opened.any_length():
                sample = ConversationSamples(content, opened.encode)[index]
            say(f"conversation {index + 1} of {content.path}, {len(content.image_sizes[index])} images")
            for message in content.record(index)["messages"]:
                say(f"  {message['role']}: {message['content']!r}")
    grids = sample["image_grid_thw"].tolist() if "image_grid_thw" in sample else []
    patches = f"patches (frames, rows, columns): {', '.join(map(str, grids))}, " if grids else ""
    too_long = len(sample["input_ids"]) > opened.longest_sample
    limit = f", more than training.max_length={opened.longest_sample}" if too_long else ""
    say(f"{patches}{len(sample['input_ids'])} tokens in all{limit}")
    roles = _roles(sample["coord_layout"])
    tokenizer = opened.processor.tokenizer
    say(f"{'position':>8} {'id':>7}  {'learnt':6} {'role':14} token")
    images = 0
    for position, (token, label) in enumerate(zip(sample["input_ids"], sample["labels"], strict=True)):
        text = tokenizer.convert_ids_to_tokens(token)
        if text == "<|image_pad|>":
            images += 1
            continue
        if images:
            say(f"{'':8} {'':7}  {'':6} {'image':14} <|image_pad|> x {images}")
            images = 0
        say(f"{position:8} {token:7}  {'yes' if label != -100 else '-':6} {roles.get(position, ''):14} {text!r}")


def _roles(layout: SequenceLayout | None) -> dict[int, str]:
    if layout is None:
        return {}
    roles = dict.fromkeys(layout.desc_positions, "description")
    roles |= dict.fromkeys(layout.structure_positions, "structure")
    for number, slot in enumerate(layout.objects):
        for position, side in zip(slot.coord_positions, ("x1", "y1", "x2", "y2"), strict=False):
            roles[position] = f"object {number} {side}"
    return roles
