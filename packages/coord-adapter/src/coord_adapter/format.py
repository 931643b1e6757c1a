"""The format of the adapter file: reads, writes and validates the tensors of the offsets.

The offsets are stored in PEFT's `adapter_model.safetensors` as tensors named `....coord_offset_adapter.PART`:

| part             | type       | shape  | meaning                                                            |
|------------------|------------|--------|--------------------------------------------------------------------|
| `token_ids`      | int64      | [K]    | row k of the tables belongs to `token_ids[k]`; any order, distinct |
| `embed_offset`   | floating   | [K, H] | added to the embeddings, in tied mode also to the rows of the head |
| `head_offset`    | floating   | [K, H] | added to the rows of the head; [0, H] in tied mode                 |
| `fingerprint`    | uint8      | [n]    | optional: the vocabulary's fingerprint in UTF-8, empty if unknown  |
| `format_version` | uint8      | [1]    | optional: 1                                                        |

`adapter_config.json` lists `coord_offset_adapter` in `modules_to_save` and the guard in `trainable_token_indices`
(see `coord_adapter.peft`). Only the functions `read_offsets`, `offset_tensors` and `encode_fingerprint` import torch
and safetensors. `find_offsets` works on any objects with a shape, so that reading headers requires no tensors.

Shapes: K offset rows, H hidden size, V vocabulary.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from coord_codec import InputError

if TYPE_CHECKING:
    from torch import Tensor

MODULE_NAME = "coord_offset_adapter"
"""Name of the submodule on the owner model; PEFT's `modules_to_save` must contain it."""

GUARD_NAME = "needs_load_adapter_of_coord_adapter__coord_offset_guard"
"""Entry of `trainable_token_indices` that makes plain PEFT refuse a base without tables; it trains no token.

The name contains an instruction because PEFT's error message quotes it.
"""

WEIGHTS_FILE = "adapter_model.safetensors"
"""PEFT's file name for an adapter's tensors."""

FORMAT_VERSION = 1
"""The version that is written, and the newest one that can be read."""

TABLES = ("token_ids", "embed_offset", "head_offset")
"""The parts that every file must have."""

DESCRIPTIVE = ("fingerprint", "format_version")
"""Optional parts, which files from other programs may lack."""


class HasShape(Protocol):
    """An object with a shape: a `torch.Tensor` or an entry of a safetensors header."""

    @property
    def shape(self) -> Sequence[int]:
        """Sizes of the dimensions."""


T = TypeVar("T", bound=HasShape)


@dataclass(frozen=True)
class StoredOffsets(Generic[T]):
    """The offsets of a file, as tensors or header entries.

    Attributes:
        ids: the token ids [K], in the order of the rows
        embed: the table [K, H] of the embedding, in tied mode also of the head
        head: the table [K, H] of the head, or None in tied mode
        fingerprint: fingerprint of the vocabulary that the offsets were trained with; None if the file has none
        lacking: the descriptive parts that the file lacks
    """

    ids: tuple[int, ...]
    embed: T
    head: T | None
    fingerprint: str | None
    lacking: frozenset[str] = frozenset()


@dataclass(frozen=True)
class SavedOffsets:
    """The offsets of an adapter file.

    Attributes:
        ids: int64 token ids [K], in the order of the rows
        embed: offsets [K, H] of the embeddings, in tied mode also of the head's rows
        head: offsets [K, H] of the head's rows, or None in tied mode
        fingerprint: fingerprint of the vocabulary that the offsets were trained with; None if the file has none
    """

    ids: Tensor
    embed: Tensor
    head: Tensor | None
    fingerprint: str | None

    @property
    def tied(self) -> bool:
        """Whether embedding and head share one table."""
        return self.head is None


def offset_part(name: str) -> str | None:
    """Return the part name of a tensor in an adapter file, or None if it does not belong to the offsets.

    Example:
        >>> offset_part("base_model.model.coord_offset_adapter.token_ids")
        'token_ids'
        >>> offset_part("base_model.model.lm_head.lora_A.weight")
    """
    return name.rpartition(".")[2] if f".{MODULE_NAME}." in f".{name}" else None


