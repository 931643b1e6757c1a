"""What `predict` is asked: a record whose fields state the options of the command line, each once."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Literal

from typer import Option

from coord_codec.commands.options import Strict

Form = StrEnum("Form", ["labelstudio", "coco", "yolo", "voc", "fiftyone", "cvat"])


@dataclass(frozen=True, kw_only=True)
class AskedThreshold:
    """Which boxes are kept by their score; at most one of the three is not None."""

    min_score: Annotated[float | None, Option(help="Leave out boxes with a lower score; 0 keeps all.")] = None
    precision: Annotated[
        float | None, Option(help="Keep the boxes with this precision, of a model that `calibrate` has calibrated.")
    ] = None
    recall: Annotated[float | None, Option(help="Keep the boxes with this recall, likewise.")] = None

    @property
    def threshold(self) -> dict[str, float | None]:
        """The three as arguments of `Finish.with_threshold`."""
        return {"min_score": self.min_score, "precision": self.precision, "recall": self.recall}


@dataclass(frozen=True)
class Request(AskedThreshold):
    """What `predict` is asked.

    Attributes:
        model: the folder of a model; None if the model of an endpoint has no folder here
        sources: arguments that name images or annotations, which may be addresses
    """

    model: Path | None
    sources: tuple[str, ...]
    out: Annotated[Path, Option("--out", help="The folder of the answers; a second call continues it.")]
    images: Annotated[
        str | None, Option(metavar="PATH", help="The folder of the images of annotations, or its address.")
    ] = None
    endpoints: Annotated[
        list[str],
        Option(
            "--endpoint",
            metavar="URL",
            help="Use an OpenAI-compatible server, for example http://localhost:8000/v1; repeated, several servers of "
            "the model share the images.",
        ),
    ] = ()  # type: ignore[assignment]  # typer reads several words as `list`; a tuple is not shared by mistake
    served_name: Annotated[
        str | None, Option("--model", "--name", help="The model's name on the server of --endpoint.")
    ] = None
    concurrency: Annotated[
        int | None, Option(min=1, help="Number of concurrent requests; 8 for each server if not given.")
    ] = None
    timeout: Annotated[float | None, Option(min=1, help="Time limit of a request in seconds; 300 if not given.")] = None
    exports: Annotated[
        list[Form], Option("--export", help="Also write annotations for a labelling tool; may be repeated.")
    ] = ()  # type: ignore[assignment]  # typer reads several words as `list`; a tuple is not shared by mistake
    image_prefix: Annotated[
        str, Option(help="What stands before each path in tasks of Label Studio, /data/local-files/?d=photos/.")
    ] = ""
    labels: Annotated[
        list[str], Option("--label", help="Keep the boxes with this label, and leave out others; may be repeated.")
    ] = ()  # type: ignore[assignment]  # typer reads several words as `list`; a tuple is not shared by mistake
    only: Annotated[
        list[str],
        Option(
            "--only",
            help="Hold answers to this name: every object is called so, and its score contains how probable the name "
            "is without that; may be repeated.",
        ),
    ] = ()  # type: ignore[assignment]  # typer reads several words as `list`; a tuple is not shared by mistake
    grammar: Annotated[
        Literal["vllm", "sglang"] | None,
        Option(help="Constrain the server of --endpoint to well-formed answers, in the syntax of vllm or sglang."),
    ] = None
    force: Annotated[bool, Option("--force", help="Delete the answers in --out and start anew.")] = False
    draw: Annotated[bool, Option(help="Draw the images and write index.html.")] = True
    strict: Strict = False
    engine: Annotated[
        Literal["local", "ray"],
        Option(
            help="Where the model is opened: in this process, or by workers of a Ray cluster, which is that of "
            "RAY_ADDRESS, else this machine (the extra coord-detect[ray])."
        ),
    ] = "local"
    workers: Annotated[
        int | None, Option(min=1, help="Number of workers of --engine ray; as many as there is room for if not given.")
    ] = None
    cores: Annotated[int | None, Option(min=1, help="Cores of each worker of --engine ray; 1 if not given.")] = None
    gpu_share: Annotated[
        float | None,
        Option(
            min=0,
            help="Share of a GPU of each worker of --engine ray, such as 0.5, or 0 for cores alone; 1 if not given "
            "and the cluster has GPUs.",
        ),
    ] = None
