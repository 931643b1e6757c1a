"""Runs a comparison: keeps finished runs, trains the others a few at a time, calls `coord_eval.compare`."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import yaml

from coord_codec import InputError, RunError
from coord_codec.counts import counted
from coord_codec.files import read_json, read_json_lines, write_text
from coord_data.reading.image_set import ImageSet
from coord_detect.answers.resumable_file import make_folder
from coord_detect.console import say
from coord_detect.model.checkpoints import AP, find_checkpoint
from coord_detect.settings.decoding import Decoding
from coord_detect.settings.load import changed_settings, read_yaml
from coord_eval import Evaluation, TrainingCurves, compare, training_curves
from coord_losses import registered_terms
from coord_trainer.comparison.plan import (
    LossGroup,
    PlannedRun,
    differing_settings,
    plan_groups,
    plan_runs,
    result_settings,
)
from coord_trainer.config.run_config import check_run_config
from coord_trainer.data.load import load_data
from coord_trainer.evaluation.decodings import predict_images
from coord_trainer.evaluation.score import score_predictions
from coord_trainer.folder import prediction_files
from coord_trainer.model.model_path import check_model_path

_DATA_FIELDS = ("annotations", "images", "heldout_annotations", "heldout_images", "shapes", "strict")
"""The settings that select images, which have to be equal; other settings of `data` may differ between groups."""
_TRAIN = "from coord_trainer.cli import main; main()"
_POLL_SECONDS = 0.5
_LAST_LINES = 5


def compare_configs(
    files: Sequence[Path],
    overrides: Sequence[str],
    *,
    seeds: Sequence[int],
    base: Path | None,
    sweep: Path | None,
    out: Path,
    jobs: int,
    resamples: int,
    dry_run: bool,
) -> Path | None:
    """Carry out a comparison, or print its plan (`dry_run`); returns the path of its page.

    Each group, a config of `files` or its variants in `sweep`, is trained with each of the seeds, `jobs` runs
    at a time; finished runs in `out` are kept. Groups are compared under each decoding that they name. The
    page of the first decoding lies in `out`, those of the others in `out/decodings/NAME`.

    Raises:
        InputError: configs do not resolve or cannot be compared.
        RunError: a run failed; the others are still compared.
    """
    # Plan
    groups = plan_groups(files, base, overrides, sweep)
    _check_comparable(groups)
    runs = plan_runs(groups, seeds, out, 1 if jobs > 1 else None)
    _print_plan(groups, runs, out)
    if dry_run:
        for run in runs:
            say(f"  {run.group.name} seed {run.seed}: {why_not_kept(run, None) or 'finished, would be kept'}")
        _refuse_missing(groups)
        return None
    for group in groups:
        check_model_path(group.config.model)

    # Train what is missing
    make_folder(out)
    data = load_data(groups[0].config, out / "data")
    data.keep_generated()
    waiting = _to_train(runs, {name: facts["digest"] for name, facts in data.facts().items()})
    failed = train_all(waiting, jobs)
    without_result = {run.folder for run, _ in failed}
    finished = [run for run in runs if run.folder not in without_result]

    # Answer, score and compare
    scored = data.scored
    assert scored is not None  # the configurations are checked for it
    decodings = dict.fromkeys(decoding for group in groups for decoding in group.config.evaluation.decoding)
    pages = []
    for place, decoding in enumerate(decodings):
        folder = out / "decodings" / decoding.name if place else out
        pages.append(_compare_runs(finished, decoding, scored, folder, resamples))
    if failed:
        run, last_lines = failed[0]
        raise RunError(
            f"{len(failed)} of {counted(len(waiting), 'run')} failed; the first, {run.group.name} seed "
            f"{run.seed}: {last_lines}"
        )
    return pages[0]


def _compare_runs(
    finished: Sequence[PlannedRun], decoding: Decoding, images: ImageSet, folder: Path, resamples: int
) -> Path | None:
    """Compare the groups under one decoding by the seeds that all of them finished; returns the page's path."""
    by_group: dict[str, dict[int, PlannedRun]] = {}
    for run in finished:
        if decoding in run.config.evaluation.decoding:
            by_group.setdefault(run.group.name, {})[run.seed] = run
    seeds = sorted(set.intersection(*map(set, by_group.values()))) if by_group else []
    if len(by_group) * len(seeds) < 2:
        say(f"decoding {decoding.name}: fewer than two finished runs with a seed in common: nothing to compare")
        return None
    chosen = {name: [runs[seed] for seed in seeds] for name, runs in by_group.items()}
    evaluations = {name: [_scored(run, decoding, images) for run in runs] for name, runs in chosen.items()}
    comparison = compare(evaluations, resamples)
    comparison = replace(
        comparison, notes=(*_notes(chosen, by_group, decoding), *comparison.notes), training=_training(chosen)
    )
    page = comparison.write_report(folder, image_root=lambda name: images.root / name)
    say(f"decoding {decoding.name}, seeds {', '.join(map(str, seeds))}: {page}")
    for line in comparison.lines():
        say(f"  {line}")
    return page


