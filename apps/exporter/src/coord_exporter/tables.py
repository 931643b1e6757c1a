"""Which tensors are the embedding and the head of a checkpoint, and whether they are one."""

from __future__ import annotations

from dataclasses import dataclass

from .checkpoint import Checkpoint, TensorInfo
from .errors import InputError
from .recipe import opened

HEAD = "lm_head.weight"
_EMBEDDINGS = (
    "model.language_model.embed_tokens.weight",
    "language_model.model.embed_tokens.weight",
    "model.embed_tokens.weight",
)
_COMPARED_BYTES = 1 << 23


@dataclass(frozen=True)
class Tables:
    """Names and tie state of the vocabulary's tables.

    Attributes:
        embed: name of the embedding [V, H].
        tied: whether the head is the embedding (`HEAD` may be stored beside it, with the same bytes).
    """

    embed: str
    tied: bool


def find_tables(base: Checkpoint) -> Tables:
    """Find embedding and head, and whether transformers would tie them.

    A configuration that ties two stored tensors of different values does not tie them in transformers either.

    Raises:
        InputError: if there is no embedding, or no head where the configuration asks for one.
    """
    names = [name for name in _EMBEDDINGS if name in base.tensors]
    if len(names) != 1:
        raise InputError(
            f"{base.folder}: expected one embedding among {', '.join(_EMBEDDINGS)}, found {names}"
        )
    embed, head = base.tensors[names[0]], base.tensors.get(HEAD)
    tied = base.config.get(
        "tie_word_embeddings", base.config.get("text_config", {}).get("tie_word_embeddings")
    )
    if head is None and tied is False:
        raise InputError(
            f"{base.folder / 'config.json'}: tie_word_embeddings is false and {HEAD} is not stored"
        )
    if head is not None and tied:
        tied = _equal_bytes(embed, head)
    return Tables(embed.name, head is None if tied is None else tied)


def vocabulary_rows(base: Checkpoint) -> int:
    """How many ids the checkpoint has rows for: the smaller of embedding and head.

    Raises:
        InputError: as `find_tables`.
    """
    tables = find_tables(base)
    return min(base.tensors[name].rows for name in (tables.embed, HEAD) if name in base.tensors)


def set_tied(config: dict, tied: bool) -> dict:
    """The configuration with `tie_word_embeddings` at both of its levels."""
    changed = config | {"tie_word_embeddings": tied}
    if isinstance(config.get("text_config"), dict):
        changed["text_config"] = config["text_config"] | {"tie_word_embeddings": tied}
    return changed


def _equal_bytes(one: TensorInfo, other: TensorInfo) -> bool:
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    step = max(1, _COMPARED_BYTES // max(1, one.row_bytes))
    with opened(one) as one_fd, opened(other) as other_fd:
        for lo in range(0, one.rows, step):
            hi = min(lo + step, one.rows)
            if one.pread(one_fd, lo, hi) != other.pread(other_fd, lo, hi):
                return False
    return True
