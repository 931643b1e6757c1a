"""One run from data to report, top to bottom: `train_and_score(config)`."""

from __future__ import annotations

import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers.integrations.deepspeed import unset_hf_deepspeed_config

from coord_adapter import offset_parameters
from coord_losses import CoordObjective

from .callbacks import EachEpoch, MetricsFile, TrainingProgress
from .checkpoints import needs_no_more, newest_complete, steps_of
from .config import RunConfig
from .console import say, swift_log
from .errors import RunError
from .picture_set import PictureSet, draw_sets, load_sets, write_problems
from .pipeline import open_run, sample_set
from .profiling import StepProfile
from .ranks import first_rank_first, is_first, world_size
from .resuming import check_same_data, prepare_resume
from .run_folder import Manifest, command_line, explain_full_disk, open_run_folder, write_config
from .scoring import report_on
from .tiny_model import base_checkpoint, check_model_path


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
        folder: the run folder; an older one of that name is moved aside, or continued with `run.resume`.

    Raises:
        InputError: bad data or settings.
        RunError: the run could not finish.
    """
    check_model_path(config)
    with first_rank_first("folder"):
        # Real data is checked before a folder is made: a typo in a path should leave nothing behind.
        sets = load_sets(config) if config.data.annotations is not None else None
        if is_first() and config.run.resume:
            prepare_resume(config, folder)
        elif is_first():
            moved = open_run_folder(folder)
            say(f"run folder {folder}" + (f" (the older one is now {moved})" if moved else ""))
    with explain_full_disk(folder):
        if is_first():
            write_config(folder, config)
        manifest = Manifest(folder, config, command_line()) if is_first() else None
        try:
            result = _run(config, folder, manifest, sets)
        except BaseException as error:
            if manifest is not None:
                with suppress(OSError):  # the disk may be what failed
                    manifest.update(status=f"failed: {type(error).__name__}: {error}")
            raise
        if manifest is not None:
            manifest.update(status="finished")
    return result


def _run(
    config: RunConfig,
    folder: Path,
    manifest: Manifest | None,
    loaded: tuple[PictureSet, PictureSet | None] | None,
) -> Result:
    if config.run.threads:
        torch.set_num_threads(config.run.threads)
    with first_rank_first("files"):
        train, heldout = loaded or draw_sets(config, folder / "data")
        sets = [pictures for pictures in (train, heldout) if pictures is not None]
        digests = {pictures.name: {"digest": pictures.digest, "images": len(pictures)} for pictures in sets}
        if manifest is not None:
            report_sets(folder, sets)
            if config.run.resume:
                check_same_data(folder, digests)
            manifest.update(data=digests)
        base = base_checkpoint(config, folder, train)
    scored = {"heldout": heldout, "train": train, "none": None}[config.evaluation.pictures]
    checkpoint, facts = _train(config, folder, base, train, scored)
    if manifest is None:
        return Result(folder, checkpoint, None)
    manifest.update(**facts)
    if scored is None:
        return Result(folder, checkpoint, None)
    from .predict import predict_pictures

    count = predict_pictures(config, checkpoint, scored, folder / "predictions.jsonl")
    say(f"{count} answers from {checkpoint.name}, loaded from disk")
    return Result(folder, checkpoint, report_on(config, folder, scored))


def report_sets(folder: Path, sets: list[PictureSet]) -> None:
    """Say what was read and what was left out; the list goes to problems.jsonl."""
    write_problems(folder / "problems.jsonl", sets)
    for pictures in sets:
        boxes = sum(len(instance.objects) for instance in pictures.instances)
        say(f"{pictures.name}: {len(pictures)} pictures, {boxes} boxes, digest {pictures.digest}")
        for reason, count in pictures.notes.items():
            say(f"  {count} {reason}")
        if pictures.problems:
            say(
                f"  {len(pictures.problems)} bad records left out, listed in {folder / 'problems.jsonl'}; the first:"
            )
            first = pictures.problems[0]
            say(f"  {first.where}: {first.field}: {first.message}")


def count_parameters(model: torch.nn.Module) -> dict[str, int]:
    """How many parameters there are, how many learnt, and how many of those are coordinate offsets."""
    offsets = offset_parameters(model)
    return {
        "all": sum(p.numel() for p in model.parameters()),
        "trained": sum(p.numel() for p in model.parameters() if p.requires_grad),
        "offsets": sum(table.numel() for tables in offsets.values() for table in tables),
    }


def _continue_or_start(config: RunConfig, folder: Path, pipeline: Any) -> dict[str, Any]:
    """Swift's training, from the newest complete checkpoint with `run.resume`; none when that was the last."""
    known = newest_complete(folder / "checkpoints")[0] if config.run.resume else None
    wanted = config.training.get("max_steps"), config.training.get("num_train_epochs")
    if known is not None and needs_no_more(known, *wanted):
        say(f"training had reached its end with {known.name}")
        return {"last_model_checkpoint": str(known), "global_step": steps_of(known)}
    pipeline.args.training_args.resume_from_checkpoint = str(known) if known is not None else None
    return pipeline.main()


