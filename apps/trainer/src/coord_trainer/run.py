"""One run from data to report, top to bottom: `train_and_score(config, folder)`."""

from __future__ import annotations

import os
from collections.abc import Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from filelock import FileLock

from coord_codec import InputError, RunError
from coord_codec.files import read_json_lines
from coord_data.image_set import ImageSet
from coord_data.inspection.numbers.findings import Finding, write_findings
from coord_eval import Evaluation
from coord_trainer.answers.during_training import AnswerSchedule, SubsetScorer
from coord_trainer.answers.generate import predict_images
from coord_trainer.answers.score import report_on
from coord_trainer.checkpoints import best_by_ap, is_finished, newest_complete, steps_of
from coord_trainer.config.run_config import RunConfig
from coord_trainer.console import first_rank_first, is_first, say, world_size
from coord_trainer.data.lengths import longer_than, report_long_samples
from coord_trainer.data.load import load_sets, report_mixture, report_sets, scored_set, sets_of, source_configs
from coord_trainer.data.mixed import ConversationSamples, MixedSamples
from coord_trainer.data.mixture import Mixture, Part
from coord_trainer.data.samples import SampleSet
from coord_trainer.data.targets import TargetWriter
from coord_trainer.folder import (
    Manifest,
    check_same_data,
    earlier_manifest,
    explain_full_disk,
    explain_lost_evaluation,
    lock_run_folder,
    open_run_folder,
    prepare_resume,
    refuse_second_run,
    write_config,
)
from coord_trainer.inspection.report import check_before_training, explain_unusable
from coord_trainer.model.checkpoint import count_parameters
from coord_trainer.model.tiny import base_checkpoint, check_model_path
from coord_trainer.swift.open_run import OpenRun, Trained, open_run, sample_set
from coord_trainer.training.callbacks import (
    EachEpoch,
    MetricsFile,
    OverfittingWatch,
    SparserLogs,
    StepProfile,
    TrainingProgress,
)
from coord_trainer.training.faults import explain_worker_failure
from coord_trainer.training.interrupt import (
    Interrupted,
    Interruption,
    StopAtBoundary,
    TrainingClock,
    explain_resume,
    seconds_of,
)


@dataclass(frozen=True)
class Result:
    """The result of a finished run: its folder, its checkpoint and, if answers were scored, their evaluation."""

    folder: Path
    checkpoint: Path
    evaluation: Evaluation | None


def train_and_score(config: RunConfig, folder: Path, drawn: Sequence[ImageSet] = ()) -> Result:
    """Train, generate answers with the checkpoint on disk, score them and write a report.

    Args:
        config: the resolved configuration
        folder: the run folder; an older one of that name is moved aside, or continued with `run.resume`
        drawn: the generated shapes, if they exist already

    Raises:
        InputError: data or settings are faulty.
        RunError: the run could not finish.
        Interrupted: a signal stopped the run; a checkpoint is saved, and the message names the command to resume it.
    """
    with Interruption() as interruption, explain_resume(folder), ExitStack() as held:
        return _carry_out(config, folder, drawn, interruption, held)


def _carry_out(
    config: RunConfig, folder: Path, drawn: Sequence[ImageSet], interruption: Interruption, held: ExitStack
) -> Result:
    check_model_path(config)
    _ = config.custom.objective  # reports a missing plugin or term before the slow part
    with first_rank_first("folder"):
        # Annotated data is checked before the folder is created, so that a wrong path leaves no folder behind.
        annotated, findings = None, []
        if config.data.given:
            with explain_unusable(config) if is_first() else nullcontext():
                annotated = load_sets(config)
            if is_first():
                findings = _check_data(config, *annotated, folder.parent / ".inspected")
                if config.run.resume:  # before anything in the folder is rewritten
                    check_same_data(folder, earlier_manifest(folder).get("data", {}), _data_facts(*annotated))
        _check_ranks(len(annotated[0]) if annotated is not None else config.data.shapes.train)
        if is_first():
            held.callback(_open_folder(config, folder).release)
    with explain_full_disk(folder), Manifest(folder, config, writes=is_first()) as manifest:
        if config.run.threads:
            torch.set_num_threads(config.run.threads)
        with first_rank_first("files"):
            train, heldout = annotated or sets_of(config, folder / "data", drawn)
            if is_first():
                report_mixture(train)
                report_sets(folder, [part.content for part in train.parts] + [heldout] * (heldout is not None))
                if annotated is not None:
                    write_findings(folder / "findings.json", findings)
                data = _data_facts(train, heldout)
                check_same_data(folder, manifest.data_before, data)
                manifest.update(data=data)
            base = base_checkpoint(config, folder, train)
        scored = scored_set(config, train, heldout)
        checkpoint, facts = train_model(config, folder, base, train, scored, interruption)
        manifest.update(**facts)
        if interruption.signum:
            raise Interrupted(interruption.signum)
        if scored is None or not is_first():
            return Result(folder, checkpoint, None)
        with explain_lost_evaluation(folder, checkpoint), explain_full_disk(folder):
            count = predict_images(config, checkpoint, scored, folder / "predictions.jsonl")
            say(f"{count} answers from {checkpoint.name}, loaded from disk")
            return Result(folder, checkpoint, report_on(config, folder, scored))


