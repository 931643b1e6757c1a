"""Commands that generate answers: `evaluate`, `predict`, `grammar`, `demo`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from coord_codec import InputError
from coord_trainer.answers.resumable_file import unfinished
from coord_trainer.answers.served.request import Request
from coord_trainer.checkpoints import CARD_FILE
from coord_trainer.cli.main import app
from coord_trainer.cli.options import (
    Checkpoint,
    ConfigFile,
    MinScore,
    NewPlace,
    Overrides,
    Precision,
    Recall,
    Speed,
    Strict,
    Views,
    find_model_and_config,
    load_libraries,
    must_not_exist,
    print_scores,
    resolve_config,
    with_options_of,
)
from coord_trainer.console import say


@app.command()
def evaluate(
    checkpoint: Checkpoint,
    out: NewPlace,
    overrides: Overrides = None,
    config: ConfigFile = None,
    views: Views = None,
    speed: Speed = None,
    min_score: MinScore = None,
    precision: Precision = None,
    recall: Recall = None,
    strict: Strict = False,
) -> None:
    """Generate answers for the images selected by evaluation.images with a checkpoint, score them, write a report.

    A call that was stopped, or that failed, is continued with the same --out. With a threshold only the boxes that it
    keeps are scored, which lowers AP: average precision needs those of low scores too.

    Example: uv run apps/trainer evaluate runs/a/checkpoints/checkpoint-500 --out scored -c runs/a/config.yaml
    """
    if not unfinished(out).is_file():
        must_not_exist(out)
    checkpoint, config = find_model_and_config(checkpoint, config)
    from coord_trainer.answers.detect.arguments import as_setting
    from coord_trainer.answers.finish import asked_threshold

    asked_threshold(min_score, precision, recall)
    resolved = resolve_config(config, [*(overrides or []), *as_setting(views, speed)], strict, checkpoint)
    load_libraries()
    from coord_trainer.answers.score import evaluate_checkpoint

    threshold = {"min_score": min_score, "precision": precision, "recall": recall}
    if (evaluation := evaluate_checkpoint(resolved, checkpoint, out, threshold)) is not None:
        print_scores(evaluation, out)


@app.command()
@with_options_of(Request)
def predict(
    words: Annotated[
        list[str],
        typer.Argument(
            metavar="MODEL [SRC]... [section.key=value]...",
            help="A checkpoint, adapter, export or run folder; then images: folders, files, patterns, tar or "
            "Parquet files of images, or one file of annotations, against which the answers are scored; also at an "
            "address (s3://..., https://...), which is copied.",
            show_default=False,
        ),
    ],
    *,
    config: ConfigFile = None,
    views: Views = None,
    speed: Speed = None,
    min_score: MinScore = None,
    precision: Precision = None,
    recall: Recall = None,
    strict: Strict = False,
    **options: Any,
) -> None:
    """Find objects in images with a trained model (inference): boxes, drawn images and a page in the folder --out.

    Example: uv run apps/trainer predict runs/a photos --out found
    """
    from coord_trainer.answers.detect.arguments import as_setting, check_request, read_settings, split_words
    from coord_trainer.answers.finish import asked_threshold

    # What needs no model: words, options, settings and labels.
    served = bool(options["endpoints"])
    model, sources, settings = split_words(words, served)
    asked_threshold(min_score, precision, recall)
    threshold = {"min_score": min_score, "precision": precision, "recall": recall}
    request = Request(model, sources, strict=strict, threshold=threshold, **options)
    check_request(request)
    resolved = read_settings(config, [*settings, *as_setting(views, speed)], served)
    from coord_trainer.answers.answering_model import check_labels
    from coord_trainer.checkpoints import locate_model

    request = replace(request, labels=check_labels(request.labels), only=check_labels(request.only))
    if not served:
        if model is not None:
            locate_model(model)  # its name is checked before the libraries are loaded
        load_libraries()
    from coord_trainer.answers.detect.command import answer_request

    answer_request(request, resolved)


@app.command()
def calibrate(
    model: Checkpoint,
    annotations: Annotated[Path, typer.Argument(help="Annotated images that the model was not trained on.")],
    overrides: Overrides = None,
    *,
    images: Annotated[Path | None, typer.Option(help="The folder of the images of the annotations.")] = None,
    only: Annotated[
        list[str] | None, typer.Option("--only", help="A name that answers are held to, as in `predict`.")
    ] = None,
    config: ConfigFile = None,
    views: Views = None,
    strict: Strict = False,
) -> None:
    """Fit a map from scores to the probability of an IoU above .5, and write it into the model's coordexp.json.

    `predict`, `evaluate`, `demo` and `Detector` then give such probabilities, and take --precision and --recall. Scores
    of fused views, and of names that answers are held to, have a map of their own: name the same --views and --only.
    50 images are enough for one map of all classes.

    Example: uv run apps/trainer calibrate runs/a val.json --images val --views mirror
    """
    from coord_trainer.answers.detect.arguments import as_setting, read_settings

    resolved = read_settings(config, [*(overrides or []), *as_setting(views)])
    load_libraries()
    from coord_trainer.answers.detect.calibrate import calibrate_model, calibration_lines

    calibration = calibrate_model(model, annotations, images, resolved, strict, only or ())
    for line in calibration_lines(calibration) if calibration is not None else ():
        say(line)
    say(f"written into the {CARD_FILE} of {model}")


@app.command()
def grammar(
    model: Checkpoint,
    form: Annotated[
        Literal["lark", "ebnf"],
        typer.Option(help="lark for llguidance (vLLM's guidance backend), ebnf for xgrammar (SGLang)."),
    ] = "lark",
    only: Annotated[
        list[str] | None,
        typer.Option("--only", "--label", help="A name that answers are held to; any if none is named."),
    ] = None,
    overrides: Overrides = None,
) -> None:
    """Print the grammar that constrains a server to well-formed answers, in the ids of the model's tokenizer.

    Example: uv run apps/trainer grammar exported --form lark --only cat --only dog > answers.lark
    """
    from coord_trainer.answers.answering_model import check_labels
    from coord_trainer.answers.detect.arguments import read_settings
    from coord_trainer.answers.grammar.served import answer_form, ebnf_grammar, lark_grammar
    from coord_trainer.checkpoints import locate_model
    from coord_trainer.model.card import as_trained

    folder = locate_model(model)
    resolved = read_settings(None, overrides or [], endpoint=True)
    written = lark_grammar if form == "lark" else ebnf_grammar
    print(written(answer_form(folder, as_trained(resolved, folder), check_labels(only or ()))), end="")


@app.command()
def demo(
    model: Checkpoint,
    overrides: Overrides = None,
    *,
    config: ConfigFile = None,
    host: Annotated[str, typer.Option(help="The address to listen on; 0.0.0.0 for all of the network.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port to listen on.")] = 7860,
    views: Views = None,
    speed: Speed = None,
    min_score: MinScore = None,
    precision: Precision = None,
    recall: Recall = None,
) -> None:
    """Open a page that shows boxes, scores and the answer for an image dropped on it (needs the extra demo).

    Example: uv run --extra demo apps/trainer demo runs/a
    """
    from importlib.util import find_spec

    from coord_trainer.answers.detect.arguments import as_setting, read_settings
    from coord_trainer.answers.finish import asked_threshold
    from coord_trainer.checkpoints import locate_model

    asked_threshold(min_score, precision, recall)
    if find_spec("gradio") is None:
        raise InputError("demo needs gradio: uv sync --extra demo, or pip install 'coord-trainer[demo]'")
    resolved = read_settings(config, [*(overrides or []), *as_setting(views, speed)])
    locate_model(model)
    load_libraries()
    from coord_trainer.answers.detect.demo import serve_demo
    from coord_trainer.answers.detect.detector import Detector

    detector = Detector(model, resolved, min_score=min_score, precision=precision, recall=recall)
    serve_demo(detector, host, port)