def find_offsets(
    tensors: Mapping[str, T], integers: Callable[[T], Iterable[int]], file: str | Path
) -> StoredOffsets[T] | None:
    """Find the offsets among the tensors of an adapter file and check that they are consistent.

    Args:
        tensors: the tensors of the file by name, or objects with a shape in their place
        integers: function that returns the values of an integer tensor
        file: the file's path for messages

    Returns:
        The offsets, or None if no tensor of the file belongs to them.

    Raises:
        InputError: if the offsets are incomplete, of a newer format, or their shapes contradict each other
    """
    parts = {part: tensor for name, tensor in tensors.items() if (part := offset_part(name)) is not None}
    if not parts:
        return None
    if missing := [part for part in TABLES if part not in parts]:
        raise InputError(f"{file}: the offset tables lack {', '.join(missing)}; save the adapter again")
    if unknown := sorted(parts.keys() - {*TABLES, *DESCRIPTIVE}):
        raise InputError(
            f"{file}: {MODULE_NAME}.{unknown[0]}: expected only {', '.join((*TABLES, *DESCRIPTIVE))}, found an "
            "unknown part of the offset tables; update coord-adapter"
        )
    for part, tensor in parts.items():
        most = 2 if part in ("embed_offset", "head_offset") else 1
        if not 1 <= len(tensor.shape) <= most:  # a table that ZeRO-3 left partitioned has one
            raise InputError(f"{file}: {part} is {tuple(tensor.shape)}, expected {most} dimension(s)")
    values = {part: tuple(integers(parts[part])) for part in ("token_ids", *DESCRIPTIVE) if part in parts}
    for part, numbers in values.items():
        if not all(isinstance(number, int) for number in numbers):
            raise InputError(f"{file}: {part} holds {numbers[0]!r}, expected integers")
    ids, embed, head = values["token_ids"], parts["embed_offset"], parts["head_offset"]
    problem = problem_with_version(*values.get("format_version", ())[:1]) or problem_with_shapes(len(ids), embed, head)
    if problem := problem or problem_with_ids(ids, None):
        raise InputError(f"{file}: {problem}")
    return StoredOffsets(
        ids,
        embed,
        head if head.shape[0] else None,
        decode_fingerprint(values.get("fingerprint", ())),
        frozenset(DESCRIPTIVE) - parts.keys(),
    )


def problem_with_version(version: int = 1) -> str | None:
    """Return an error message if the file's version is not supported, else None; files without a version have 1."""
    if version > FORMAT_VERSION:
        return f"format_version is {version}, expected at most {FORMAT_VERSION}: update coord-adapter."
    return None


def problem_with_shapes(
    rows: int, embed: HasShape, head: HasShape | None, hidden_size: int | None = None
) -> str | None:
    """Return an error message if the tables do not match the token ids or the model, else None.

    Args:
        rows: number of token ids, K
        embed: the embedding's table
        head: the head's table; None or a table without rows in tied mode
        hidden_size: hidden size H of the base model; None for that of `embed`
    """
    shape = tuple(embed.shape)
    if rows and shape[:1] == (0,):
        return (
            f"embed_offset has 0 rows for {rows} token ids: it was saved under ZeRO-3 without gathering. "
            "Save with stage3_gather_16bit_weights_on_model_save, or pass the gathered state_dict to "
            "save_pretrained."
        )
    expected = (rows, shape[-1] if hidden_size is None else hidden_size)
    if shape != expected:
        fits = "one row for each of token_ids" if hidden_size is None else "for this base model"
        return f"embed_offset is {shape}, expected {expected}, {fits}."
    if head is not None and head.shape[0] and tuple(head.shape) != expected:
        return f"head_offset is {tuple(head.shape)}, expected {expected}, or no rows when tied."
    return None


def problem_with_ids(ids: Sequence[int], vocab_rows: int | None) -> str | None:
    """Return an error message if ids repeat or have no row in a vocabulary of `vocab_rows` rows (V), else None.

    Args:
        ids: the token ids
        vocab_rows: V; None if it is unknown
    """
    if ids and min(ids) < 0:
        return f"token_ids: id {min(ids)} is outside the vocabulary, whose ids begin at 0; save the adapter again."
    if len(set(ids)) < len(ids):
        (repeated, _), *_ = Counter(ids).most_common(1)
        return f"token_ids: id {repeated} occurs twice, but each row belongs to one id; save the adapter again."
    if vocab_rows is None or not ids or max(ids) < vocab_rows:
        return None
    return (
        f"token id {max(ids)} lies outside the {vocab_rows} rows of the base model's vocabulary: use the base "
        "checkpoint whose vocabulary was expanded for the coordinate tokens."
    )


