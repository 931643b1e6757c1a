"""Draft embeddings, which stand for the coordinates of a shape before they are known, saved beside a frozen model.

Fed behind a description, embedding s answers with the likely coordinate s + 2, in the pass that finds the first. The
model and its other answers do not change, and programs that do not know of drafts ignore the file. It is in a folder of
its own, since vLLM loads every `.safetensors` file beside `model.safetensors` as weights. It holds:

| tensor           | type     | shape  | meaning                                                        |
|------------------|----------|--------|----------------------------------------------------------------|
| `rows`           | floating | [S, H] | the embeddings, one less than a shape has coordinates          |
| `fingerprint`    | uint8    | [n]    | the vocabulary's fingerprint in UTF-8, empty if unknown        |
| `format_version` | uint8    | [1]    | 1                                                              |

Shapes: S embeddings, H hidden size.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from coord_adapter.format import decode_fingerprint, encode_fingerprint, problem_with_fingerprint
from coord_codec import InputError

if TYPE_CHECKING:
    from torch import Tensor

DRAFTS_FILE = "coord_drafts/drafts.safetensors"
"""The file of the draft embeddings in a model's folder."""
_VERSION = 1


@dataclass(frozen=True)
class Drafts:
    """The draft embeddings of a model.

    Attributes:
        rows: the embeddings [S, H]
        fingerprint: fingerprint of the vocabulary that they were trained with; None if it is unknown
    """

    rows: Tensor
    fingerprint: str | None = None


def save_drafts(folder: str | Path, drafts: Drafts) -> Path:
    """Write the draft embeddings into a model's folder, atomically; returns the file.

    Example:
        >>> import tempfile, torch
        >>> folder = tempfile.mkdtemp()
        >>> save_drafts(folder, Drafts(torch.ones(3, 4), "my vocabulary")).name
        'drafts.safetensors'
        >>> read_drafts(folder).rows.shape
        torch.Size([3, 4])
    """
    import torch
    from safetensors.torch import save_file

    file = Path(folder) / DRAFTS_FILE
    file.parent.mkdir(exist_ok=True)
    part = file.with_suffix(".part")
    tensors = {
        "rows": drafts.rows.detach().cpu().contiguous(),
        "fingerprint": encode_fingerprint(drafts.fingerprint),
        "format_version": torch.tensor([_VERSION], dtype=torch.uint8),
    }
    save_file(tensors, part, metadata={"format": "pt"})
    part.replace(file)
    return file


def read_drafts(
    folder: str | Path, *, count: int | None = None, hidden_size: int | None = None, fingerprint: str | None = None
) -> Drafts | None:
    """Read the draft embeddings in a model's folder; None if it has none.

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

    file = Path(folder) / DRAFTS_FILE
    if not file.is_file():
        return None
    try:
        tensors = load_file(file)
        rows, version = tensors["rows"], int(tensors["format_version"][0])
    except (SafetensorError, KeyError, IndexError) as error:
        raise InputError(f"{file}: not a readable file of draft embeddings ({error}); train them again") from None
    if version > _VERSION:
        raise InputError(f"{file}: format_version is {version}, expected at most {_VERSION}: update coord-adapter")
    expected = (rows.shape[0] if count is None else count, rows.shape[-1] if hidden_size is None else hidden_size)
    if tuple(rows.shape) != expected:
        raise InputError(f"{file}: rows is {tuple(rows.shape)}, expected {expected} for this model; train them again")
    saved = decode_fingerprint(tensors["fingerprint"].tolist()) if "fingerprint" in tensors else None
    if problem_with_fingerprint(saved, fingerprint):
        raise InputError(f"{file}: trained with the vocabulary {saved!r}, this model has {fingerprint!r}; train again")
    return Drafts(rows, saved)
