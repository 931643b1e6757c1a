"""The `coord-data` command: `prepare`, `merge` and `inspect`; other command lines add `prepare` as it is.

Modules that need NumPy or Pillow are imported inside the commands, so that help and usage errors appear at once.
"""

from __future__ import annotations

import io
import logging
import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from coord_codec import InputError
from coord_codec.commands.options import NewPlace, options_of, with_options
from coord_codec.commands.plugins import import_plugins
from coord_codec.commands.program import Commands, version_option
from coord_data.inspection.rules import InspectionRules
from coord_data.preparing.choice import Choice
from coord_data.reading.rules import ReadingRules


def _place(named: str) -> Path:
    """Return the path of what a user named, also by its address."""
    if "://" not in named:
        return Path(named)
    from coord_data.remote import local_path

    return local_path(named)


def _image_place(named: str) -> Path:
    """Return the folder of images that a user named, also as an archive or by its address."""
    if "://" not in named and not named.endswith((".tar", ".parquet")):
        return Path(named)
    from coord_data.remote import image_folder

    return image_folder(named)


_Images = Annotated[
    Path | None,
    typer.Option(
        parser=_image_place,
        metavar="PATH",
        help="The folder that image paths are relative to, or its address (s3://..., https://...); or a tar or Parquet "
        "file of images.",
    ),
]
_Workers = Annotated[
    int | None,
    typer.Option(min=1, help="The number of processes that look at images, 1 for none beside this one.  [all cores]"),
]
_Engine = Annotated[
    Literal["local", "ray"],
    typer.Option(help="Where images are looked at: on this machine, or on a Ray cluster (the extra coord-data[ray])."),
]


app = typer.Typer(
    cls=Commands,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Read object annotations of any format, check them against the pixels, and prepare them for training.",
    epilog="Exit codes: 0 done, 1 a fault would spoil training or writing failed, 2 bad usage or bad input.",
)


@app.callback()
def _common(
    version: Annotated[bool, version_option("coord-data")] = False,
    plugin: Annotated[
        list[str] | None,
        typer.Option(metavar="FILE", help="A Python file that registers formats or geometries of your own."),
    ] = None,
) -> None:
    import_plugins(plugin or ())


_READING: dict[str, str | None] = {
    "format": "NAME",
    "read_as": "LAYOUT,UNIT",
    "fields": "ROLE=NAME,...",
    "allow_outside": None,
}
"""Fields of `ReadingRules` that the commands share as options."""
_CHOICE = options_of(Choice).parameters


@app.command()
@with_options(_CHOICE, rules=options_of(ReadingRules, **_READING, on_bad_box=None, geometry="NAME", strict=None))
def prepare(
    sources: Annotated[
        list[Path],
        typer.Argument(
            parser=_place,
            metavar="SRC...",
            help="Files or folders of annotations; the last one may be the folder of their images.",
            show_default=False,
        ),
    ],
    out: NewPlace,
    images: _Images = None,
    workers: _Workers = None,
    engine: _Engine = "local",
    *,
    rules: ReadingRules,
    **chosen: Any,
) -> None:
    """Convert annotations (COCO, VOC, YOLO, CSV, LVIS, ...) to instance JSONL, and list what is left out.

    Example: prepare annotations.json images --out prepared
    """
    must_not_exist(out)
    from coord_data.looking.engines import Execution, executed
    from coord_data.preparing.preparation import prepare as write_prepared
    from coord_data.preparing.preparation import written_to

    for place in written_to(out):
        must_not_exist(place)
    rules = rules.model_copy(update={"images": images})
    with executed(Execution(workers, engine, parts_of(out))):
        write_prepared(sources, out, rules, **chosen)


@app.command()
@with_options(_CHOICE)
def merge(
    parts: Annotated[
        list[Path], typer.Argument(metavar="PART...", help="Folders by prepare --as-part.", show_default=False)
    ],
    out: NewPlace,
    **chosen: Any,
) -> None:
    """Merge parts of a large set that were prepared one by one, without looking at their images again.

    Example: merge part-0 part-1 --out prepared --split 0.1 --drop-duplicates near
    """
    must_not_exist(out)
    from coord_data.preparing.merging import merge_prepared
    from coord_data.preparing.preparation import written_to

    for place in written_to(out):
        must_not_exist(place)
    merge_prepared(parts, out, **chosen)