def _training(chosen: Mapping[str, Sequence[PlannedRun]]) -> TrainingCurves | None:
    """Return the training curves of the runs from their metrics.jsonl; None if one of them has none."""
    files = {name: [run.folder / "metrics.jsonl" for run in runs] for name, runs in chosen.items()}
    if not all(file.is_file() for of_run in files.values() for file in of_run):
        return None
    terms = [term for term in registered_terms().values() if term.trainable]
    titles = {AP: "AP while training", "train_total_loss": "total loss"}
    titles |= {f"train_{term.loss_key}": f"loss of {term.title}, weighted" for term in terms if term.loss_key}
    titles["coord_diag/loss"] = "loss of the other coordinate terms, weighted"
    titles |= {f"coord_diag/{term.log_key}": f"{term.title}, without its weight" for term in terms}
    logs = {name: [[line for _, line in read_json_lines(file)] for file in of_run] for name, of_run in files.items()}
    return training_curves(logs, titles, AP)


def _notes(
    chosen: Mapping[str, Sequence[PlannedRun]], by_group: Mapping[str, Mapping[int, PlannedRun]], decoding: Decoding
) -> list[str]:
    """Return how the runs were answered, what was left out, and what makes a comparison unfair."""
    notes = [f"decoding {decoding.name}: {decoding.meaning}"]
    if left := sum(map(len, by_group.values())) - sum(map(len, chosen.values())):
        notes.append(f"{counted(left, 'run')} left out, whose seeds another group has not finished")
    manifests = [[read_json(run.folder / "manifest.json") for run in runs] for runs in chosen.values()]
    revisions = {(m.get("git") or {}).get("revision") for of_group in manifests for m in of_group}
    if len(revisions) > 1:
        notes.append(f"the runs were made by {len(revisions)} revisions of the code; see each manifest.json")
    return notes


def _check_comparable(groups: Sequence[LossGroup]) -> None:
    """Raise `InputError` if groups are trained or scored on different images."""
    first = groups[0]
    for group in groups[1:]:
        for name in _DATA_FIELDS:
            expected, value = getattr(first.config.data, name), getattr(group.config.data, name)
            if value != expected:
                raise InputError(
                    f"data.{name} is {expected} in {first.name} and {value} in {group.name}: groups are compared on "
                    "the same images; put the data into --base"
                )
        if group.config.evaluation.images != first.config.evaluation.images:
            raise InputError(
                f"evaluation.images is {first.config.evaluation.images} in {first.name} and "
                f"{group.config.evaluation.images} in {group.name}; groups are scored on the same images"
            )
    if first.config.evaluation.images == "none":
        raise InputError("evaluation.images is none: there is nothing to compare; set heldout or train")


def _refuse_missing(groups: Sequence[LossGroup]) -> None:
    """Raise an `InputError` that names the data and checkpoints which do not exist; nothing is read."""
    missing: list[str] = []
    for group in groups:
        data = group.config.data
        named = {
            f"data.{name}": getattr(data, name)
            for name in ("annotations", "images", "heldout_annotations", "heldout_images")
        }
        for number, source in enumerate(data.sources):
            named |= {f"data.sources.{number}": source.path, f"data.sources.{number}.images": source.images}
        missing += [f"{key}: nothing at {path}" for key, path in named.items() if path and not path.exists()]
        try:
            check_model_path(group.config.model)
        except InputError as error:
            missing.append(str(error))
    if missing:
        raise InputError("the comparison could not start:\n" + "\n".join(dict.fromkeys(missing)))


def _print_plan(groups: Sequence[LossGroup], runs: Sequence[PlannedRun], out: Path) -> None:
    say(
        f"{counted(len(groups), 'group')} x {counted(len(runs) // len(groups), 'seed')} = "
        f"{counted(len(runs), 'run')}, in {out}"
    )
    for group in groups:
        decoding = ", ".join(decoding.name for decoding in group.config.evaluation.decoding)
        say(f"  {group.name}: {group.config.custom.loss_in_words}; decoding: {decoding}")
    others = [name for name in differing_settings(groups) if not name.startswith("custom.")]
    if others:
        say(f"  besides loss flags the groups differ in {', '.join(others)}")


