"""ms-swift's SFT pipeline with a run's settings, our data sets, our trainer and our optimizer groups.

swift's mappings of trainers and optimizers are global to the process; the classes that we register there refuse to run
without our settings. DeepSpeed's defaults are written out, since it would otherwise clip gradients at 1.0, and on the
CPU assume one rank when it derives batch sizes and require an optimizer of its own.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from json import JSONDecodeError
from pathlib import Path
from typing import Any

import swift
import torch
from safetensors import SafetensorError
from swift.optimizers import optimizers_map
from swift.optimizers.base import OptimizerCallback
from swift.optimizers.lorap import LorapOptimizerCallback
from swift.optimizers.multimodal import MultimodalOptimizerCallback
from swift.pipelines.train.sft import SwiftSft
from swift.trainers import TrainerFactory
from torch.utils.data import Dataset

from coord_adapter import CoordOffsetConfig, build_param_groups, param_group_names
from coord_codec import InputError
from coord_codec.files import read_json
from coord_detect.console import world_size
from coord_trainer.config.run_config import RunConfig
from coord_trainer.config.swift_arguments import DEEPSPEED_PRESETS
from coord_trainer.swift.trainer import CoordTrainer, TrainingParts
from coord_trainer.training.muon import MuonAdamW, muon_groups


class _OffsetsApart(OptimizerCallback):
    """Gives the offset tables groups of their own, whatever groups the optimizer of this name forms for the rest."""

    def create_optimizer(self, model: Any = None) -> Any:
        """Build the groups of the optimizer, then move the offset tables into groups at the rates of their section."""
        model = self.trainer.model if model is None else model
        optimizer = super().create_optimizer(model=model)
        offset = getattr(self.trainer, "offset_config", None)  # a trainer of swift's own has none
        if offset is not None and offset.enabled:
            optimizer.param_groups = list(build_param_groups(_APART, model, optimizer.param_groups, offset))
        return optimizer


class _RegisteredGroups(MultimodalOptimizerCallback):
    """swift's parameter groups (vision, aligner, LLM), rearranged by a function that a plugin has registered."""

    def create_optimizer(self, model: Any = None) -> Any:
        """Build swift's parameter groups, then those of the named function."""
        model = self.trainer.model if model is None else model
        optimizer = super().create_optimizer(model=model)
        offset = getattr(self.trainer, "offset_config", None)
        if offset is None:
            return optimizer
        rates = {group["lr"] for group in optimizer.param_groups}
        for key, part in (("vit_lr", "vision_tower"), ("aligner_lr", "aligner")):
            if (rate := getattr(self.args, key)) is not None and rate not in rates:
                names = ", ".join(getattr(model.model_meta.model_arch, part))
                raise InputError(
                    f"training.{key} is {rate}, but no trained parameter lies in {names}: it is frozen, or has no "
                    "adapter (training.target_modules); leave the setting out, or train that part"
                )
        if (name := self.args.optimizer) != _APART:
            optimizer.param_groups = list(build_param_groups(name, model, optimizer.param_groups, offset))
        return optimizer


class CoordOptimizer(_OffsetsApart, _RegisteredGroups):
    """An optimizer of the registry, with the offset tables in groups of their own."""


class DefaultOptimizer(_OffsetsApart, OptimizerCallback):
    """swift's default optimizer, with the offset tables in groups of their own."""


class LorapOptimizer(_OffsetsApart, LorapOptimizerCallback):
    """LoRA+, with the offset tables in groups of their own."""


_APART = "multimodal_coord_offset"
"""The function of the registry that moves the offset tables into groups of their own."""


class MuonOptimizer(OptimizerCallback):
    """swift's default parameter groups, with Muon for the matrices of linear layers."""

    def create_optimizer(self, model: Any = None) -> Any:
        """Build swift's AdamW and use its parameter groups."""
        model = self.trainer.model if model is None else model
        return MuonAdamW(muon_groups(model, super().create_optimizer(model=model).param_groups))


