"""Read offsets from an adapter folder, and load the adapter onto a base model."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peft import PeftModel
from safetensors import SafetensorError, safe_open
from torch import Tensor, nn

from coord_adapter.file_format import (
    TABLES,
    decode_fingerprint,
    fingerprint_mismatch,
    problem_with_tables,
    problem_with_version,
)
from coord_adapter.install import install_coord_offset_adapter, vocabulary_rows
from coord_adapter.tables import MODULE_NAME, CoordOffsetAdapter

WEIGHTS_FILE = "adapter_model.safetensors"
OPTIONAL_BUFFERS = ("fingerprint", "format_version")


@dataclass(frozen=True)
class SavedOffsets:
    """The offsets of an adapter file.

    Attributes:
        ids: int64 token ids [K], in the order of the rows.
        embed: [K, H], added to the embeddings; in tied mode to the head's rows too.
        head: [K, H], added to the head's rows, or None in tied mode.
        fingerprint: The vocabulary the offsets were trained with, None if the file does not say.
    """

    ids: Tensor
    embed: Tensor
    head: Tensor | None
    fingerprint: str | None

    @property
    def tied(self) -> bool:
        """Whether one table serves embedding and head."""
        return self.head is None


def read_offsets(path: str | Path) -> SavedOffsets:
    """Read the offsets of an adapter folder (or its `adapter_model.safetensors`) without a model.

    Raises:
        FileNotFoundError: There is no such file (a pickled `adapter_model.bin` is never read).
        ValueError: The file is not safetensors, holds no complete set of offsets, or is of a newer format.
    """
    return _as_offsets(_offset_tensors(_weights_file(path)))


def load_adapter(
    base_model: nn.Module,
    path: str | Path,
    *,
    fingerprint: str | None = None,
    adapter_name: str = "default",
    is_trainable: bool = False,
    **kwargs: Any,
) -> PeftModel:
    """Load an adapter with coordinate offsets onto a base model, prepared or not.

    Ids, sizes and tie mode come from the file; a base model without tables gets them.

    Args:
        base_model: The base model; with tables already installed, their fingerprint is compared.
        path: A local adapter folder.
        fingerprint: The fingerprint of the tokenizer in use, compared with the file's.
        adapter_name: Name of the adapter in the PEFT model.
        is_trainable: Whether to go on training it.
        **kwargs: Passed to `PeftModel.from_pretrained`.

    Returns:
        The PEFT model with the adapter active.

    Raises:
        FileNotFoundError: No adapter there.
        ValueError: No offsets in the file, offsets of another size or another vocabulary, a base that PEFT
            wraps.
    """
    if isinstance(base_model, PeftModel):
        raise ValueError(
            "base_model is wrapped by PEFT already: call its load_adapter(path, adapter_name) instead."
        )
    file = _weights_file(path)
    tensors = _offset_tensors(file)
    saved = _as_offsets(tensors)
    installed = next(
        (module for module in base_model.modules() if isinstance(module, CoordOffsetAdapter)), None
    )
    _check_fingerprint(file, saved, fingerprint)
    if installed is None:
        _check_fits(file, tensors, base_model)
        installed = install_coord_offset_adapter(
            base_model,
            saved.ids.tolist(),
            tie_head=saved.tied,
            fingerprint=fingerprint or saved.fingerprint,
        )
    _check_fingerprint(file, saved, installed.fingerprint_text)
    # PEFT asks the file for every key of the module; a file of another writer may lack the descriptive ones.
    lacking = {name for name in OPTIONAL_BUFFERS if name not in tensors}
    installed._non_persistent_buffers_set.update(lacking)
    model = PeftModel.from_pretrained(
        base_model, str(file.parent), adapter_name=adapter_name, is_trainable=is_trainable, **kwargs
    )
    for module in model.modules():
        if isinstance(module, CoordOffsetAdapter):
            module._non_persistent_buffers_set.difference_update(lacking)
    return model


def _check_fingerprint(file: Path, saved: SavedOffsets, expected: str | None) -> None:
    if expected and saved.fingerprint and expected != saved.fingerprint:
        raise ValueError(f"{file}: {fingerprint_mismatch(saved=saved.fingerprint, expected=expected)}")


def _check_fits(file: Path, tensors: dict[str, Tensor], model: nn.Module) -> None:
    problem = problem_with_tables(tensors, model.get_input_embeddings().embedding_dim, vocabulary_rows(model))
    if problem:
        raise ValueError(f"{file}: {problem}")


def _weights_file(path: str | Path) -> Path:
    path = Path(path)
    file = path if path.suffix == ".safetensors" else path / WEIGHTS_FILE
    if not file.is_file():
        raise FileNotFoundError(f"{file}: no adapter weights there, expected a folder with {WEIGHTS_FILE}.")
    return file


def _offset_tensors(file: Path) -> dict[str, Tensor]:
    try:
        with safe_open(str(file), framework="pt") as weights:
            keys = [key for key in weights.keys() if f".{MODULE_NAME}." in f".{key}"]  # noqa: SIM118
            tensors = {key.rpartition(".")[2]: weights.get_tensor(key) for key in keys}
    except SafetensorError as error:
        raise ValueError(f"{file}: not a readable safetensors file ({error}).") from None
    absent = [name for name in TABLES if name not in tensors]
    if absent:
        raise ValueError(
            f"{file}: no coordinate offsets, {absent} missing: the adapter was trained without them, or "
            f"saved without {MODULE_NAME} in modules_to_save. An adapter without offsets is loaded with "
            "PeftModel.from_pretrained."
        )
    too_new = problem_with_version(tensors)
    if too_new:
        raise ValueError(f"{file}: {too_new}")
    return tensors


def _as_offsets(tensors: dict[str, Tensor]) -> SavedOffsets:
    ids, embed, head = (tensors[name] for name in TABLES)
    fingerprint = decode_fingerprint(tensors.get("fingerprint"))
    return SavedOffsets(ids, embed, head if head.shape[0] else None, fingerprint)
