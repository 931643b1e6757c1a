"""Several configs under one setting and the same seeds: trained, read in every way, one report."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from .compare_plan import Group, Run, differing_settings, plan_groups, plan_runs
from .compare_runs import answer_missing, carry_out, why_not_kept
from .console import say
from .errors import InputError, RunError
from .picture_set import PictureSet, sets_of

# What decides which pictures there are; groups may differ in how they write about them.
_DATA_FIELDS = (
    "annotations",
    "images",
    "heldout_annotations",
    "heldout_images",
    "shapes",
    "strict",
)


def compare_configs(
    files: Sequence[Path],
    overrides: Sequence[str],
    *,
    seeds: int,
    base: Path | None,
    sweep: Path | None,
    out: Path,
    jobs: int,
    resamples: int,
    dry_run: bool,
) -> Path | None:
    """Carry out a comparison, or say what it would do; returns the report's path.

    Args:
        files: a config per group.
        overrides: `section.key=value` words for all of them.
        seeds: each group is trained with seeds 0..seeds-1.
        base: the setting that all configs are laid over.
        sweep: variants of some of them.
        out: folder of the comparison; finished runs there are kept.
        jobs: runs side by side, one thread each when there is more than one.
        resamples: draws of the pictures for intervals.
        dry_run: resolve and show everything, touch nothing.

    Raises:
        InputError: configs that do not resolve or cannot be compared.
        RunError: some run failed; the others' report is written all the same.
    """
    groups = plan_groups(files, base, overrides, sweep)
    _check_comparable(groups)
    runs = plan_runs(groups, seeds, out, 1 if jobs > 1 else None)
    _tell(groups, runs, out)
    if dry_run:
        for run in runs:
            say(f"  {run.group.name} seed {run.seed}: {why_not_kept(run, None) or 'finished, would be kept'}")
        return None
    from .tiny_model import check_model_path

    for group in groups:
        check_model_path(group.config)
    pictures, digests = _pictures(groups[0], out / "data")
    waiting = _to_train(runs, digests)
    failed = carry_out(waiting, jobs)
    lost = {run.folder for run, _ in failed}
    finished = [run for run in runs if run.folder not in lost]
    for run in finished:
        answer_missing(run, pictures)
    report = _report(groups, finished, pictures, out, resamples)
    if failed:
        run, told = failed[0]
        raise RunError(
            f"{len(failed)} of {len(waiting)} runs failed; the first, {run.group.name} seed {run.seed}: {told}"
        )
    return report


def _check_comparable(groups: Sequence[Group]) -> None:
    """Refuse groups that are trained or scored on different pictures."""
    first = groups[0]
    for group in groups[1:]:
        for name in _DATA_FIELDS:
            there, here = getattr(first.config.data, name), getattr(group.config.data, name)
            if there != here:
                raise InputError(
                    f"data.{name} is {there} in {first.name} and {here} in {group.name}: groups are compared on the "
                    "same pictures; put the data into --base"
                )
        if group.config.evaluation.pictures != first.config.evaluation.pictures:
            raise InputError(
                f"evaluation.pictures is {first.config.evaluation.pictures} in {first.name} and "
                f"{group.config.evaluation.pictures} in {group.name}; groups are scored on the same pictures"
            )
    if first.config.evaluation.pictures == "none":
        raise InputError("evaluation.pictures is none: there is nothing to compare; set heldout or train")


def _tell(groups: Sequence[Group], runs: Sequence[Run], out: Path) -> None:
    say(f"{len(groups)} groups x {len(runs) // len(groups)} seeds = {len(runs)} runs, in {out}")
    for group in groups:
        weights = ", ".join(
            f"{name} {weight:g}" for name, weight in group.config.custom.objective.weights.items()
        )
        say(f"  {group.name}: {weights}; read: {', '.join(group.config.evaluation.readings)}")
    others = [name for name in differing_settings(groups) if not name.startswith("custom.")]
    if others:
        say(f"  besides loss flags the groups differ in {', '.join(others)}")


def _pictures(group: Group, folder: Path) -> tuple[PictureSet, dict[str, str]]:
    train, heldout = sets_of(group.config, folder)
    digests = {pictures.name: pictures.digest for pictures in (train, heldout) if pictures is not None}
    return (train if group.config.evaluation.pictures == "train" else heldout), digests


def _to_train(runs: Sequence[Run], digests: dict[str, str]) -> list[Run]:
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


def _report(
    groups: Sequence[Group], finished: Sequence[Run], pictures: PictureSet, out: Path, resamples: int
) -> Path | None:
    from .compare_report import write_comparison
    from .compare_results import collect

    if not finished:
        return None
    say("scoring")
    return write_comparison(out, collect(groups, finished, pictures, resamples), pictures)
