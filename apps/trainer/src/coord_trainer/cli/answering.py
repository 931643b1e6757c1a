"""Commands that generate answers: `evaluate`, and those of `coord-detect`, which need no run."""

from __future__ import annotations

from typing import Any

from coord_codec.commands.options import NewPlace, Strict, options_of, with_options
from coord_data.cli import must_not_exist
from coord_detect.answers.resumable_file import unfinished
from coord_detect.cli.answering import COMMANDS
from coord_detect.cli.options import Checkpoint, ConfigFile, of_settings, words_of
from coord_detect.served.request import AskedThreshold
from coord_trainer.cli.main import app
from coord_trainer.cli.options import Overrides, find_model_and_config, load_libraries, print_scores, resolve_config


@app.command()
@with_options(options_of(AskedThreshold).parameters, of_settings("views", "speed", "device"))
def evaluate(
    checkpoint: Checkpoint,
    out: NewPlace,
    overrides: Overrides = None,
    config: ConfigFile = None,
    strict: Strict = False,
    **options: Any,
) -> None:
    """Generate answers for the images selected by evaluation.images with a checkpoint, score them, write a report.

    A call that was stopped, or that failed, is continued with the same --out. With a threshold only the boxes that it
    keeps are scored, which lowers AP: average precision needs those of low scores too.

    Example: uv run apps/trainer evaluate runs/a/checkpoints/checkpoint-500 --out scored -c runs/a/config.yaml
    """
    if not unfinished(out).is_file():
        must_not_exist(out)
    checkpoint, config = find_model_and_config(checkpoint, config)
    from coord_detect.answers.finish import asked_threshold

    settings = words_of(options)
    asked_threshold(**options)
    resolved = resolve_config(config, [*(overrides or []), *settings], strict, checkpoint)
    load_libraries()
    from coord_trainer.evaluation.score import evaluate_checkpoint

    if (evaluation := evaluate_checkpoint(resolved, checkpoint, out, options)) is not None:
        print_scores(evaluation, out)


for _command in COMMANDS:
    app.command()(_command)
