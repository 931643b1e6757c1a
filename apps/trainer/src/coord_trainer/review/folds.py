"""Cross-fitting: each part of the records is judged by a model that was trained on the other parts."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from coord_codec import InputError, RunError, write_instances
from coord_codec.counts import counted
from coord_codec.files import read_text
from coord_detect.answers.resumable_file import make_folder
from coord_detect.console import say
from coord_detect.detection.calibrate import file_digest
from coord_detect.model.checkpoints import newest_complete
from coord_trainer.comparison.plan import LossGroup, PlannedRun
from coord_trainer.comparison.run import train_all, why_not_kept
from coord_trainer.config.run_config import RunConfig, check_run_config
from coord_trainer.review.judging import JudgedRecord


@dataclass(frozen=True)
class Fold:
    """One part of the records, which its model judges, and the folder of the run on all others."""

    number: int
    records: tuple[JudgedRecord, ...]
    folder: Path

    @property
    def run(self) -> Path:
        """The run folder."""
        return self.folder / "run"


def split_folds(records: Sequence[JudgedRecord], count: int, out: Path) -> list[Fold]:
    """Divide records at random, always alike, into equal parts; images of equal content stay together."""
    groups: dict[str, list[int]] = {}
    for place, record in enumerate(records):
        path = record.source.path
        groups.setdefault(file_digest(path) if path.is_file() else str(path), []).append(place)
    if len(groups) < count:
        raise InputError(
            f"--folds {count}: expected at most one for each different image, of which there are {len(groups)}"
        )
    keys = sorted(groups)
    random.Random(0).shuffle(keys)
    return [
        Fold(
            number,
            tuple(records[place] for place in sorted(p for key in keys[number::count] for p in groups[key])),
            out / str(number),
        )
        for number in range(count)
    ]


def train_folds(folds: Sequence[Fold], config: RunConfig, root: Path) -> None:
    """Train a run for each fold, one after the other; finished runs are kept, and interrupted ones continued.

    Raises:
        InputError: the configuration contradicts itself with this data
        RunError: a run failed
    """
    waiting = []
    for fold in folds:
        others = [record for other in folds if other is not fold for record in other.records]
        run = _planned(fold, others, config, root)
        if run is None:
            say(f"fold {fold.number}: trained before, kept")
        else:
            say(f"fold {fold.number}: to be trained on {counted(len(others), 'image')}, to judge {len(fold.records):,}")
            waiting.append(run)
    if failed := train_all(waiting, jobs=1):
        run, last_lines = failed[0]
        raise RunError(f"{run.group.name} could not be trained: {last_lines}; the same command continues")


def _planned(fold: Fold, others: Sequence[JudgedRecord], config: RunConfig, root: Path) -> PlannedRun | None:
    """Return the run of a fold; None if it is there already."""
    make_folder(fold.folder)
    file = fold.folder / "annotations.jsonl"
    before = read_text(file) if file.is_file() else None
    write_instances(file, [record.instance for record in others])
    is_same = before == read_text(file)
    values = json.loads(config.model_dump_json(exclude_unset=True))
    values["data"] = {
        name: value
        for name, value in values.get("data", {}).items()
        if name not in ("sources", "heldout_annotations", "heldout_images", "shapes", "format", "limit")
    } | {"annotations": str(file), "images": str(root)}
    values.setdefault("run", {})["dir"] = str(fold.run)
    values.setdefault("evaluation", {})["images"] = "none"
    for name in ("ap_steps", "ap_patience"):
        values["evaluation"].pop(name, None)
    newest = newest_complete(fold.run / "checkpoints")[0] if (fold.run / "checkpoints").is_dir() else None
    resolved = check_run_config(values, f"fold {fold.number}")
    run = PlannedRun(LossGroup(f"fold-{fold.number}", resolved), resolved.run.seed, resolved, fold.run)
    why = why_not_kept(run, None)
    if why is None and is_same:
        return None
    values["run"]["resume"] = bool(newest and is_same and why and why.startswith("not finished"))
    resolved = check_run_config(values, f"fold {fold.number}")
    return PlannedRun(run.group, run.seed, resolved, fold.run)
