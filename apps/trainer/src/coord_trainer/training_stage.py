"""The training stage of a run: encoded samples and a base checkpoint go in, a trained checkpoint comes out."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from coord_codec import RunError
from coord_codec.counts import counted
from coord_codec.files import read_json_lines
from coord_data.reading.image_set import ImageSet
from coord_detect.console import say, world_size
from coord_detect.model.checkpoints import best_by_ap, is_finished, newest_complete, steps_of
from coord_detect.model.prompt import refuse_placeholders
from coord_trainer.config.run_config import RunConfig
from coord_trainer.data.conversations import Conversations
from coord_trainer.data.lengths import longer_than, report_long_samples
from coord_trainer.data.mixture import Mixture, MixtureSource
from coord_trainer.data.samples import Samples
from coord_trainer.evaluation.during_training import AnswerSchedule, SubsetScorer
from coord_trainer.model.parameters import count_parameters
from coord_trainer.swift.open_run import OpenRun, Trained, open_run, sample_set, target_writer
from coord_trainer.training.callbacks import EachEpoch, IntervalsOfNow, MetricsFile, TrainingProgress
from coord_trainer.training.faults import explain_worker_failure
from coord_trainer.training.interrupt import Interruption, StopAtBoundary, TrainingClock, seconds_of
from coord_trainer.training.profile import StepProfile


@dataclass(frozen=True)
class TrainingResult:
    """The result of the training stage.

    Attributes:
        checkpoint: the one to generate answers with: the best by AP if that was measured, else the last
        facts: for the manifest; steps and seconds include those before a resume, and what only a training of this call
            can state, samples seen by source and numbers of parameters, is left out if training had ended before
    """

    checkpoint: Path
    facts: dict[str, Any]


def train_model(
    config: RunConfig,
    folder: Path,
    base: str,
    train: ImageSet | Mixture,
    scored: ImageSet | None,
    interruption: Interruption | None = None,
) -> TrainingResult:
    """Train until the end or a signal of `interruption`, and print what a user has to know about it.

    `scored` are the images for evaluation losses and AP during training.

    Raises:
        InputError: samples are too long, or settings do not fit the model.
        RunError: training left no checkpoint.
    """
    interruption = interruption or Interruption()
    mixture = Mixture.of_one(train, config.data)

    # Open: model, processor and template are loaded through ms-swift.
    say("loading ms-swift")
    opened = open_run(config, folder, base, evaluates=scored is not None)

    # Samples: what is too long is refused or reported before anything is encoded.
    for source in mixture.sources:
        for label in sorted(source.images.words) if source.images is not None else ():
            refuse_placeholders(opened.processor, label, f"{source.name}: label {label!r}")
        report_length(config, opened, source)
    samples = sample_set(config, opened, mixture, augments=True)
    workers = _report_samples(config, samples)
    scored_samples = None
    if scored is not None:
        shared = scored is mixture.only and not config.data.augment.active
        scored_samples = samples.of_first_epoch() if shared else sample_set(config, opened, scored)

    # Resume: where an earlier call stopped, and what it had trained.
    resumed = newest_complete(folder / "checkpoints")[0] if config.run.resume else None
    steps_before = steps_of(resumed) if resumed is not None else 0
    seconds_before = seconds_of(resumed) if resumed is not None else 0.0

    # Train, unless an earlier call has finished.
    if resumed is not None and _has_ended(config, resumed):
        say(f"training had ended with {resumed.name}")
        trained, seconds, new = Trained(resumed, steps_before), seconds_before, {}
    else:
        clock = TrainingClock(seconds_before)
        metrics, family, profiles = folder / "metrics.jsonl", opened.family, config.run.profile
        with interruption.between_steps(), explain_worker_failure():
            trained = opened.train(
                samples,
                scored_samples,
                callbacks=(
                    IntervalsOfNow(),
                    TrainingProgress(),
                    MetricsFile(metrics),
                    EachEpoch(samples.set_epoch),
                    *([StepProfile(metrics, family.vision_tower, family.language_model)] if profiles else []),
                    StopAtBoundary(interruption),
                    clock,
                ),
                resume_from=resumed,
                workers=workers,
                answers=_answer_schedule(config, folder, opened, scored),
            )
        seconds = clock.seconds
        new = _report_trained(opened, mixture, trained)
    if trained.checkpoint is None:
        raise RunError("training ended without a checkpoint; set training.save_strategy to steps or epoch")
    earlier = f", {steps_before} of them in {seconds_before:.0f} s before it was resumed" if steps_before else ""
    say(f"trained {counted(trained.steps, 'step')} in {seconds:.0f} s{earlier}")

    # Result: the best checkpoint is known only now.
    best, ap = best_by_ap(trained.checkpoint) or (None, None)
    if best is not None:
        say(f"best checkpoint by AP during training: {best.name}, {ap:.3f}; it generates the answers")
    failed = _report_failed_evaluations(folder)
    facts = {
        "steps": trained.steps,
        "training_seconds": round(seconds, 1),
        "resumed_from": {"steps": steps_before, "training_seconds": seconds_before} if steps_before else None,
        "fingerprint": opened.vocab.fingerprint(markers=opened.markers) if opened.vocab is not None else None,
        "checkpoint": os.path.relpath(trained.checkpoint, folder),
        "objects_left_out_by_the_cap": samples.dropped_objects,
        **new,
        "best_checkpoint": None if best is None else {"path": os.path.relpath(best, folder), "AP": ap},
        "failed_evaluations": {"count": len(failed), "which": list(failed[-10:])},
    }
    return TrainingResult(best or trained.checkpoint, facts)


def _has_ended(config: RunConfig, checkpoint: Path) -> bool:
    steps, epochs = (config.training.get(name) for name in ("max_steps", "num_train_epochs"))
    return is_finished(checkpoint, steps, epochs, config.evaluation.ap_patience)


def _answer_schedule(
    config: RunConfig, folder: Path, opened: OpenRun, scored: ImageSet | None
) -> AnswerSchedule | None:
    """Return the schedule of AP measurements during training; None if there are none."""
    section = config.evaluation
    if section.ap_steps is None or scored is None:
        return None
    scorer = SubsetScorer(config, scored, opened.processor, opened.vocab)
    say(
        f"  AP of the answers to {counted(len(scorer.images), 'image')} is measured every "
        f"{counted(section.ap_steps, 'step')}"
    )
    return AnswerSchedule(scorer, section.ap_steps, section.ap_patience)


def report_length(config: RunConfig, opened: OpenRun, source: MixtureSource) -> None:
    """Print which samples `training.max_length` truncates; raises an `InputError` if they may not be truncated."""
    limit = opened.longest_sample
    content = source.content
    if not isinstance(content, Conversations):
        lengths = replace(opened, config=config.model_copy(update={"data": source.data})).measure()
        writer = target_writer(config, opened, source.data, content)
        pairs = longer_than(limit, lengths, content.instances, writer.longest)
        long = [(f"image {instance.image}", length) for instance, length in pairs]
    else:
        long = content.longer_than(limit, opened.measure().image, opened.length)
    if line := report_long_samples(long, len(content), limit, opened.truncation):
        say(f"  {line}")


def _report_samples(config: RunConfig, samples: Samples) -> int | None:
    """Print what is left out of the samples; returns the number of encoding processes, None for swift's default."""
    if samples.dropped_objects:
        dropped = counted(samples.dropped_objects, "object")
        say(f"  {dropped} beyond data.max_objects={config.data.max_objects} left out")
    if spare := len(samples) % world_size():
        say(
            f"  the last {counted(spare, 'training image is', 'training images are')} left out, so that "
            f"{world_size()} ranks have equally many"
        )
    if samples.kept or "dataloader_num_workers" in config.training:
        return None
    workers = max(1, min(4, (os.cpu_count() or 1) // world_size()))
    say(f"  images are encoded during training, by {counted(workers, 'process', 'processes')}")
    return workers


def _report_trained(opened: OpenRun, mixture: Mixture, trained: Trained) -> dict[str, Any]:
    """Print the samples of each source and the parameters that were trained, and return them for the manifest."""
    names = [source.name for source in mixture.sources]
    counts: dict[str, int] = dict(zip(names, trained.seen, strict=True))
    total = max(1, sum(counts.values()))
    if len(counts) > 1:
        say(
            "seen: "
            + ", ".join(f"{name} {counted(count, 'sample')} ({count / total:.1%})" for name, count in counts.items())
        )
    parameters = count_parameters(opened.model)
    say(f"{parameters['trained']:,} of {parameters['all']:,} parameters were trained")
    return {"samples_seen": counts, "parameters": parameters}


def _report_failed_evaluations(folder: Path) -> tuple[str, ...]:
    """Print how many evaluations failed, and return step and reason of each."""
    metrics = folder / "metrics.jsonl"
    lines = [line for _, line in read_json_lines(metrics)] if metrics.is_file() else []
    failed = tuple(f"step {line['step']}: {line['eval_failed']}" for line in lines if "eval_failed" in line)
    if failed:
        say(f"{counted(len(failed), 'evaluation')} during training failed; the last: {failed[-1]}")
    return failed
