"""Answers images by workers of a Ray cluster, each of which opens the model once; records are those of one process.

The images are divided here into the batches that one process makes, since the composition of a batch changes the last
digits of a probability. A batch whose worker was lost is answered by another one; its records arrive whole or not at
all, and go into the same resumable file.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from platform import node
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import quote

from coord_codec import InputError, RunError
from coord_codec.counts import counted
from coord_data.looking.engines import connect, import_ray
from coord_detect.answers.answering_model import AnsweringModel
from coord_detect.answers.records import ImageSource, file_stamp, records_of
from coord_detect.answers.resumable_file import Record
from coord_detect.console import say
from coord_detect.detection.session import session_settings
from coord_detect.environment import set_environment
from coord_detect.served.request import Request
from coord_detect.settings.load import check_settings
from coord_detect.settings.record import Settings

if TYPE_CHECKING:
    from coord_detect.answers.local import LocalEngine

_RETRIES = 3
"""How often a batch is repeated whose worker was lost."""
_MOST_PARTS = 10_000
"""Number of tasks of Ray at most: each takes some memory of this process, and what is lost with a worker is one."""
_OBJECT_STORE = 256 << 20
"""Bytes of Ray's object store on this machine; only names and answers go through it."""
_OF_WORKER = ("coord-detect", "torch", "transformers")
"""Packages whose versions must be the same here and in the workers, since answers depend on them."""


@dataclass(frozen=True)
class _Opening:
    """What a worker opens the model with."""

    model: str
    kind: type[Settings]
    settings: dict[str, Any]
    words: tuple[tuple[str, ...], ...]
    threshold: dict[str, float | None]

    def opened(self, device: str | None = None) -> AnsweringModel:
        """Open the model on a device; on the usual one for None."""
        values = self.settings
        if device is not None:
            values = values | {"evaluation": values.get("evaluation", {}) | {"device": device}}
        config = check_settings(self.kind, values, "--engine ray")  # which imports plugins, so that it is done anew
        return AnsweringModel.load(self.model, config, *self.words).with_threshold(**self.threshold)


@dataclass(frozen=True)
class RayEngine:
    """Stands for the model that workers hold; `records` answers by them.

    Attributes:
        name: the folder of the model
        opening: what workers open it with
        resources: number of workers, and cores and share of a GPU of each
        addresses: where the images of folders on this machine were copied from, which workers read themselves
    """

    name: str
    max_new_tokens: int
    max_pixels: int | None
    names: frozenset[str]
    only: frozenset[str]
    opening: _Opening
    facts: Mapping[str, Any]
    resources: tuple[int, int, float]
    addresses: Mapping[Path, str] = field(default_factory=dict)
    concurrency: int = 0

    def answer(self, *_: Any) -> list[dict[str, Any]]:
        """Refuse: the model is not in this process."""
        raise RunError("--engine ray: the model is held by workers, and this process answers nothing")

    def records(self, groups: Iterable[Sequence[ImageSource]], batch: int) -> Iterator[list[Record]]:
        """Yield the records of each batch of images, in the order in which they are completed.

        Raises:
            RunError: a worker failed, or several were lost with the same batch
        """
        rows = [{"part": json.dumps([self._row(source) for source in group])} for group in groups]
        if not rows:
            return
        ray = import_ray()
        import_module("ray.data")
        logging.getLogger("ray.data").setLevel(logging.ERROR)
        ray.data.DataContext.get_current().enable_progress_bars = False
        workers, cores, share = self.resources
        answered = ray.data.from_items(rows, override_num_blocks=min(len(rows), _MOST_PARTS)).map_batches(
            _Worker,
            fn_constructor_args=(self.opening, dict(self.facts), share > 0, batch),
            compute=ray.data.ActorPoolStrategy(size=min(workers, len(rows)), max_tasks_in_flight_per_actor=2),
            batch_size=1,
            batch_format="pyarrow",
            num_cpus=cores,
            num_gpus=share or None,
            max_restarts=_RETRIES,
            max_task_retries=_RETRIES,
        )
        try:
            for table in answered.iter_batches(batch_size=None, batch_format="pyarrow", prefetch_batches=0):
                yield from map(json.loads, table["records"].to_pylist())
        except ray.exceptions.RayError as error:
            lines = [line.strip() for line in str(error).splitlines() if line.strip()]
            raised = [line for line in lines if re.match(r"(?!ray\.)[\w.]+(Error|Exception)\b", line)]
            reason = raised[-1] if raised else lines[-1]
            reason = reason.partition("Error: ")[2] if reason.startswith("coord_codec.") else reason[:300]
            raise RunError(f"--engine ray: a worker failed ({reason}); the same command resumes") from None

    def _row(self, source: ImageSource) -> list[Any]:
        """Return what a worker needs of an image: path, name, id, address if it has one, and the stamp of its file."""
        found = (_address(source.path, copy, of_copy) for copy, of_copy in self.addresses.items())
        address = next((one for one in found if one is not None), None)
        return [str(source.path.absolute()), source.name, source.image_id, address, file_stamp(source.path)]


def _address(path: Path, copy: Path, of_copy: str) -> str | None:
    """Return the address that an image was copied from, by the file or folder of the copy; None if it is not of it."""
    if path == copy or not path.is_relative_to(copy):
        return of_copy if path == copy else None
    name = path.relative_to(copy).as_posix()
    return f"{of_copy.rstrip('/')}/{quote(name) if of_copy.startswith(('http://', 'https://')) else name}"


