"""Options that several commands share, and functions that process them."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coord_detect.console import say
from coord_detect.environment import set_environment

if TYPE_CHECKING:
    from coord_eval import Evaluation
    from coord_trainer.config.run_config import RunConfig


Overrides = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="[section.key=value]...", help="Settings that override the configuration; `config` lists them all."
    ),
]


ConfigFile = Annotated[
    Path | None, typer.Option("-c", "--config", metavar="FILE", help="The YAML configuration; configs/ has examples.")
]


def resolve_config(
    config: Path | None, overrides: list[str] | None, strict: bool, checkpoint: Path | None = None
) -> RunConfig:
    """Return the checked configuration; settings that the user did not set are taken from `checkpoint`."""
    from coord_trainer.config.run_config import load_run_config
    from coord_trainer.model.model_path import check_model_path

    words = [*(overrides or []), *(["data.strict=true"] if strict else [])]
    resolved = load_run_config(config, words, trains=checkpoint is None, needs_data=True)
    if checkpoint is None:
        check_model_path(resolved.model)
    else:
        from coord_detect.model.card import as_trained
        from coord_detect.model.checkpoints import CARD_FILE

        resolved = as_trained(resolved, checkpoint)
        if not (checkpoint / CARD_FILE).is_file():
            say(f"{checkpoint}: no {CARD_FILE}, so prompt, markers and pixels of the configuration are used unchecked")
    set_environment(resolved.model.download)
    if not resolved.model.attention.startswith("flash"):
        return resolved
    from coord_detect.model.checkpoint import with_usable_attention

    return with_usable_attention(resolved)


def find_model_and_config(model: Path, config: Path | None) -> tuple[Path, Path | None]:
    """Return the checkpoint that `model` names, and `config` or else the configuration of its run."""
    from coord_detect.model.checkpoints import locate_model

    checkpoint = locate_model(model)
    of_run = model / "config.yaml"
    if checkpoint != model:
        say(f"{model}: a run folder; its {checkpoint.name} is used")
        config = of_run if config is None and of_run.is_file() else config
    return checkpoint, config


def load_libraries() -> None:
    """Import the slow libraries, and print that this has begun."""
    say("coord-trainer: loading PyTorch and Transformers")
    import torch

    # DeepSpeed would otherwise guess, and warn about it on stdout.
    os.environ.setdefault("DS_ACCELERATOR", "cuda" if torch.cuda.is_available() else "cpu")


def print_scores(evaluation: Evaluation, folder: Path) -> None:
    """Print the scores and the path of the report."""
    from coord_detect.answers.summary import summary

    for line in summary(evaluation):
        say(line)
    say(f"report: {folder / 'report.html'}")