class CoordSft(SwiftSft):
    """swift's pipeline with our data sets; `parts` has to be set before `main()`."""

    parts: TrainingParts
    datasets: Sequence[Dataset[Any] | None] = (None, None)

    def _prepare_dataset(self) -> Any:
        return list(self.datasets)

    def _get_trainer_kwargs(self) -> Any:
        return {"coord_parts": self.parts}

    def _save_trainer_state(self, trainer: Any) -> Any:
        """Save it without swift's plots, which import matplotlib to look for losses in a folder that has none."""
        trainer.args.report_to = []
        return super()._save_trainer_state(trainer)


class _SftWithoutWeights(CoordSft):
    """The pipeline with a model without weights."""

    def _prepare_model_tokenizer(self) -> Any:
        with torch.device("meta"):
            super()._prepare_model_tokenizer(return_dummy_model=True)


def open_pipeline(arguments: dict[str, Any], without_weights: bool = False) -> CoordSft:
    """Load model, processor and template as swift does; `without_weights` leaves the model on the meta device.

    Raises:
        InputError: a file of the checkpoint is missing or damaged.
    """
    if arguments.get("deepspeed"):
        import deepspeed

        settings = read_deepspeed(arguments["deepspeed"])
        arguments = {**arguments, "deepspeed": spell_out(settings, arguments, world_size())}
    TrainerFactory.TRAINER_MAPPING["causal_lm"] = f"{CoordTrainer.__module__}.{CoordTrainer.__name__}"
    optimizers_map.update(dict.fromkeys(param_group_names(), CoordOptimizer))
    optimizers_map.update(default=DefaultOptimizer, lorap=LorapOptimizer, muon=MuonOptimizer)
    parsed = CoordSft.args_class(**arguments)
    if arguments.get("deepspeed"):
        # transformers has counted the ranks by now; while this is set, accelerate does not use DeepSpeed.
        os.environ.pop("ACCELERATE_USE_CPU", None)
        if world_size() > 1:  # ZeRO-3 shards while loading, and would assume one rank without this
            deepspeed.init_distributed(dist_backend=arguments["ddp_backend"], auto_mpi_discovery=False)
    try:
        return (_SftWithoutWeights if without_weights else CoordSft)(parsed)
    except (OSError, JSONDecodeError, SafetensorError) as error:
        if getattr(error, "errno", None) is not None:  # of the system, such as a full disk
            raise
        reason = " ".join(str(error).split())
        raise InputError(f"model.path: {arguments['model']} is not a complete checkpoint ({reason})") from error


class _PlannedTrainer(CoordTrainer):
    """What an optimizer is created from: no accelerator, which would move a model without weights to a device."""

    def __init__(self, model: Any, arguments: Any, offset: CoordOffsetConfig) -> None:
        self.model, self.args, self.offset_config = model, arguments, offset
        self.optimizer = self.optimizer_cls_and_kwargs = None


def plan_optimizer(pipeline: CoordSft, offset: CoordOffsetConfig) -> tuple[Any, torch.optim.Optimizer]:
    """Return model with adapter and optimizer as training would create them, without running the trainer."""
    pipeline.model = model = pipeline.prepare_model(pipeline.args, pipeline.model, template=pipeline.template)
    arguments = pipeline.args.training_args
    trainer = _PlannedTrainer(model, arguments, offset)
    if arguments.gradient_checkpointing:
        trainer._prepare_gradient_checkpointing(model)  # with the vision tower's inputs, as training does
        arguments.gradient_checkpointing = True
    optimizer = optimizers_map[arguments.optimizer or "default"](arguments, trainer).create_optimizer()
    for group in optimizer.param_groups:
        group.update(fused=False, foreach=False)  # meta tensors have no fused step
    return model, optimizer