class _Worker:
    """Holds the model on a machine of the cluster; the class of Ray's actors."""

    def __init__(self, opening: _Opening, facts: dict[str, Any], has_gpu: bool, batch: int) -> None:
        set_environment()
        asked = opening.settings.get("evaluation", {}).get("device")
        self._model, self._batch = opening.opened(asked or (None if has_gpu else "cpu")), batch
        own = _facts(self._model)
        for name, value in facts.items():
            if own[name] != value:
                raise InputError(f"a worker on {node()} has {name} {own[name]!r}, the machine of the command {value!r}")

    def __call__(self, table: Any) -> Any:
        """Return the records of the batches of images in a table of Ray Data."""
        import pyarrow as pa

        parts = [json.dumps(self._records(json.loads(part))) for part in table["part"].to_pylist()]
        return pa.table({"records": parts})

    def _records(self, rows: Sequence[Sequence[Any]]) -> list[Record]:
        failed, sources, stamps = list[Record](), list[ImageSource](), {}
        with TemporaryDirectory() as folder:
            for number, (path, name, image_id, address, stamp) in enumerate(rows):
                place = Path(path)
                if address is not None:
                    place, stamps[name] = Path(folder) / str(number), stamp
                    try:
                        _copy(address, place, stamp)
                    except Exception as error:  # what clients raise: of networks, permissions, unknown protocols
                        reason = f"{address}: cannot be read ({str(error)[:200] or type(error).__name__})"
                        facts = {"image_id": image_id, "image": name}
                        failed.append({**facts, "finish_reason": "error", "error": reason})
                        continue
                sources.append(ImageSource(place, name, image_id))
            records = records_of(self._model, sources, self._batch)
        # The stamp of a copy is that of the command's own copy, under which the command will look for changes.
        for record in records:
            if "file" in record and record["image"] in stamps:
                record["file"] = stamps[record["image"]]
        return failed + records


def _copy(address: str, place: Path, stamp: Mapping[str, Any] | None) -> None:
    """Copy an image that must be as large as where the command has looked at it."""
    import fsspec  # type: ignore[import-untyped]

    with fsspec.open(address, "rb") as file:
        content = file.read()
    if stamp is not None and len(content) != stamp["bytes"]:
        raise OSError("it has changed since the command began")
    place.write_bytes(content)


def _facts(model: AnsweringModel) -> dict[str, Any]:
    """Return what answers depend on, which is the same in all workers; folders and times of files may differ."""
    settings = session_settings(model) | {name: version(name) for name in _OF_WORKER}
    settings["weights"] = [row[:2] for row in settings["weights"]]
    facts: dict[str, Any] = json.loads(json.dumps({name: value for name, value in settings.items() if name != "model"}))
    return facts


def open_on_ray(
    model: Path,
    config: Settings,
    names: Sequence[str],
    labels: Sequence[str],
    only: Sequence[str],
    *,
    request: Request,
    addresses: Mapping[Path, str],
) -> AnsweringModel:
    """Return a model that workers of a Ray cluster hold.

    The model is read here too, for what the command tells and compares, but none of its weights are kept.

    Args:
        model: a run folder, or that of a checkpoint, an adapter or an export
        config: settings of the answers
        names: labels of the images
        labels: the labels of the boxes that are kept
        only: names that answers are held to
        request: has number and resources of the workers, and the threshold of the boxes
        addresses: where the images of folders on this machine were copied from

    Raises:
        InputError: Ray is not installed, the cluster has no room for the workers, or as of `AnsweringModel.load`
        RunError: the cluster cannot be reached
    """
    settings = config.model_dump(mode="json", exclude_unset=True)
    words = (tuple(names), tuple(labels), tuple(only))
    opening = _Opening(str(model.resolve()), type(config), settings, words, request.threshold)
    resources = _resources(request)
    local = opening.opened("cpu")
    engine, facts = cast("LocalEngine", local.engine), _facts(local)
    elsewhere = RayEngine(
        engine.name,
        engine.max_new_tokens,
        engine.max_pixels,
        engine.names,
        engine.only,
        opening,
        facts,
        resources,
        addresses,
    )
    return replace(local, engine=elsewhere)


def _resources(request: Request) -> tuple[int, int, float]:
    """Connect with the cluster; returns number of workers, and cores and share of a GPU of each, which it has."""
    ray = import_ray()
    cores = request.cores or 1
    try:
        connect(None, object_store_memory=_OBJECT_STORE)
        there = ray.cluster_resources()
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise RunError(f"--engine ray: Ray cannot be reached or started ({str(error)[:200]})") from None
    share = request.gpu_share if request.gpu_share is not None else float(there.get("GPU", 0) > 0)
    room = int(there.get("CPU", 0)) // cores
    if share:
        # A share of more than half of a GPU leaves room for no other worker on it.
        gpus = there.get("GPU", 0)
        room = min(room, int(gpus) * int(1 / share) if share <= 1 else int(gpus / share))
    wanted = request.workers or max(room, 1)
    each = f"{counted(cores, 'core')}" + (f" and {share:g} of a GPU" if share else "")
    if wanted > room:
        raise InputError(
            f"--engine ray: {counted(wanted, 'worker')} of {each} each do not fit into a cluster of "
            f"{there.get('CPU', 0):g} cores and {there.get('GPU', 0):g} GPUs; set --workers, --cores or --gpu-share"
        )
    say(f"{counted(wanted, 'worker')} of Ray, each of {each}")
    return wanted, cores, share
