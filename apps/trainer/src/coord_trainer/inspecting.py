"""One training sample, token by token, as the model will see it."""

from __future__ import annotations

import tempfile
from pathlib import Path

from coord_codec import SequenceLayout

from .config import RunConfig
from .console import say
from .errors import InputError
from .picture_set import sets_of
from .pipeline import open_run, sample_set
from .tiny_model import base_checkpoint


def inspect_sample(config: RunConfig, number: int) -> None:
    """Print picture, target, and a line per token: id, token, whether it is learnt, what it is."""
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        train, _ = sets_of(config, folder / "data")
        if number >= len(train):
            raise InputError(f"--number: expected 0 to {len(train) - 1}, found {number}")
        one = train.only(number)
        opened = open_run(config, folder, base_checkpoint(config, folder, train), evaluates=False)
        sample = sample_set(config, opened, one)[0]
    instance = one.instances[0]
    say(
        f"picture {instance.image}, {instance.width} x {instance.height} pixels, {len(instance.objects)} objects"
    )
    grid = sample["image_grid_thw"][0].tolist()
    say(f"patches (frames, rows, columns): {grid}, {len(sample['input_ids'])} tokens in all")
    roles = _roles(sample["coord_layout"])
    tokenizer = opened.pipeline.processor.tokenizer
    say(f"{'position':>8} {'id':>7}  {'learnt':6} {'role':14} token")
    pictures = 0
    for position, (token, label) in enumerate(zip(sample["input_ids"], sample["labels"], strict=True)):
        text = tokenizer.convert_ids_to_tokens(token)
        if text == "<|image_pad|>":
            pictures += 1
            continue
        if pictures:
            say(f"{'':8} {'':7}  {'':6} {'picture':14} <|image_pad|> x {pictures}")
            pictures = 0
        say(
            f"{position:8} {token:7}  {'yes' if label != -100 else '-':6} {roles.get(position, ''):14} {text!r}"
        )


def _roles(layout: SequenceLayout | None) -> dict[int, str]:
    if layout is None:
        return {}
    roles = dict.fromkeys(layout.desc_positions, "description")
    roles |= dict.fromkeys(layout.structure_positions, "structure")
    for number, found in enumerate(layout.objects):
        for position, side in zip(found.coord_positions, ("x1", "y1", "x2", "y2"), strict=False):
            roles[position] = f"object {number} {side}"
    return roles
