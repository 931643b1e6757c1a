"""Ground truth from whatever a caller has: a path, a COCO dictionary, instances."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from coord_codec import Instance, read_instances
from coord_eval.errors import InputError
from coord_eval.reading import read_json
from coord_eval.truth import GroundTruth, from_coco, from_instances

#: What :func:`load_ground_truth` takes.
TruthSource = str | Path | Mapping[str, Any] | Sequence[Instance] | GroundTruth


def load_ground_truth(source: TruthSource) -> GroundTruth:
    """Read ground truth.

    Args:
        source: Path of COCO JSON (``.json``) or instance JSON lines (any other suffix), a COCO dictionary, a
            sequence of instances, or a :class:`GroundTruth`, which passes through.

    Raises:
        InputError: Naming file, record and field.
    """
    if isinstance(source, GroundTruth):
        return source
    if isinstance(source, Mapping):
        return from_coco(source, "ground truth")
    if not isinstance(source, str | Path):
        return from_instances(list(source))
    path = Path(source)
    if path.suffix == ".json":
        data = read_json(path)
        if not isinstance(data, Mapping):
            raise InputError(f"{path}: expected COCO annotations, found a {type(data).__name__}")
        return from_coco(data, str(path), path.parent)
    return from_instances(read_instance_lines(path), path.parent)


def read_instance_lines(source: str | Path | Sequence[Instance]) -> list[Instance]:
    """Read instance JSON lines; a sequence of instances passes through.

    Raises:
        InputError: Naming file, line and field.
    """
    if not isinstance(source, str | Path):
        return list(source)
    path = Path(source)
    try:
        # A line left out would raise the score in silence, so a bad line is an error here.
        return list(read_instances(path, strict=True).instances)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror}); check the path") from error
    except ValueError as error:
        raise InputError(str(error)) from error
