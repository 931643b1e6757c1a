"""Commands about data: `prepare`, `inspect`."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from coord_codec import InputError
from coord_codec.boxes import OnBadBox
from coord_data.rules import Format
from coord_trainer.cli.main import app
from coord_trainer.cli.options import ConfigFile, NewPlace, Strict, load_libraries, must_be_folder, must_not_exist

_TRAIN, _HELDOUT = "train.jsonl", "val.jsonl"
"""Files in a folder written by `prepare --split`."""
_BELOW_IMAGES = re.compile(rb"""[\s"',](\./)?images\\?/""")
"""The beginning of an image path in JSON or CSV; JSON may escape the slash."""


@app.command()
def prepare(
    sources: Annotated[
        list[Path],
        typer.Argument(
            metavar="SRC...",
            help="Files or folders of annotations; the last one may be the folder of their images.",
            show_default=False,
        ),
    ],
    out: NewPlace,
    images: Annotated[Path | None, typer.Option(help="The folder that image paths are relative to.")] = None,
    format: Annotated[Format, typer.Option(help="The format of the annotations; auto detects it.")] = "auto",
    split: Annotated[
        float | None, typer.Option(min=0, max=1, help="The share of images for val.jsonl, selected by their content.")
    ] = None,
    on_bad_box: Annotated[
        OnBadBox, typer.Option(help="For a faulty object: leave its image out, leave it out alone, or stop.")
    ] = "drop_image",
    allow_outside: Annotated[
        bool, typer.Option("--allow-outside", help="Also take images outside the image folder, by .. or a link.")
    ] = False,
    strict: Strict = False,
) -> None:
    """Convert annotations (COCO, VOC, YOLO, CSV, LVIS, ...) to instance JSONL, and list what is left out.

    Example: uv run apps/trainer prepare annotations.json images --out prepared
    """
    must_not_exist(out)
    from coord_data.preparation import prepare as write_prepared
    from coord_data.preparation import written_to
    from coord_trainer.config.sections import DataSection

    for place in written_to(out):
        must_not_exist(place)
    options = {"images": images, "format": format, "on_bad_box": on_bad_box, "strict": strict}
    options["allow_outside"] = allow_outside
    data = DataSection.model_construct(**DataSection().model_dump() | options)
    write_prepared(sources, out, data, split)


@app.command()
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
    out: Annotated[
        Path | None, typer.Option(help="The folder of findings.json and inspect.html.", show_default="runs/inspect")
    ] = None,
    sample: Annotated[
        int | None,
        typer.Option(
            "--sample",
            "--number",
            "-n",
            min=0,
            help="Print record N of the training data, which may be a conversation, token by token.",
        ),
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 for warnings as well.")] = False,
) -> None:
    """Examine data before training: report faults of annotations and images, with evidence and remedy.

    Writes findings.json and inspect.html. Exits with 1 if a fault would spoil training.

    Example: uv run apps/trainer inspect annotations.json --images photos
    """
    from coord_trainer.config.run_config import load_run_config

    resolved = load_run_config(config, _split_words(words or [], images, model), trains=False)
    if sample is None and resolved.data.given:
        from coord_codec import RunError
        from coord_trainer.console import say
        from coord_trainer.data.load import source_configs
        from coord_trainer.inspection.report import inspect_data

        out = must_be_folder(out or Path("runs/inspect"))
        of_model, failed = model is not None or config is not None, None
        for name, alone in source_configs(resolved):
            try:
                inspect_data(alone, out / name if resolved.data.sources else out, with_model=of_model, strict=strict)
            except RunError as error:  # noqa: PERF203 - the other sources are inspected as well
                failed = error
        for source in resolved.data.sources:
            if source.conversations is not None:
                say(f"{source.conversations}: conversations have no boxes to examine; --sample prints one of them")
        if failed is not None:
            raise failed
        return
    if out is not None:
        raise InputError(f"--out {out}: expected DATA to examine; the tokens of one sample are printed, not written")

    load_libraries()
    from coord_trainer.preview import inspect_sample

    inspect_sample(resolved, sample or 0)


def _split_words(words: Sequence[str], images: Path | None, model: str | None) -> list[str]:
    """Return `section.key=value` words; any other word names the data.

    Raises:
        InputError: the words name several data sets.
    """
    # A Path raises for words that are too long for any file.
    data = [Path(word) for word in words if "=" not in word or os.path.exists(word)]  # noqa: PTH110
    settings = [word for word in words if Path(word) not in data]
    if len(data) > 1:
        raise InputError(f"inspect: expected one data set, found {data[0]} and {data[1]}; inspect them one by one")
    if model is not None:
        settings.append(_setting("model.path", model))
    if not data:
        return [*settings, *([_setting("data.images", images)] if images is not None else [])]
    (path,) = data
    heldout = None
    if (path / _TRAIN).is_file():
        heldout = path / _HELDOUT if (path / _HELDOUT).is_file() else None
        path /= _TRAIN
    file = _annotations(path)
    if images is None and file.is_file() and (file.parent / "images").is_dir() and not _states_folder(file):
        images = file.parent / "images"  # the layout of many data sets
    settings.append(_setting("data.annotations", path))
    settings.append(_setting("evaluation.images", "train" if heldout is None else "heldout"))
    if images is not None:
        settings.append(_setting("data.images", images))
    if heldout is not None:
        settings.append(_setting("data.heldout_annotations", heldout))
    return settings


def _annotations(path: Path) -> Path:
    """Return the only JSON file of a folder, or else the path itself."""
    files = sorted(path.glob("*.json")) if path.is_dir() else []
    return files[0] if len(files) == 1 else path


def _states_folder(file: Path) -> bool:
    """Return whether image paths in a file begin with images/; a YOLO file names the image folders itself."""
    if file.suffix in (".yaml", ".yml"):
        return True
    with file.open("rb") as stream:
        return bool(_BELOW_IMAGES.search(stream.read(1 << 24)))


def _setting(key: str, value: object) -> str:
    # JSON's escapes of a character beyond 16 bits are two, which YAML does not join.
    text = str(value)
    return f"{key}={json.dumps(text, ensure_ascii=not text.isprintable())}"
