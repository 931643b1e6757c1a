"""What `predict` is asked: a record whose fields state the options of the command line, each once."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Literal

from coord_codec.settings import STRICT, SettingsRecord, setting

Form = StrEnum("Form", ["labelstudio", "coco", "yolo", "voc", "fiftyone", "cvat"])


@dataclass(frozen=True, kw_only=True)
class AskedThreshold(SettingsRecord):
    """Which boxes are kept by their score; at most one of the three is not None."""

    min_score: float | None = setting(None, "Leave out boxes with a lower score; 0 keeps all.")
    precision: float | None = setting(
        None, "Keep the boxes with this precision, of a model that `calibrate` has calibrated."
    )
    recall: float | None = setting(None, "Keep the boxes with this recall, likewise.")

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
    out: Path = setting(text="The folder of the answers; a second call continues it.")
    images: str | None = setting(None, "The folder of the images of annotations, or its address.", metavar="PATH")
    endpoints: tuple[str, ...] = setting(
        (),
        "Use an OpenAI-compatible server, for example http://localhost:8000/v1; repeated, several servers of "
        "the model share the images.",
        flag="--endpoint",
        metavar="URL",
    )
    served_name: str | None = setting(
        None, "The model's name on the server of --endpoint.", flag="--model --name", acts_on="--endpoint"
    )
    concurrency: int | None = setting(
        None, "Number of concurrent requests; 8 for each server if not given.", least=1, acts_on="--endpoint"
    )
    timeout: float | None = setting(
        None, "Time limit of a request in seconds; 300 if not given.", least=1, acts_on="--endpoint"
    )
    exports: tuple[Form, ...] = setting(
        (), "Also write annotations for a labelling tool; may be repeated.", flag="--export"
    )
    image_prefix: str = setting(
        "", "What stands before each path in tasks of Label Studio, /data/local-files/?d=photos/."
    )
    labels: tuple[str, ...] = setting(
        (), "Keep the boxes with this label, and leave out others; may be repeated.", flag="--label"
    )
    only: tuple[str, ...] = setting(
        (),
        "Hold answers to this name: every object is called so, and its score contains how probable the name "
        "is without that; may be repeated.",
    )
    grammar: Literal["vllm", "sglang"] | None = setting(
        None,
        "Constrain the server of --endpoint to well-formed answers, in the syntax of vllm or sglang.",
        acts_on="--endpoint",
    )
    force: bool = setting(False, "Delete the answers in --out and start anew.")
    draw: bool = setting(True, "Draw the images and write index.html.")
    strict: bool = STRICT.field()
    engine: Literal["local", "ray"] = setting(
        "local",
        "Where the model is opened: in this process, or by workers of a Ray cluster, which is that of "
        "RAY_ADDRESS, else this machine (the extra coord-detect[ray]).",
    )
    workers: int | None = setting(
        None,
        "Number of workers of --engine ray; as many as there is room for if not given.",
        least=1,
        acts_on="--engine ray",
    )
    cores: int | None = setting(
        None, "Cores of each worker of --engine ray; 1 if not given.", least=1, acts_on="--engine ray"
    )
    gpu_share: float | None = setting(
        None,
        "Share of a GPU of each worker of --engine ray, such as 0.5, or 0 for cores alone; 1 if not given "
        "and the cluster has GPUs.",
        least=0,
        acts_on="--engine ray",
    )