def _check_data(config: RunConfig, train: Mixture, heldout: ImageSet | None, cache: Path) -> list[Finding]:
    """Print and return the findings about every annotated source."""
    findings = []
    for (_, alone), images in zip(source_configs(config), train.image_sets, strict=True):
        findings += check_before_training(alone, images, heldout, cache)
    return findings


def _data_facts(train: Mixture, heldout: ImageSet | None) -> dict[str, Any]:
    """Return the facts about the data for the manifest."""
    sources = train.facts()
    problems = sum(len(part.content.problems) for part in train.parts)
    images = sum(map(len, train.image_sets))
    facts = {"train": {"digest": train.digest, "images": images, "problems": problems, "sources": sources}}
    if heldout is not None:
        count = len(heldout.problems)
        facts[heldout.name] = {"digest": heldout.digest, "images": len(heldout), "problems": count}
    return facts


def _check_ranks(images: int) -> None:
    if images < world_size():
        raise InputError(
            f"data.annotations: {images} usable training images for {world_size()} ranks; each rank needs one, so add "
            "images or start fewer ranks"
        )


def _open_folder(config: RunConfig, folder: Path) -> FileLock:
    refuse_second_run(folder)
    if config.run.resume:
        prepare_resume(config, folder)
    else:
        moved = open_run_folder(folder)
        say(f"run folder {folder}" + (f" (the older one is now {moved})" if moved else ""))
    lock = lock_run_folder(folder)
    with explain_full_disk(folder):
        write_config(folder, config)
    return lock


def train_model(
    config: RunConfig,
    folder: Path,
    base: str,
    train: ImageSet | Mixture,
    scored: ImageSet | None,
    interruption: Interruption | None = None,
) -> tuple[Path, dict[str, Any]]:
    """Train from `base` on `train`, with evaluation losses on `scored`, until the end or a signal of `interruption`.

    Returns:
        The checkpoint to generate answers with (the best by AP if that was measured, else the last), and facts for the
        manifest.

    Raises:
        RunError: training left no checkpoint.
    """
    say("loading ms-swift")
    mixture = Mixture.of_one(train, config.data)
    opened = open_run(config, folder, base, evaluates=scored is not None)
    for part in mixture.parts:
        _report_long_samples(config, opened, part)
    samples = MixedSamples(mixture, [_samples_of(config, opened, part) for part in mixture.parts])
    workers = _report_samples(config, samples)
    shared = scored is mixture.only and not config.data.augment.active
    scored_samples = samples.parts[0] if shared else scored and sample_set(config, opened, scored)
    interruption = interruption or Interruption()
    resumed = newest_complete(folder / "checkpoints")[0] if config.run.resume else None
    before = (steps_of(resumed), seconds_of(resumed)) if resumed is not None else (0, 0.0)
    clock = TrainingClock(before[1])
    callbacks = (
        TrainingProgress(),
        MetricsFile(folder / "metrics.jsonl"),
        SparserLogs(),
        EachEpoch(samples.set_epoch),
        OverfittingWatch(config.evaluation.overfitting_after),
        *([StepProfile(folder / "metrics.jsonl")] if config.run.profile else []),
        StopAtBoundary(interruption),
        clock,
    )
    section = config.evaluation
    answers = None
    if section.ap_steps is not None and scored is not None:
        scorer = SubsetScorer(config, scored, opened.processor, opened.vocab)
        answers = AnswerSchedule(scorer, section.ap_steps, section.ap_patience)
        say(f"  AP of the answers to {len(scorer.images)} images is measured every {section.ap_steps} steps")
    limits = (config.training.get(name) for name in ("max_steps", "num_train_epochs"))
    if resumed is not None and is_finished(resumed, *limits, section.ap_patience):
        say(f"training had ended with {resumed.name}")
        trained, seconds, of_training = Trained(resumed, steps_of(resumed)), before[1], {}  # those of the manifest stay
    else:
        with interruption.between_steps(), explain_worker_failure():
            trained = opened.train(
                samples, scored_samples, callbacks=callbacks, resume_from=resumed, workers=workers, answers=answers
            )
        seconds = clock.seconds
        of_training = {"first_batches": trained.first_batches, **_report_seen(mixture, trained.seen)}
        of_training["parameters"] = parameters = count_parameters(opened.model)
        say(f"{parameters['trained']:,} of {parameters['all']:,} parameters were trained")
    if trained.checkpoint is None:
        raise RunError("training ended without a checkpoint; set training.save_strategy to steps or epoch")
    earlier = f", {before[0]} of them in {before[1]:.0f} s before it was resumed" * bool(before[0])
    say(f"trained {trained.steps} steps in {seconds:.0f} s{earlier}")
    facts = {
        "steps": trained.steps,
        "training_seconds": round(seconds, 1),
        "resumed_from": {"steps": before[0], "training_seconds": before[1]} if before[0] else None,
        "fingerprint": opened.vocab.fingerprint(markers=opened.markers) if opened.vocab is not None else None,
        "checkpoint": os.path.relpath(trained.checkpoint, folder),
        "objects_left_out_by_the_cap": samples.dropped_objects,
        **of_training,
        **_report_evaluations(folder, trained.checkpoint),
    }
    best = facts["best_checkpoint"]
    return (folder / best["path"] if best else trained.checkpoint), facts