@app.command()
@with_options(rules=options_of(InspectionRules, **_READING, max_objects=None, min_side=None))
def inspect(
    data: Annotated[
        Path,
        typer.Argument(
            parser=_place,
            metavar="DATA",
            help="The annotations, or a folder written by `prepare`; a path or an address.",
            show_default=False,
        ),
    ],
    folder: Annotated[
        Path | None,
        typer.Argument(
            parser=_image_place, metavar="[IMAGES]", help="The folder of their images, as --images.", show_default=False
        ),
    ] = None,
    images: _Images = None,
    out: Annotated[Path, typer.Option(help="The folder of findings.json and inspect.html.")] = Path("runs/inspect"),
    heldout: Annotated[
        Path | None, typer.Option(metavar="DATA", help="Held-out annotations, which are compared with the data.")
    ] = None,
    heldout_images: Annotated[
        Path | None, typer.Option(help="The folder that image paths of --heldout are relative to.")
    ] = None,
    strict: Annotated[bool, typer.Option("--strict", help="Exit with 1 for warnings as well.")] = False,
    workers: _Workers = None,
    engine: _Engine = "local",
    *,
    rules: InspectionRules,
) -> None:
    """Examine data before training: report faults of annotations and images, with evidence and remedy.

    Writes findings.json and inspect.html. Exits with 1 if a fault would spoil training.

    Example: inspect annotations.json photos
    """
    must_be_folder(out)
    if folder is not None and images is not None:
        raise InputError(f"--images: the folder of the images is named twice, {folder} and {images}; name one")
    images = folder or images
    from coord_data.formats.registry import open_source
    from coord_data.inspection.examine import evidence_of
    from coord_data.inspection.find_data import examine_named, find_data
    from coord_data.inspection.page import Page
    from coord_data.inspection.report import refuse, write_report
    from coord_data.looking.engines import Execution, executed

    annotations, images = find_data(data, images)
    rules = rules.model_copy(update={"images": images})
    other_rules = rules.model_copy(update={"images": heldout_images, "format": "auto", "read_as": None, "fields": None})
    with executed(Execution(workers, engine, parts_of(out))):
        held = None if heldout is None else evidence_of(heldout, other_rules)
        examination = examine_named(open_source(annotations, rules.format, rules.fields), rules, held)
    write_report(examination, out, Page(facts={"annotations": annotations.resolve().name}))
    refuse(examination.findings, strict, f"see {out}")


def parts_of(out: Path) -> Path:
    """Return the folder beside a result in which parts are kept until the command ends."""
    return out.absolute().with_name(f"{out.absolute().name}.parts")


def must_not_exist(out: Path) -> None:
    """Raise an `InputError` if the path of the result exists already, or is below a file."""
    if out.exists():
        raise InputError(f"--out: {out} exists already; choose another name or move it away")
    must_be_folder(out.parent)


def must_be_folder(out: Path) -> Path:
    """Return the folder that a result is written to, or raise an `InputError` if a file has its name."""
    if any(place.exists() and not place.is_dir() for place in (out, *out.parents)):
        raise InputError(f"--out: {out} is a file, or is below one; name another folder")
    return out


class _Printed(logging.Handler):
    """Prints what `coord_data` logs, above a running progress bar."""

    def emit(self, record: logging.LogRecord) -> None:
        from tqdm import tqdm

        tqdm.write(record.getMessage(), file=sys.stdout)
        sys.stdout.flush()


def main() -> None:
    """Run the command line; errors are printed as one message on stderr and set the exit code."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")  # a file name may have no form in the terminal's encoding
    log = logging.getLogger("coord_data")
    log.handlers[:] = [_Printed()]
    log.setLevel(logging.INFO)
    log.propagate = False
    app(prog_name="coord-data")