def _to_train(runs: Sequence[PlannedRun], digests: dict[str, str]) -> list[PlannedRun]:
    waiting = []
    for run in runs:
        why = why_not_kept(run, digests)
        if why is None:
            say(f"{run.group.name} seed {run.seed}: finished before, kept")
            continue
        waiting.append(run)
        if run.folder.exists():
            say(f"{run.group.name} seed {run.seed}: {why}; trained anew, the older folder is moved aside")
    return waiting


def why_not_kept(run: PlannedRun, digests: dict[str, str] | None) -> str | None:
    """Return the reason why a run has to be trained; None if its folder holds exactly this run, finished.

    `digests` are those of the data as it is now, by set; None skips this check.
    """
    manifest, config = run.folder / "manifest.json", run.folder / "config.yaml"
    if not manifest.is_file() or not config.is_file():
        return "not there yet"
    try:
        values = read_json(manifest)
        made_with = check_run_config(read_yaml(config), str(config))
    except (OSError, ValueError):
        return "its config.yaml or manifest.json cannot be read by this version"
    if changed := changed_settings(result_settings(made_with), result_settings(run.config)):
        name, (before, now) = next(iter(changed.items()))
        others = f" and {len(changed) - 1} further settings" if len(changed) > 1 else ""
        return f"made with other settings: {name} is {before!r} there and {now!r} now{others}"
    if values.get("status") != "finished":
        return f"not finished ({values.get('status')})"
    made_from = {name: facts.get("digest") for name, facts in values.get("data", {}).items()}
    if digests is not None and made_from != digests:
        return "made with other data: the digests differ"
    return None


@dataclass
class _Started:
    run: PlannedRun
    process: subprocess.Popen[bytes]
    log: Path
    since: float


def train_all(runs: Sequence[PlannedRun], jobs: int) -> list[tuple[PlannedRun, str]]:
    """Train `runs` in up to `jobs` parallel processes; returns the failed ones with the last lines of their logs."""
    waiting = list(runs)
    active: list[_Started] = []
    failed: list[tuple[PlannedRun, str]] = []
    start = time.time()
    done = 0
    try:
        while waiting or active:
            while waiting and len(active) < jobs:
                active.append(_start(waiting.pop(0)))
            time.sleep(_POLL_SECONDS)
            for started in [s for s in active if s.process.poll() is not None]:
                active.remove(started)
                done += 1
                left = (time.time() - start) / done * (len(runs) - done)
                if started.process.returncode:
                    failed.append((started.run, _last_lines(started.log)))
                    say(f"{_name(started.run)} FAILED, see {started.log}")
                else:
                    seconds = time.time() - started.since
                    say(
                        f"{_name(started.run)} done in {seconds:.0f} s; {done} of {len(runs)}, "
                        f"about {left / 60:.0f} min left"
                    )
    finally:
        for started in active:
            started.process.terminate()
        for started in active:
            started.process.wait()
    return failed


def _scored(run: PlannedRun, decoding: Decoding, images: ImageSet) -> Evaluation:
    """Score the answers of a finished run under a decoding, which are generated from its checkpoint if it has none."""
    asked = check_run_config(read_yaml(run.folder / "config.yaml"), run.folder.name).evaluation.decoding
    path = dict(prediction_files(tuple(dict.fromkeys((*asked, decoding))), run.folder))[decoding]
    if not path.exists():
        say(f"{_name(run)} answers are missing: {decoding.name}")
        section = run.config.evaluation.model_copy(update={"decoding": (decoding,)})
        config = run.config.model_copy(update={"evaluation": section})
        predict_images(config, find_checkpoint(run.folder), images, path)
    return score_predictions(run.config, path, images, decoding)


def _start(run: PlannedRun) -> _Started:
    config = run.folder.with_name(f"{run.folder.name}.yaml")
    log = run.folder.with_name(f"{run.folder.name}.log")
    values = run.config.model_dump(mode="json")
    write_text(config, yaml.safe_dump(values, sort_keys=False, allow_unicode=True))
    threads = {"OMP_NUM_THREADS": str(run.config.run.threads)} if run.config.run.threads else {}
    with log.open("w", encoding="utf-8") as out:
        process = subprocess.Popen(
            [sys.executable, "-c", _TRAIN, "train", "-c", str(config)],
            stdout=out,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            env=os.environ | threads,
        )
    say(f"{_name(run)} started")
    return _Started(run, process, log, time.time())


def _name(run: PlannedRun) -> str:
    return f"{run.group.name} seed {run.seed}:"


def _last_lines(log: Path) -> str:
    # Progress bars rewrite their line with carriage returns.
    written = log.read_bytes().decode(errors="replace").split("\n")
    lines = [line.strip().rpartition("\r")[2].strip() for line in written]
    return " | ".join([line for line in lines if line][-_LAST_LINES:])