def _report_seen(mixture: Mixture, seen: Sequence[int]) -> dict[str, Any]:
    """Print the number of samples of each source that were trained on, and return it for the manifest."""
    counts = {part.name: count for part, count in zip(mixture.parts, seen, strict=True)}
    total = max(1, sum(counts.values()))
    if len(counts) > 1:
        say("seen: " + ", ".join(f"{name} {count:,} samples ({count / total:.1%})" for name, count in counts.items()))
    return {"samples_seen": counts}


def _report_evaluations(folder: Path, last: Path) -> dict[str, Any]:
    """Print the best checkpoint by AP and the number of failed evaluations; returns both for the manifest."""
    best = best_by_ap(last)
    if best is not None:
        say(f"best checkpoint by AP during training: {best[0].name}, {best[1]:.3f}; it generates the answers")
    metrics = folder / "metrics.jsonl"
    lines = [line for _, line in read_json_lines(metrics)] if metrics.is_file() else []
    failed = [f"step {line['step']}: {line['eval_failed']}" for line in lines if "eval_failed" in line]
    if failed:
        say(f"{len(failed)} evaluations during training failed; the last: {failed[-1]}")
    path = best and {"path": os.path.relpath(best[0], folder), "AP": best[1]}
    return {"best_checkpoint": path, "failed_evaluations": {"count": len(failed), "which": failed[-10:]}}


def _samples_of(config: RunConfig, opened: OpenRun, part: Part) -> SampleSet | ConversationSamples:
    if isinstance(part.content, ImageSet):
        return sample_set(_of_part(config, part), opened, part.content, augments=True)
    return ConversationSamples(part.content, opened.encode)


def _of_part(config: RunConfig, part: Part) -> RunConfig:
    return config.model_copy(update={"data": part.data})


def _report_long_samples(config: RunConfig, opened: OpenRun, part: Part) -> None:
    """Print which samples `training.max_length` truncates; raises an `InputError` if they may not be truncated."""
    limit, content = opened.longest_sample, part.content
    if isinstance(content, ImageSet):
        lengths = replace(opened, config=_of_part(config, part)).measure()
        writer = TargetWriter(
            part.data, config.custom.coord_tokens.enabled, config.run.seed, opened.vocab, content.classes
        )
        long = [(f"image {i.image}", n) for i, n in longer_than(limit, lengths, content.instances, writer.longest)]
    else:
        long = content.longer_than(limit, opened.measure().image, opened.length)
    if line := report_long_samples(long, len(content), limit, opened.truncation):
        say(f"  {line}")


def _report_samples(config: RunConfig, samples: MixedSamples) -> int | None:
    """Print what is left out of the samples; returns the number of encoding processes, None for swift's default."""
    if samples.dropped_objects:
        say(f"  {samples.dropped_objects} objects beyond data.max_objects={config.data.max_objects} left out")
    if spare := len(samples) % world_size():
        say(f"  the last {spare} training images are left out, so that {world_size()} ranks have equally many")
    if samples.kept or "dataloader_num_workers" in config.training:
        return None
    workers = max(1, min(4, (os.cpu_count() or 1) // world_size()))
    say(f"  images are encoded during training, by {workers} processes")
    return workers