def _train(
    config: RunConfig, folder: Path, base: str, train: PictureSet, scored: PictureSet | None
) -> tuple[Path, dict[str, Any]]:
    say("loading ms-swift")
    opened = open_run(config, folder, base, evaluates=scored is not None)
    train_samples = sample_set(config, opened, train)
    if train_samples.dropped_objects:
        say(
            f"  {train_samples.dropped_objects} objects beyond data.max_objects={config.data.max_objects} left out"
        )
    if len(train) % world_size():
        say(
            f"  the last {len(train) % world_size()} training pictures are left out, so that {world_size()} ranks "
            "have as many each"
        )
    if not train_samples.kept and "dataloader_num_workers" not in config.training:
        workers = max(1, min(4, (os.cpu_count() or 1) // world_size()))
        arguments = opened.pipeline.args.training_args
        arguments.dataloader_num_workers = workers
        # Started anew they learn of the next epoch's order; kept, a short epoch does not wait for their start.
        arguments.dataloader_persistent_workers = config.data.order != "random"
        say(f"  pictures are encoded on the way, by {workers} processes beside the training")
    scored_samples = train_samples if scored is train else scored and sample_set(config, opened, scored)
    with swift_log(folder / "swift.log") as take_over_loggers:
        from .swift_training import TrainingParts

        take_over_loggers()
        opened.pipeline.datasets = (train_samples, scored_samples)
        opened.pipeline.parts = TrainingParts(
            objective=CoordObjective(config.custom.objective, opened.vocab),
            offset=config.custom.coord_offset,
            fused=config.model.fused_head,
            packing=config.data.packing,
            callbacks=(
                TrainingProgress(),
                MetricsFile(folder / "metrics.jsonl"),
                EachEpoch(train_samples.set_epoch),
                *([StepProfile(folder / "metrics.jsonl")] if config.run.profile else []),
            ),
            gradient_norms=config.run.gradient_norms,
        )
        started = time.time()
        finished = _continue_or_start(config, folder, opened.pipeline)
        unset_hf_deepspeed_config()  # what is loaded next is not to be sharded
    parameters = count_parameters(opened.pipeline.model)
    say(f"{parameters['trained']:,} of {parameters['all']:,} parameters were trained")
    checkpoint = finished.get("last_model_checkpoint")
    if checkpoint is None:
        raise RunError("training ended without a checkpoint; set training.save_strategy to steps or epoch")
    seconds = time.time() - started
    say(f"trained {finished['global_step']} steps in {seconds:.0f} s")
    facts = {
        "steps": finished["global_step"],
        "training_seconds": round(seconds, 1),
        "fingerprint": opened.vocab.fingerprint(markers=opened.markers) if opened.vocab is not None else None,
        "checkpoint": os.path.relpath(checkpoint, folder),
        "objects_left_out_by_the_cap": train_samples.dropped_objects,
        "parameters": parameters,
        "first_batches": opened.pipeline.parts.first_batches.values(),
    }
    return Path(checkpoint), facts
