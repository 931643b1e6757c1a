"""ms-swift's SFT pipeline with our data sets, our trainer and our optimizer groups.

Seams used (ms-swift 4.6, pinned): `TrainerFactory.TRAINER_MAPPING`, `optimizers_map`,
`SwiftSft._prepare_dataset`, `_get_trainer_kwargs`. Both mappings are global to the process; what they name
refuses to run without the settings below.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import swift
import torch
from swift.arguments import SftArguments
from swift.optimizers import optimizers_map
from swift.optimizers.multimodal import MultimodalOptimizerCallback
from swift.pipelines.train.sft import SwiftSft
from swift.trainers import TrainerFactory
from torch.utils.data import Dataset

from coord_adapter import CoordOffsetConfig, build_param_groups, param_group_names

from .deepspeed_settings import explicit, read_deepspeed
from .ranks import world_size
from .swift_training import CoordTrainer, TrainingParts


class CoordOptimizer(MultimodalOptimizerCallback):
    """swift's groups (vision, aligner, LLM), rearranged by the registry's entry of the optimizer's name."""

    def create_optimizer(self, model=None):
        """As swift, then the offsets into groups of their own."""
        model = self.trainer.model if model is None else model
        optimizer = super().create_optimizer(model=model)
        name = self.args.optimizer
        groups = build_param_groups(name, model, optimizer.param_groups, self.trainer.offset_config)
        optimizer.param_groups = list(groups)
        return optimizer


class CoordSft(SwiftSft):
    """swift's pipeline on data sets of ours; `parts` must be set before `main()`."""

    parts: TrainingParts
    datasets: Sequence[Dataset | None] = (None, None)

    def _prepare_dataset(self):
        return list(self.datasets)

    def _get_trainer_kwargs(self):
        return {"coord_parts": self.parts}


class _OutlineSft(CoordSft):
    """The pipeline on a model without weights."""

    def _prepare_model_tokenizer(self):
        with torch.device("meta"):
            super()._prepare_model_tokenizer(return_dummy_model=True)


def open_pipeline(arguments: dict[str, Any], outline: bool = False) -> CoordSft:
    """Load model, processor and template the way swift does, with our trainer class in its mapping.

    Args:
        arguments: of swift's `SftArguments`.
        outline: make the model on meta tensors, without reading weights.
    """
    if arguments.get("deepspeed"):
        import deepspeed

        settings = read_deepspeed(arguments["deepspeed"], Path(swift.__file__).parent / "config")
        arguments = {**arguments, "deepspeed": explicit(settings, arguments, world_size())}
    TrainerFactory.TRAINER_MAPPING["causal_lm"] = f"{CoordTrainer.__module__}.{CoordTrainer.__name__}"
    for name in param_group_names():
        if name not in optimizers_map:
            optimizers_map[name] = CoordOptimizer
    parsed = SftArguments(**arguments)
    if arguments.get("deepspeed"):
        # transformers has counted the ranks by now; with this still set, accelerate would leave DeepSpeed out.
        os.environ.pop("ACCELERATE_USE_CPU", None)
    if arguments.get("deepspeed") and world_size() > 1:
        # ZeRO-3 shards while loading, and would count one rank without this.
        deepspeed.init_distributed(dist_backend=arguments["ddp_backend"], auto_mpi_discovery=False)
    return (_OutlineSft if outline else CoordSft)(parsed)


def plan_optimizer(pipeline: CoordSft, offset: CoordOffsetConfig) -> tuple[Any, torch.optim.Optimizer]:
    """Tuner and optimizer as training would make them, on an outline; nothing else of the trainer runs."""
    pipeline.model = model = pipeline.prepare_model(pipeline.args, pipeline.model, template=pipeline.template)
    arguments = pipeline.args.training_args
    if arguments.gradient_checkpointing:
        model.gradient_checkpointing_enable({"use_reentrant": False})
        model.enable_input_require_grads()
    trainer = CoordTrainer.__new__(CoordTrainer)
    trainer.model, trainer.args, trainer.offset_config = model, arguments, offset
    trainer.optimizer = trainer.optimizer_cls_and_kwargs = None
    optimizer = optimizers_map[arguments.optimizer or "default"](arguments, trainer).create_optimizer()
    for group in optimizer.param_groups:
        group.update(fused=False, foreach=False)  # there is no fused step for meta tensors
    return model, optimizer
