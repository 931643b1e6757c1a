"""One run from data to report, top to bottom: `train_and_score(config)`."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from coord_codec import CoordVocab

from .callbacks import MetricsFile, TrainingProgress
from .config import RunConfig
from .console import say, swift_log
from .errors import InputError, RunError
from .picture_set import PictureSet, load_sets, write_problems
from .run_folder import Manifest, command_line, open_run_folder, write_config
from .scoring import score_run
from .shapes import CATEGORIES
from .tiny_model import build_tiny_checkpoint


@dataclass(frozen=True)
class Result:
    """What a finished run leaves: its folder and, when something was scored, the evaluation."""

    folder: Path
    checkpoint: Path
    evaluation: Any | None


def train_and_score(config: RunConfig, folder: Path) -> Result:
    """Train, generate from the checkpoint on disk, score and report.

    Args:
        config: the resolved configuration.
        folder: the run folder; an older one of that name is moved aside.

    Raises:
        InputError: bad data or settings.
        RunError: the run could not finish.
    """
    main = int(os.environ.get("RANK", "0")) == 0
    if main:
        moved = open_run_folder(folder)
        say(f"run folder {folder}" + (f" (the older one is now {moved})" if moved else ""))
        write_config(folder, config)
    manifest = Manifest(folder, config, command_line()) if main else None
    _set_threads(config)
    train, heldout = load_sets(config.data, folder / "data", config.evaluation.pictures == "heldout")
    report_sets(folder, [s for s in (train, heldout) if s is not None])
    base = _base_checkpoint(config, folder, train)
    scored = {"heldout": heldout, "train": train, "none": None}[config.evaluation.pictures]
    trained = _train(config, folder, base, train, scored)
    if manifest is not None:
        manifest.update(
            data={s.name: {"digest": s.digest, "images": len(s)} for s in (train, heldout) if s is not None},
            **trained.facts,
        )
    if not main:
        return Result(folder, trained.checkpoint, None)
    evaluation = None
    if scored is not None:
        evaluation = score_run(config, folder, trained.checkpoint, scored, trained.longest_answer)
    manifest.update(status="finished")
    return Result(folder, trained.checkpoint, evaluation)


def report_sets(folder: Path, sets: list[PictureSet]) -> None:
    """Say what was read and what was left out; the list goes to problems.jsonl."""
    write_problems(folder / "problems.jsonl", sets)
    for pictures in sets:
        boxes = sum(len(instance.objects) for instance in pictures.instances)
        say(f"{pictures.name}: {len(pictures)} pictures, {boxes} boxes, digest {pictures.digest}")
        for reason, count in pictures.notes.items():
            say(f"  {count} {reason}")
        if pictures.problems:
            say(f"  {len(pictures.problems)} bad records left out, listed in {folder / 'problems.jsonl'}; the first:")
            first = pictures.problems[0]
            say(f"  {first.where}: {first.field}: {first.message}")


def _set_threads(config: RunConfig) -> None:
    if config.run.threads:
        torch.set_num_threads(config.run.threads)


def _base_checkpoint(config: RunConfig, folder: Path, train: PictureSet) -> str:
    path = config.model.path
    if path is None:
        words = {found.desc for instance in train.instances for found in instance.objects}
        texts = [config.data.prompt, *sorted(words | (set(CATEGORIES) if config.data.annotations is None else set()))]
        parameters = build_tiny_checkpoint(folder / "base", config.model.tiny, texts, config.run.seed)
        say(f"model: Qwen3-VL built with random weights, {parameters:,} parameters")
        return str(folder / "base")
    if Path(path).is_dir():
        from .swift_model import refuse_remote_code

        refuse_remote_code(Path(path))
    elif not config.model.download:
        raise InputError(
            f"model.path: no folder {path!r} here; give a checkpoint's folder, or set model.download: true to "
            "fetch a hub id"
        )
    return path


@dataclass(frozen=True)
class _Trained:
    checkpoint: Path
    facts: dict[str, Any]
    longest_answer: int


def _train(
    config: RunConfig, folder: Path, base: str, train: PictureSet, scored: PictureSet | None
) -> _Trained:
    say("loading ms-swift")
    with swift_log(folder / "swift.log") as take_over_loggers:
        from coord_losses import CoordObjective

        from .samples import SampleSet, TargetWriter, marker_ids
        from .swift_model import apply_coord_template_adapter
        from .swift_training import TrainingParts, open_pipeline

        take_over_loggers()
        tokens = config.custom.coord_tokens
        model_type = apply_coord_template_adapter(coord_tokens=tokens.enabled, skip_bbox_norm=tokens.skip_bbox_norm)
        pipeline = open_pipeline(_swift_arguments(config, folder, base, model_type, scored is not None))
        tokenizer = pipeline.processor.tokenizer
        _set_pixels(pipeline.processor, config)
        vocab = _vocab(tokenizer, config, base)
        writer = TargetWriter(config.data, tokens.enabled, config.run.seed, vocab)
        markers = marker_ids(config.data, tokenizer)
        sets = [
            SampleSet(pictures, pipeline.template.encode, writer, markers) if pictures is not None else None
            for pictures in _once(train, scored)
        ]
        if sets[0].dropped_objects:
            say(f"  {sets[0].dropped_objects} objects beyond data.max_objects={config.data.max_objects} left out")
        pipeline.datasets = [sets[0], sets[-1] if scored is not None else None]
        objective = CoordObjective(config.custom.objective, vocab)
        pipeline.parts = TrainingParts(objective, (TrainingProgress(), MetricsFile(folder / "metrics.jsonl")))
        started = time.time()
        finished = pipeline.main()
    checkpoint = finished.get("last_model_checkpoint")
    if checkpoint is None:
        raise RunError("training ended without a checkpoint; set training.save_strategy to steps or epoch")
    seconds = time.time() - started
    say(f"trained {finished['global_step']} steps in {seconds:.0f} s")
    facts = {
        "steps": finished["global_step"],
        "training_seconds": round(seconds, 1),
        "fingerprint": vocab.fingerprint(markers=markers) if vocab is not None else None,
        "checkpoint": os.path.relpath(checkpoint, folder),
        "objects_left_out_by_the_cap": sets[0].dropped_objects,
    }
    longest = max(sum(label != -100 for label in sets[0][i]["labels"]) for i in range(min(len(train), 2000)))
    return _Trained(Path(checkpoint), facts, longest)


def _once(train: PictureSet, scored: PictureSet | None) -> list[PictureSet]:
    return [train] if scored is None or scored is train else [train, scored]


def _vocab(tokenizer, config: RunConfig, base: str) -> CoordVocab | None:
    try:
        return CoordVocab.from_tokenizer(tokenizer)
    except ValueError as error:
        if not config.custom.coord_tokens.enabled:
            return None
        raise InputError(
            f"{base}: custom.coord_tokens.enabled is true but the tokenizer has no usable coordinate tokens: {error}"
        ) from None


def _set_pixels(processor, config: RunConfig) -> None:
    """The limits go into the processor, which is saved with the checkpoint: inference resizes alike."""
    size = dict(processor.image_processor.size)
    for key, value in (("shortest_edge", config.data.min_pixels), ("longest_edge", config.data.max_pixels)):
        if value is not None:
            size[key] = value
    processor.image_processor.size = size


def _swift_arguments(
    config: RunConfig, folder: Path, base: str, model_type: str, evaluates: bool
) -> dict[str, Any]:
    cuda = torch.cuda.is_available()
    defaults = {
        "tuner_type": "full",
        "freeze_vit": False,
        "freeze_aligner": False,
        "gradient_checkpointing": False,
        "report_to": ["tensorboard"],
        "logging_steps": 10,
        "save_strategy": "steps",
        "eval_strategy": "steps" if evaluates else "no",
        "dataloader_num_workers": 0,
        "lazy_tokenize": True,
        "load_from_cache_file": False,
    }
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


