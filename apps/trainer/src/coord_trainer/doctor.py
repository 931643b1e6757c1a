"""Is this machine ready, and is ms-swift still shaped the way the trainer needs it?"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterator
from importlib.metadata import version
from importlib.util import find_spec

import torch

from .console import say
from .errors import RunError

_SHOWN = ("torch", "transformers", "peft", "ms-swift", "deepspeed", "accelerate", "datasets")


def examine() -> None:
    """Print versions, devices and every seam with its verdict.

    Raises:
        RunError: when a seam is missing.
    """
    say("  ".join(f"{name} {version(name)}" for name in _SHOWN))
    devices = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    say(f"{os.cpu_count()} CPU cores, torch uses {torch.get_num_threads()} threads")
    say(f"GPUs: {', '.join(devices) or 'none'}")
    flash = "installed" if find_spec("flash_attn") else "not installed (model.attention: sdpa works without)"
    say(f"flash-attn: {flash}")
    broken = 0
    for seam, holds in _seams():
        try:
            good = holds()
        except (ImportError, AttributeError, KeyError):
            good = False
        broken += not good
        say(f"{'ok     ' if good else 'MISSING'} {seam}")
    if broken:
        raise RunError(
            f"{broken} seams of ms-swift are not what they were in 4.6; install the pinned version"
        )


def _seams() -> Iterator[tuple[str, Callable[[], bool]]]:
    from swift import arguments, pipelines, trainers
    from swift.model import MODEL_MAPPING
    from swift.template.templates import qwen

    from .swift_arguments import known_arguments

    trainer = trainers.Seq2SeqTrainer
    yield (
        "TrainerFactory.TRAINER_MAPPING['causal_lm']",
        lambda: "causal_lm" in trainers.TrainerFactory.TRAINER_MAPPING,
    )
    yield (
        "Seq2SeqTrainer.compute_loss(num_items_in_batch)",
        lambda: "num_items_in_batch" in inspect.signature(trainer.compute_loss).parameters,
    )
    yield (
        "Seq2SeqTrainer._get_num_items_in_batch(batch_samples, device)",
        lambda: (
            {"batch_samples", "device"} <= set(inspect.signature(trainer._get_num_items_in_batch).parameters)
        ),
    )
    yield (
        "Seq2SeqTrainer._get_data_collator(args, template)",
        lambda: "template" in inspect.signature(trainer._get_data_collator).parameters,
    )
    yield "SwiftSft._prepare_dataset", lambda: callable(pipelines.SwiftSft._prepare_dataset)
    yield "MODEL_MAPPING['qwen3_vl']", lambda: "qwen3_vl" in MODEL_MAPPING
    yield "Qwen3VLTemplate._extend_tokens", lambda: callable(qwen.Qwen3VLTemplate._extend_tokens)
    yield (
        "SftArguments has the arguments that configs may name",
        lambda: set(known_arguments()) <= set(inspect.signature(arguments.SftArguments).parameters),
    )