def problem_with_fingerprint(saved: str | None, expected: str | None) -> str | None:
    """Return an error message if two known fingerprints differ, else None."""
    if not saved or not expected or saved == expected:
        return None
    return (
        f"vocabulary fingerprint mismatch: the offsets were trained with {saved!r}, this model's tokenizer "
        f"is {expected!r}. Use the tokenizer and base checkpoint of the training run."
    )


def encode_fingerprint(text: str | None) -> Tensor:
    """Return a fingerprint as a uint8 tensor [n] of its UTF-8 bytes; empty for None."""
    import torch

    return torch.tensor(list((text or "").encode()), dtype=torch.uint8)


def decode_fingerprint(values: Iterable[int]) -> str | None:
    """Return the text of a fingerprint's bytes; None if there are none."""
    return bytes(values).decode(errors="replace") or None


def read_offsets(path: str | Path) -> SavedOffsets:
    """Read the offsets of an adapter folder (or its `adapter_model.safetensors`) without a model.

    Raises:
        FileNotFoundError: if there is no such file (a pickled `adapter_model.bin` is never read)
        InputError: (a ValueError) if the file is not safetensors, does not contain all parts of the offsets, or has a
            newer format version

    Example:
        >>> import tempfile, torch
        >>> from safetensors.torch import save_file
        >>> folder = Path(tempfile.mkdtemp())
        >>> trained = SavedOffsets(torch.tensor([7, 5]), torch.ones(2, 4), None, "my vocabulary")
        >>> save_file(offset_tensors(trained), folder / WEIGHTS_FILE)
        >>> saved = read_offsets(folder)
        >>> saved.ids.tolist(), saved.tied, saved.fingerprint
        ([7, 5], True, 'my vocabulary')
    """
    import torch

    stored = read_stored(weights_file(path))
    return SavedOffsets(torch.tensor(stored.ids), stored.embed, stored.head, stored.fingerprint)


def read_stored(file: Path) -> StoredOffsets[Tensor]:
    """Read the offsets of a safetensors file, including which parts it lacks; see `read_offsets`."""
    import torch
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(str(file), framework="pt") as weights:
            names = [name for name in weights.keys() if offset_part(name) is not None]  # noqa: SIM118
            tensors = {name: weights.get_tensor(name) for name in names}
    except SafetensorError as error:
        raise InputError(f"{file}: not a readable safetensors file ({error}); save the adapter again") from None
    stored = find_offsets(tensors, torch.Tensor.tolist, file)
    if stored is None:
        raise InputError(
            f"{file}: no coordinate offsets: the adapter was trained without them, or saved without "
            f"{MODULE_NAME} in modules_to_save. An adapter without offsets is loaded with "
            "PeftModel.from_pretrained."
        )
    return stored


def offset_tensors(offsets: SavedOffsets) -> dict[str, Tensor]:
    """Return the tensors of the offsets by their names in PEFT's `adapter_model.safetensors`.

    Args:
        offsets: ids [K] and tables [K, H]
    """
    import torch

    parts = {
        "token_ids": offsets.ids,
        "embed_offset": offsets.embed,
        "head_offset": offsets.embed[:0].clone() if offsets.head is None else offsets.head,
        "fingerprint": encode_fingerprint(offsets.fingerprint),
        "format_version": torch.tensor([FORMAT_VERSION], dtype=torch.uint8),
    }
    return {f"base_model.model.{MODULE_NAME}.{part}": tensor for part, tensor in parts.items()}


def weights_file(path: str | Path) -> Path:
    """Return the safetensors file of an adapter folder, or the file itself.

    Raises:
        FileNotFoundError: if there is none
    """
    path = Path(path)
    file = path if path.suffix == ".safetensors" else path / WEIGHTS_FILE
    if not file.is_file():
        raise FileNotFoundError(f"{file}: no adapter weights there, expected a folder with {WEIGHTS_FILE}.")
    return file
