"""The arguments of `predict`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True)
class Request:
    """The arguments of the command line.

    Attributes:
        model: the folder of a model; None if the model of an endpoint has no folder here
        sources: arguments that name images or annotations, which may be addresses
        out: the output folder
        images: the folder of the images that the annotations name, or its address
        endpoints: URLs of servers of the model, none to answer in this process
        served_name: what each server calls the model
        concurrency: number of concurrent requests to all servers together
        timeout: seconds that one request may take
        exports: export formats to write as well
        image_prefix: what stands before the path of each image in tasks of Label Studio
        labels: the only labels allowed in answers; empty for no limit
        server: `vllm` or `sglang`, whose request fields for a grammar are used; None for no grammar
        force: whether to discard earlier answers
        draw: whether to draw the images
        strict: whether a bad record of the annotations is an error
        threshold: `min_score`, `precision` and `recall`, of which at most one is not None
    """

    model: Path | None
    sources: tuple[str, ...]
    out: Path
    images: str | None = None
    endpoints: tuple[str, ...] = ()
    served_name: str | None = None
    concurrency: int = 8
    timeout: float = 300.0
    exports: tuple[str, ...] = ()
    image_prefix: str = ""
    labels: tuple[str, ...] = ()
    server: str | None = None
    force: bool = False
    draw: bool = True
    strict: bool = False
    threshold: Mapping[str, float | None] = field(default_factory=dict)
