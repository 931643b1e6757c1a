"""Commands about data: `prepare`, `inspect`."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from coord_codec import InputError
from coord_codec.commands.options import options_of, with_options
from coord_data.cli import must_be_folder, prepare
from coord_data.inspection.rules import InspectionRules
from coord_trainer.cli.main import app
from coord_trainer.cli.options import ConfigFile

app.command()(prepare)


@app.command()
@with_options(options_of(InspectionRules, "min_side").parameters)
def inspect(
    words: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[DATA] [section.key=value]...",
            help="The annotations, or a folder written by `prepare`; and settings of the configuration.",
        ),
    ] = None,
    images: Annotated[Path | None, typer.Option(help="The folder that image paths are relative to.")] = None,
    config: ConfigFile = None,
    model: Annotated[
        str | None, typer.Option(metavar="M", help="The checkpoint whose processor and tokenizer the page shows.")
    ] = None,
    out: Annotated[Path, typer.Option(help="The folder of findings.json and inspect.html.")] = Path("runs/inspect"),
    sample: Annotated[
        int | None,
        typer.Option(metavar="N", min=0, help="Print every token of training sample N: supervised or not, loss terms."),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 for warnings as well.")] = False,
    **options: Any,
) -> None:
    """Examine data before training: report faults of annotations and images, with evidence and remedy.

    Writes findings.json and inspect.html. Exits with 1 if a fault would spoil training.

    Example: uv run apps/trainer inspect annotations.json --images photos
    """
    from coord_codec import RunError
    from coord_detect.console import say
    from coord_trainer.config.run_config import load_run_config
    from coord_trainer.data.load import source_configs
    from coord_trainer.inspection.report import inspect_data

    resolved = load_run_config(config, _split_words(words or [], images, model), trains=False)
    if not resolved.data.given:
        raise InputError("inspect: expected DATA to examine, or a configuration that names annotations")
    must_be_folder(out)
    of_model, failed = model is not None or config is not None, None
    for name, alone in source_configs(resolved):
        try:
            place = out / name if resolved.data.sources else out
            inspect_data(alone, place, with_model=of_model, strict=strict, sample=sample, **options)
        except RunError as error:  # noqa: PERF203 - the other sources are inspected as well
            failed = error
    for source in resolved.data.sources:
        if source.conversations is not None:
            say(f"{source.conversations}: conversations have no boxes to examine")
    if failed is not None:
        raise failed


def _split_words(words: Sequence[str], images: Path | None, model: str | None) -> list[str]:
    """Return `section.key=value` words, and the data set that any other word names; several are refused."""
    from coord_data.inspection.find_data import TRAIN, find_data, other_split

    # A Path raises for words that are too long for any file.
    data = [Path(word) for word in words if "=" not in word or os.path.exists(word)]  # noqa: PTH110
    settings = [word for word in words if Path(word) not in data]
    if len(data) > 1:
        raise InputError(f"inspect: expected one data set, found {data[0]} and {data[1]}; inspect them one by one")
    if model is not None:
        settings.append(_setting("model.path", model))
    if not data:
        return [*settings, *([_setting("data.images", images)] if images is not None else [])]
    annotations, images = find_data(data[0], images)
    settings.append(_setting("data.annotations", annotations))
    other = other_split(annotations)
    heldout = None if other is None or other.name == TRAIN else other
    settings.append(_setting("evaluation.images", "train" if heldout is None else "heldout"))
    if images is not None:
        settings.append(_setting("data.images", images))
    if heldout is not None:
        settings.append(_setting("data.heldout_annotations", heldout))
    return settings


def _setting(key: str, value: object) -> str:
    # JSON's escapes of a character beyond 16 bits are two, which YAML does not join.
    text = str(value)
    return f"{key}={json.dumps(text, ensure_ascii=not text.isprintable())}"
