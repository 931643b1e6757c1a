"""Plans a comparison: the groups, each with its resolved config, and one run per group and seed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from coord_codec import InputError
from coord_detect.settings.load import flat_settings, read_yaml
from coord_trainer.config.run_config import RunConfig, load_run_config

_PER_RUN = {"run.seed": "--seeds", "run.dir": "--out", "run.resume": "--out"}
"""Settings that the comparison sets for each run, with the option that decides them."""
_NO_RESULT = {"run": {"dir", "threads", "resume", "profile"}, "evaluation": {"overlays", "decoding"}}
"""Settings that do not change a run's results. Of `decoding` too, since the answers of a further decoding are
generated from the checkpoint of the finished run."""


@dataclass(frozen=True)
class LossGroup:
    """One configuration of the comparison, resolved without seed and folder.

    Its name is that of the file, in a sweep followed by that of the variant.
    """

    name: str
    config: RunConfig


@dataclass(frozen=True)
class PlannedRun:
    """One training of one group; `folder` is its run folder."""

    group: LossGroup
    seed: int
    config: RunConfig
    folder: Path


def default_base(files: Sequence[Path]) -> Path:
    """Return the base config of the generated shapes, beside the configs' folder or in `configs`."""
    beside = [file.parent.parent / "base" / "shapes.yaml" for file in files[:1]]
    for candidate in (*beside, Path("configs/base/shapes.yaml")):
        if candidate.is_file():
            return candidate
    raise InputError("--base: no base/shapes.yaml beside the configs; name the setting that all of them share")


def plan_groups(
    files: Sequence[Path], base: Path | None, overrides: Sequence[str], sweep: Path | None
) -> list[LossGroup]:
    """Resolve every config, including the variants of a sweep.

    The file `base` is what all of them override. A sweep is YAML, config name -> variant name -> words: a
    named config is replaced by its variants.

    Raises:
        InputError: a config does not resolve, two groups have the same name, or a sweep names none of the configs.
    """
    for word in overrides:
        if (name := word.split("=")[0]) in _PER_RUN:
            raise InputError(f"{word}: every run of a comparison has its own; see {_PER_RUN[name]}")
    variants = _read_sweep(sweep, [file.stem for file in files]) if sweep is not None else {}
    groups = []
    for file in files:
        for variant, words in variants.get(file.stem, {"": []}).items():
            name = f"{file.stem}-{variant}" if variant else file.stem
            config = load_run_config(file, [*overrides, *words], base, needs_data=True)
            groups.append(LossGroup(name, config))
    names = [group.name for group in groups]
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise InputError(f"two configs are called {twice[0]}: results are distinguished by file name, rename one")
    if not groups:
        raise InputError("compare: name at least one config, for example configs/phase1/*.yaml")
    return groups


def read_seeds(text: str) -> list[int]:
    """Return the seeds that `--seeds` names: 0 to N-1 for a number N, or a list of seeds and ranges.

    Raises:
        InputError: the text is neither, or names a seed twice.

    Example:
        >>> read_seeds("3"), read_seeds("11-13,20")
        ([0, 1, 2], [11, 12, 13, 20])
    """
    wrong = f"--seeds: expected how many (5) or which (11-15 or 3,7), found {text!r}"
    if re.fullmatch(r"\d{1,6}", text):
        seeds = list(range(int(text)))
    elif re.fullmatch(r"\d{1,6}(-\d{1,6})?(,\d{1,6}(-\d{1,6})?)*,?", text):
        ends = [part.partition("-") for part in text.strip(",").split(",")]
        seeds = [seed for first, _, last in ends for seed in range(int(first), int(last or first) + 1)]
    else:
        raise InputError(wrong)
    if not seeds or len(set(seeds)) < len(seeds):
        raise InputError(f"{wrong}, which is {'a seed twice' if seeds else 'no seed'}")
    return seeds


def plan_runs(groups: Sequence[LossGroup], seeds: Sequence[int], out: Path, threads: int | None) -> list[PlannedRun]:
    """Return a run of every group with every seed, ordered by seed, so that an early stop leaves comparable runs."""
    runs = []
    for seed in seeds:
        for group in groups:
            folder = out / group.name / f"seed-{seed}"
            update = {"dir": folder, "seed": seed, "threads": group.config.run.threads or threads}
            section = group.config.run.model_copy(update=update)
            runs.append(PlannedRun(group, seed, group.config.model_copy(update={"run": section}), folder))
    return runs


def result_settings(config: RunConfig) -> dict[str, Any]:
    """Return the settings that a run's results depend on: dotted name -> value."""
    return flat_settings(config.model_dump(mode="json", exclude=_NO_RESULT))


def differing_settings(groups: Sequence[LossGroup]) -> dict[str, list[Any]]:
    """Return the settings that differ between groups, with each group's value."""
    flat = [result_settings(group.config) for group in groups]
    names = dict.fromkeys(name for values in flat for name in values)
    return {
        name: [values.get(name) for values in flat]
        for name in names
        if any(values.get(name) != flat[0].get(name) for values in flat)
    }


def _read_sweep(path: Path, config_names: Sequence[str]) -> dict[str, dict[str, list[str]]]:
    if not path.is_file():
        raise InputError(f"--sweep: no such file: {path}")
    values = read_yaml(path)
    expected = "expected config name -> variant name -> list of section.key=value words"
    if not isinstance(values, dict):
        raise InputError(f"{path}: {expected}, found a {type(values).__name__}")
    values = {str(name): variants for name, variants in values.items()}  # YAML reads a name such as 1 as a number
    for name, variants in values.items():
        words = list(variants.values()) if isinstance(variants, dict) else []
        if not words or not all(isinstance(w, list) and all(isinstance(word, str) for word in w) for w in words):
            raise InputError(f"{path}: {name}: {expected}")
    if not values.keys() & set(config_names):
        raise InputError(f"{path}: it varies {', '.join(values)}; none of them is among the configs named")
    return {name: {str(v): words for v, words in variants.items()} for name, variants in values.items()}
