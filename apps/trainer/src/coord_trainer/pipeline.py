"""swift's pipeline, opened for a run: model, processor, template, vocabulary and the objective's settings."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from coord_codec import CoordVocab

from .config import RunConfig
from .console import swift_log
from .errors import InputError
from .offsets import install_offsets
from .packing import attend_by_sample
from .picture_set import PictureSet
from .pixels import set_pixels
from .ranks import world_size
from .samples import SampleSet, TargetWriter, marker_ids


@dataclass(frozen=True)
class OpenRun:
    """What data sets and trainer are made from."""

    pipeline: Any
    vocab: CoordVocab | None
    markers: tuple[int, ...] | None


def open_run(config: RunConfig, folder: Path, base: str, evaluates: bool, outline: bool = False) -> OpenRun:
    """Import swift (slow), register our template and model entry, and load `base` through them.

    Args:
        config: the run.
        folder: where swift writes.
        base: the checkpoint.
        evaluates: whether there is something to evaluate on.
        outline: without weights, on the meta device.

    Raises:
        InputError: a checkpoint that wants code of its own, or one without usable coordinate tokens.
    """
    with swift_log(folder / "swift.log") as take_over_loggers:
        from .swift_model import apply_coord_template_adapter, refuse_remote_code
        from .swift_pipeline import open_pipeline

        take_over_loggers()
        if Path(base).is_dir():
            refuse_remote_code(Path(base))
        tokens = config.custom.coord_tokens
        model_type = apply_coord_template_adapter(
            coord_tokens=tokens.enabled, skip_bbox_norm=tokens.skip_bbox_norm
        )
        # swift keeps the first run's value for the life of the process; every run has its own folder.
        os.environ["TENSORBOARD_LOGGING_DIR"] = str(folder / "tensorboard")
        pipeline = open_pipeline(_swift_arguments(config, folder, base, model_type, evaluates), outline)
    if config.data.packing and config.model.attention == "sdpa":
        attend_by_sample(pipeline.model)
    set_pixels(pipeline.processor, config.data)
    tokenizer = pipeline.processor.tokenizer
    vocab, markers = _vocab(tokenizer, config, base), marker_ids(config.data, tokenizer)
    if config.custom.coord_offset.enabled:
        install_offsets(config, pipeline, vocab, markers)
    return OpenRun(pipeline, vocab, markers)


def sample_set(config: RunConfig, opened: OpenRun, pictures: PictureSet) -> SampleSet:
    """The torch Dataset of a picture set."""
    writer = TargetWriter(config.data, config.custom.coord_tokens.enabled, config.run.seed, opened.vocab)
    return SampleSet(pictures, opened.pipeline.template.encode, writer, opened.markers)


def _vocab(tokenizer, config: RunConfig, base: str) -> CoordVocab | None:
    try:
        return CoordVocab.from_tokenizer(tokenizer)
    except ValueError as error:
        if not config.custom.coord_tokens.enabled:
            return None
        raise InputError(
            f"{base}: custom.coord_tokens.enabled is true but the tokenizer has no usable coordinate tokens: {error}"
        ) from None


def _swift_arguments(
    config: RunConfig, folder: Path, base: str, model_type: str, evaluates: bool
) -> dict[str, Any]:
    cuda = torch.cuda.is_available()
    size = config.training.get("per_device_train_batch_size", 1)
    defaults = {
        "per_device_train_batch_size": size,
        "gradient_accumulation_steps": -(-16 // (size * world_size())),  # swift's own rule: 16 samples a step
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
        "dataset": ["unused"],  # must not be empty; our own data sets take its place
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
    return defaults | config.training | owned