def swift_arguments(config: RunConfig, folder: Path, base: str, model_type: str, evaluates: bool) -> dict[str, Any]:
    """Return the arguments of `SftArguments`: defaults, overridden by `training:` and by the other sections."""
    cuda = torch.cuda.is_available()
    size = config.training.get("per_device_train_batch_size", 1)
    defaults = {
        "per_device_train_batch_size": size,
        "gradient_accumulation_steps": -(-16 // (size * world_size())),  # as in swift: 16 samples per step
        "max_grad_norm": 1.0,
        "tuner_type": "full",
        "freeze_vit": False,
        "freeze_aligner": False,
        "gradient_checkpointing": False,
        "report_to": ["tensorboard"],
        "logging_steps": 10,
        "save_strategy": "steps",
        "eval_strategy": "steps" if evaluates else "no",
        "per_device_eval_batch_size": size,
        "dataloader_num_workers": 0,
        "lazy_tokenize": True,
        "load_from_cache_file": False,
    }
    if config.custom.coord_offset.enabled:
        defaults |= {"optimizer": "multimodal_coord_offset", "tuner_type": "lora"}
    owned = {
        "model": base,
        "model_type": model_type,
        "dataset": ["unused"],  # must not be empty; replaced by our own data sets
        "val_dataset": ["unused"] if evaluates else [],
        "split_dataset_ratio": 0.0,
        "torch_dtype": config.model.dtype,
        "fp16": config.model.dtype == "float16",
        "bf16": config.model.dtype == "bfloat16",
        "attn_impl": config.model.attention,
        "output_dir": str(folder / "checkpoints"),
        "add_version": False,
        "check_model": False,
        "seed": config.run.seed,
        "data_seed": config.run.seed,
        "strict": True,
        "use_cpu": not cuda,
        "ddp_backend": ("nccl" if cuda else "gloo") if "RANK" in os.environ else None,
    }
    arguments = defaults | config.training | owned
    if arguments.get("optimizer") == _APART and not config.custom.coord_offset.enabled:
        arguments["optimizer"] = "multimodal"  # without offsets, the groups are those of before
    return arguments


def read_deepspeed(value: Any) -> dict[str, Any]:
    """Return the configuration that `training.deepspeed` names: a preset of ms-swift, a JSON file or a mapping.

    Raises:
        InputError: the value is none of these.
    """
    if isinstance(value, dict):
        return value
    path = Path(swift.__file__).parent / "config" / f"{value}.json" if value in DEEPSPEED_PRESETS else Path(str(value))
    try:
        settings = read_json(path)
        if not isinstance(settings, dict):
            raise InputError(f"{path}: expected an object, found {type(settings).__name__}")
    except InputError as error:
        raise InputError(
            f"training.deepspeed: expected one of {', '.join(DEEPSPEED_PRESETS)}, a JSON file or a mapping, "
            f"found {value!r} ({error})"
        ) from None
    return settings


def spell_out(settings: dict[str, Any], arguments: dict[str, Any], ranks: int) -> dict[str, Any]:
    """Return DeepSpeed's `settings` with swift's batch sizes and clipping, which they must not contradict."""
    size, steps = arguments["per_device_train_batch_size"], arguments["gradient_accumulation_steps"]
    required = {
        "train_micro_batch_size_per_gpu": (size, "per_device_train_batch_size"),
        "gradient_accumulation_steps": (steps, "gradient_accumulation_steps"),
        "train_batch_size": (size * steps * ranks, "per_device_train_batch_size"),
        "gradient_clipping": (float(arguments["max_grad_norm"]), "max_grad_norm"),
    }
    for name, (value, source) in required.items():
        stated = settings.get(name, "auto")
        if stated not in ("auto", value):
            raise InputError(
                f"training.deepspeed sets {name} to {stated}, but training.{source} makes it {value}: set it to auto, "
                "or make them equal"
            )
    return {**settings, **{name: value for name, (value, _) in required.items()}, "zero_force_ds_cpu_optimizer": False}
