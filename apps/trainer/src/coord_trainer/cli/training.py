"""Commands that train: the first run, `train`, `compare`."""

from __future__ import annotations

import os
import shlex
from importlib.resources import as_file, files
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from coord_codec import InputError
from coord_codec.commands.options import Strict
from coord_detect.console import say
from coord_trainer.cli.main import app
from coord_trainer.cli.options import ConfigFile, Overrides, load_libraries, print_scores, resolve_config

if TYPE_CHECKING:
    from coord_trainer.config.run_config import RunConfig


@app.command("first-run")
def first_run(
    overrides: Overrides = None,
    adapter: Annotated[
        Literal["none", "offset"],
        typer.Option(
            help="What is trained: the whole model, or LoRA and coordinate offsets on a frozen model (`offset`)."
        ),
    ] = "none",
) -> None:
    """Train a tiny Qwen3-VL on generated shapes and score it: runs/first-run/report.html.

    This is the default command.
    """
    from coord_trainer.config.run_config import load_run_config

    name = "first-run" if adapter == "none" else f"first-run-{adapter}"
    with as_file(files("coord_trainer") / f"{name}.yaml") as file:
        _train(load_run_config(file, overrides or []), name)


RECIPES = {
    "configs/memorise.yaml": "memorises a few images with a tiny model, in minutes: are data and path right?",
    "configs/dlora/sft_base.yaml model.path=CHECKPOINT": "fine-tunes a checkpoint with DoRA, on a GPU",
}
"""The configurations for own data, and what each is for."""


def _refuse_without_recipe(overrides: list[str]) -> None:
    """Raise an `InputError` with the commands that train on the data of `overrides`, which state no loss."""
    from coord_trainer.config.run_config import load_run_config

    complete = ("custom.coord_soft_ce_w1.enabled=true", "evaluation.images=none")
    load_run_config(None, [*overrides, *complete])  # a mistyped key is told first
    words = " ".join(map(shlex.quote, overrides)) or "data.annotations=instances.json data.images=images"
    commands = "".join(
        f"\n  uv run apps/trainer train -c {recipe} {words}\n    {why}" for recipe, why in RECIPES.items()
    )
    raise InputError(
        f"train: expected a configuration (-c), or loss terms in custom.*; found neither. For your own data:{commands}"
    )


@app.command()
def train(
    overrides: Overrides = None,
    config: ConfigFile = None,
    strict: Strict = False,
    dry: Annotated[
        bool,
        typer.Option(
            "--dry-run",
            help="Print settings, data, vocabulary, learning rates and memory without loading weights or training.",
        ),
    ] = False,
    profile: Annotated[
        bool, typer.Option("--profile", help="Measure a few steps and report where their time goes.")
    ] = False,
) -> None:
    """Train from a configuration, score the result and write a report.

    Example: uv run apps/trainer train -c configs/memorise.yaml data.annotations=a.json data.images=images
    """
    overrides = [*(overrides or []), *(["run.profile=true"] if profile else [])]
    if config is None and not any(word.startswith("custom.") for word in overrides):
        _refuse_without_recipe(overrides)
    resolved = resolve_config(config, overrides, strict)
    if not dry:
        _train(resolved, config.stem if config is not None else "train")
        return
    load_libraries()
    from coord_trainer.preview import dry_run

    dry_run(resolved)


@app.command()
def compare(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="CONFIG... [section.key=value]...",
            help="The configurations, one per group, and settings for all of them.",
            show_default=False,
        ),
    ],
    *,
    seeds: Annotated[
        str, typer.Option(metavar="N|LIST", help="Train each group with the seeds 0 to N-1, or 11-15, or 3,7.")
    ] = "3",
    base: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="The base that all configurations override; base/shapes.yaml beside them when not given.",
        ),
    ] = None,
    sweep: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Variants that replace some configurations; see configs/sweeps.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder of the comparison; finished runs in it are kept.")] = Path(
        "runs/compare"
    ),
    jobs: Annotated[
        int, typer.Option(min=1, help="Number of runs in parallel, with one thread each if there are several.")
    ] = 2,
    resamples: Annotated[
        int, typer.Option(min=1, help="Bootstrap resamples of the images for confidence intervals.")
    ] = 1000,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Resolve and print everything; train and write nothing.")
    ] = False,
) -> None:
    """Train several configurations with the same data and seeds, and compare them as `coord-eval compare` does.

    Example: uv run apps/trainer compare configs/phase1/*.yaml --seeds 3
    """
    from coord_trainer.comparison.plan import default_base, plan_groups, read_seeds

    # A Path raises for words that are too long for any file.
    configs = [Path(word) for word in words if "=" not in word or os.path.isfile(word)]  # noqa: PTH113
    if folders := [file for file in configs if file.is_dir()]:
        raise InputError(
            f"{folders[0]}: expected a configuration to train, found a folder; finished runs are compared by "
            "`coord-eval compare --ground-truth ANNOTATIONS NAME=RUN/predictions.jsonl NAME=RUN/predictions.jsonl`"
        )
    overrides = [word for word in words if Path(word) not in configs]
    seed_numbers = read_seeds(seeds)
    base = base or default_base(configs)
    plan_groups(configs, base, overrides, sweep)  # reports errors before the slow imports
    load_libraries()
    from coord_trainer.comparison.run import compare_configs

    report = compare_configs(
        configs,
        overrides,
        seeds=seed_numbers,
        base=base,
        sweep=sweep,
        out=out,
        jobs=jobs,
        resamples=resamples,
        dry_run=dry_run,
    )
    if report is not None:
        say(f"page: {report}")


def _train(resolved: RunConfig, name: str) -> None:
    from coord_trainer.console import leave_process_group
    from coord_trainer.data.ahead import drawing_ahead

    with drawing_ahead(resolved):
        load_libraries()
        from coord_trainer.run import train_and_score

        result = train_and_score(resolved, resolved.run.dir or Path("runs") / name)
    leave_process_group()
    if result.evaluation is not None:
        print_scores(result.evaluation, result.folder)
