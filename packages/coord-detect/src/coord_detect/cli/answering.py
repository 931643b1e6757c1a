"""The commands that answer images; `coord-trainer` has the same ones."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from coord_codec import InputError
from coord_codec.commands.options import Strict, options_of, with_options
from coord_detect.cli.options import Checkpoint, ConfigFile, Overrides, of_settings, words_of
from coord_detect.console import say
from coord_detect.served.request import AskedThreshold, Request


@with_options(options_of(Request).parameters, of_settings("views", "speed", "boxes", "batch_size", "device", "dtype"))
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
    **options: Any,
) -> None:
    """Find objects in images with a trained model (inference): boxes, drawn images and a page in the folder --out.

    Example: coord-detect predict runs/a photos --out found
    """
    from coord_detect.detection.arguments import check_request, read_settings, split_words

    served = bool(options["endpoints"])
    model, sources, settings = split_words(words, served)
    settings += words_of(options)
    request = Request(model, sources, **options)
    check_request(request)
    resolved = read_settings(config, settings, served)
    from coord_detect.detection.command import answer_request

    answer_request(request, resolved)


@with_options(of_settings("views", "boxes", "batch_size", "device", "dtype"))
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
    strict: Strict = False,
    **options: Any,
) -> None:
    """Fit a map from scores to the probability of an IoU above .5, and write it into the model's coordexp.json.

    `predict`, `evaluate`, `demo` and `Detector` then give such probabilities, and take --precision and --recall. Scores
    of fused views, and of names that answers are held to, have a map of their own: name the same --views and --only.
    50 images are enough for one map of all classes.

    Example: coord-detect calibrate runs/a val.json --images val --views mirror
    """
    from coord_detect.detection.arguments import read_settings
    from coord_detect.detection.calibrate import calibrate_model
    from coord_detect.model.checkpoints import CARD_FILE

    resolved = read_settings(config, [*(overrides or []), *words_of(options)])
    calibration = calibrate_model(model, annotations, images, resolved, strict, only or ())
    for line in calibration.lines() if calibration is not None else ():
        say(line)
    say(f"written into the {CARD_FILE} of {model}")


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

    Example: coord-detect grammar exported --form lark --only cat --only dog > answers.lark
    """
    from coord_detect.answers.answering_model import check_labels
    from coord_detect.detection.arguments import read_settings
    from coord_detect.grammar.served import answer_form, ebnf_grammar, lark_grammar
    from coord_detect.model.card import as_trained
    from coord_detect.model.checkpoints import locate_model

    folder = locate_model(model)
    resolved = read_settings(None, overrides or [], endpoint=True)
    written = lark_grammar if form == "lark" else ebnf_grammar
    print(written(answer_form(folder, as_trained(resolved, folder), check_labels(only or ()))), end="")


@with_options(options_of(AskedThreshold).parameters, of_settings("views", "speed", "boxes", "device", "dtype"))
def demo(
    model: Checkpoint,
    overrides: Overrides = None,
    *,
    config: ConfigFile = None,
    host: Annotated[str, typer.Option(help="The address to listen on; 0.0.0.0 for all of the network.")] = (
        "127.0.0.1"
    ),
    port: Annotated[int, typer.Option(min=1, max=65535, help="The port to listen on.")] = 7860,
    **options: Any,
) -> None:
    """Open a page that shows boxes, scores and the answer for an image dropped on it (needs the extra demo).

    Example: coord-detect demo runs/a
    """
    from importlib.util import find_spec

    from coord_detect.answers.finish import asked_threshold
    from coord_detect.detection.arguments import read_settings
    from coord_detect.model.checkpoints import locate_model

    settings = words_of(options)
    asked_threshold(**options)
    if find_spec("gradio") is None:
        raise InputError("demo needs gradio, which is not installed: pip install 'coord-detect[demo]'")
    resolved = read_settings(config, [*(overrides or []), *settings])
    locate_model(model)
    from coord_detect.detection.demo import serve_demo
    from coord_detect.detection.detector import Detector

    serve_demo(Detector(model, resolved, **options), host, port)


COMMANDS = (predict, calibrate, grammar, demo)
"""Commands that need no run, in the order of their help."""
