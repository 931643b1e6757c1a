"""Slots: embeddings that stand for the coordinates of a shape before they are known, saved beside a frozen model.

Fed behind a description, slot s answers with the likely coordinate s + 2, in the pass that finds the first one. The
model and its other answers do not change, and programs that do not know of slots ignore the file. It is in a folder of
its own, since vLLM loads every `.safetensors` file beside `model.safetensors` as weights. It holds:

| tensor           | type     | shape  | meaning                                                        |
|------------------|----------|--------|----------------------------------------------------------------|
| `rows`           | floating | [S, H] | the embeddings, one less than a shape has coordinates          |
| `fingerprint`    | uint8    | [n]    | the vocabulary's fingerprint in UTF-8, empty if unknown        |
| `format_version` | uint8    | [1]    | 1                                                              |

Shapes: S slots, H hidden size.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from coord_adapter.format import decode_fingerprint, encode_fingerprint, problem_with_fingerprint
from coord_codec import InputError

if TYPE_CHECKING:
    from torch import Tensor

SLOTS_FILE = "coord_slots/slots.safetensors"
"""The file of the slots in a model's folder."""
_VERSION = 1


@dataclass(frozen=True)
class Slots:
    """The slots of a model.

    Attributes:
        rows: the embeddings [S, H]
        fingerprint: fingerprint of the vocabulary that they were trained with; None if it is unknown
    """

    rows: Tensor
    fingerprint: str | None = None


def save_slots(folder: str | Path, slots: Slots) -> Path:
    """Write the slots into a model's folder, atomically; returns the file.

    Example:
        >>> import tempfile, torch
        >>> folder = tempfile.mkdtemp()
        >>> save_slots(folder, Slots(torch.ones(3, 4), "my vocabulary")).name
        'slots.safetensors'
        >>> read_slots(folder).rows.shape
        torch.Size([3, 4])
    """
    import torch
    from safetensors.torch import save_file

    file = Path(folder) / SLOTS_FILE
    file.parent.mkdir(exist_ok=True)
    part = file.with_suffix(".part")
    tensors = {
        "rows": slots.rows.detach().cpu().contiguous(),
        "fingerprint": encode_fingerprint(slots.fingerprint),
        "format_version": torch.tensor([_VERSION], dtype=torch.uint8),
    }
    save_file(tensors, part, metadata={"format": "pt"})
    part.replace(file)
    return file


def read_slots(
    folder: str | Path, *, count: int | None = None, hidden_size: int | None = None, fingerprint: str | None = None
) -> Slots | None:
    """Read the slots in a model's folder; None if it has none.

    Args:
        folder: of the model
        count: the expected S, one less than a shape has coordinates; None for any
        hidden_size: the model's H; None for any
        fingerprint: of the model's vocabulary; None if it is unknown

    Raises:
        InputError: the file is damaged, of a newer format, or was trained for another model
    """
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    file = Path(folder) / SLOTS_FILE
    if not file.is_file():
        return None
    try:
        tensors = load_file(file)
        rows, version = tensors["rows"], int(tensors["format_version"][0])
    except (SafetensorError, KeyError, IndexError) as error:
        raise InputError(f"{file}: not a readable file of slots ({error}); train them again") from None
    if version > _VERSION:
        raise InputError(f"{file}: format_version is {version}, expected at most {_VERSION}: update coord-adapter")
    expected = (rows.shape[0] if count is None else count, rows.shape[-1] if hidden_size is None else hidden_size)
    if tuple(rows.shape) != expected:
        raise InputError(f"{file}: rows is {tuple(rows.shape)}, expected {expected} for this model; train them again")
    saved = decode_fingerprint(tensors["fingerprint"].tolist()) if "fingerprint" in tensors else None
    if problem_with_fingerprint(saved, fingerprint):
        raise InputError(f"{file}: trained with the vocabulary {saved!r}, this model has {fingerprint!r}; train again")
    return Slots(rows, saved)
