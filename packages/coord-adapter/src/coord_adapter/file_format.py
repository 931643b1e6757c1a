"""The tensors of an adapter file: which there are, and what makes them unusable."""

import torch
from torch import Tensor

FORMAT_VERSION = 1
TABLES = ("token_ids", "embed_offset", "head_offset")


def problem_with_version(saved: dict[str, Tensor]) -> str | None:
    """Say that a file is too new to be understood, or None; a file without a version has the first one."""
    version = int(saved["format_version"][0]) if "format_version" in saved else FORMAT_VERSION
    if version > FORMAT_VERSION:
        return f"format_version is {version}, expected at most {FORMAT_VERSION}: update coord-adapter."
    return None


def problem_with_tables(saved: dict[str, Tensor], hidden_size: int, vocab_rows: int | None) -> str | None:
    """Say why saved tables cannot be used on a model of this size, or None.

    Args:
        saved: The tensors of `CoordOffsetAdapter` by name.
        hidden_size: H of the base model.
        vocab_rows: Rows of its embedding, V; None skips the check.
    """
    ids_K, embed_KH, head_KH = (saved[name] for name in TABLES)
    rows = ids_K.shape[0]
    if embed_KH.shape[0] == 0 and rows:
        return (
            f"embed_offset has 0 rows for {rows} token ids: it was saved under ZeRO-3 without gathering. "
            "Save with stage3_gather_16bit_weights_on_model_save, or pass the gathered state_dict to "
            "save_pretrained."
        )
    if tuple(embed_KH.shape) != (rows, hidden_size):
        return f"embed_offset is {tuple(embed_KH.shape)}, expected {(rows, hidden_size)} for this base model."
    if head_KH.shape[0] not in (0, rows) or (head_KH.shape[0] and head_KH.shape[1] != hidden_size):
        return f"head_offset is {tuple(head_KH.shape)}, expected {(rows, hidden_size)}, or no rows when tied."
    if vocab_rows is not None and rows and int(ids_K.max()) >= vocab_rows:
        return (
            f"token id {int(ids_K.max())} lies outside the {vocab_rows} rows of the base model's "
            "vocabulary: use the base checkpoint whose vocabulary was expanded for the coordinate tokens."
        )
    return None


def fingerprint_mismatch(saved: str, expected: str) -> str:
    """The message for offsets trained with another vocabulary."""
    return (
        f"vocabulary fingerprint mismatch: the offsets were trained with {saved!r}, this model's tokenizer "
        f"is {expected!r}. Use the tokenizer and base checkpoint of the training run."
    )


def encode_fingerprint(text: str | None) -> Tensor:
    """A fingerprint as a uint8 tensor, empty for none."""
    return torch.tensor(list((text or "").encode()), dtype=torch.uint8)


def decode_fingerprint(tensor: Tensor | None) -> str | None:
    """Text of a fingerprint buffer, None when it is absent or empty."""
    return bytes(tensor.tolist()).decode() if tensor is not None and tensor.numel() else None
