"""The vocabulary of a checkpoint: token ids in its tokenizer files, rows in its embedding and head.

No tokenizer or model is loaded: tokenizer files are read as JSON, and only the headers of weight files.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from coord_adapter import weights_digest
from coord_codec import MARKERS, CoordVocab, coord_tokens
from coord_codec.files import InputError
from coord_exporter.checkpoint.read import StoredCheckpoint, TensorInfo, read_object

DTYPES = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}
"""Names of dtypes in safetensors files by their names in configurations."""

_HEADS = {
    "model.language_model.embed_tokens.weight": "lm_head.weight",
    "language_model.model.embed_tokens.weight": "language_model.lm_head.weight",
    "model.embed_tokens.weight": "lm_head.weight",
}  # name of the head by the name of the embedding, in the file or in the model


@dataclass(frozen=True)
class Vocabulary:
    """The ids of a tokenizer's tokens by their text."""

    ids: dict[str, int]

    @property
    def size(self) -> int:
        """The first free id."""
        return max(self.ids.values(), default=-1) + 1

    def coord_vocab(self) -> CoordVocab | None:
        """Return the coordinate tokens, or None if there are none.

        Raises:
            InputError: if some are missing, or their ids are not consecutive and in order
        """
        tokens = coord_tokens()
        ids = [self.ids[token] for token in tokens if token in self.ids]
        if not ids:
            return None
        if len(ids) < len(tokens):
            missing = next(token for token in tokens if token not in self.ids)
            raise InputError(f"tokenizer: {len(ids)} of {len(tokens)} coordinate tokens, {missing} is missing")
        if ids != list(range(ids[0], ids[0] + len(tokens))):
            raise InputError("tokenizer: the coordinate tokens' ids are not consecutive and in order")
        return CoordVocab(ids[0])

    def fingerprints(self) -> set[str]:
        """Return the fingerprints that an adapter trained with this vocabulary may carry, one per marker family."""
        coords = self.coord_vocab()
        if coords is None:
            return set()
        spellings: list = [None]
        for tokens in (family.tokens for family in MARKERS.values()):
            spellings.append(tokens)
            if all(token in self.ids for token in tokens):
                ids = [self.ids[token] for token in tokens]
                spellings += [ids, dict(zip(tokens, ids, strict=True))]
        return {coords.fingerprint(markers) for markers in spellings}


def read_vocabulary(folder: Path) -> Vocabulary | None:
    """Read a checkpoint's vocabulary from its tokenizer.json, None if it has none.

    Raises:
        InputError: for a file that cannot be read
    """
    path = folder / "tokenizer.json"
    if not path.exists():
        return None
    content = read_object(path)
    try:
        ids = content.get("model", {}).get("vocab", {})
        if not isinstance(ids, dict):
            raise InputError(f"{path}: model.vocab: expected token texts and ids (a byte-level BPE)")
        return Vocabulary(ids | {token["content"]: token["id"] for token in content.get("added_tokens", [])})
    except (KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: the tokenizer is damaged ({error!r}); fetch it again") from None


def check_fingerprint(base: Path, fingerprint: str | None) -> list[str]:
    """Compare an adapter's fingerprint with the base's tokenizer.

    Args:
        base: the checkpoint's folder
        fingerprint: the adapter's fingerprint, None without one

    Returns:
        A warning if the comparison is not possible.

    Raises:
        InputError: if they belong to different vocabularies or grids
    """
    if fingerprint is None:
        return [
            "the adapter carries no fingerprint: whether its coordinate tokens are those of the base is not checked"
        ]
    vocabulary = read_vocabulary(base)
    if vocabulary is None:
        return ["the base has no tokenizer.json: the adapter's fingerprint cannot be compared"]
    expected = vocabulary.fingerprints()
    if fingerprint not in expected:
        found = "has no coordinate tokens" if not expected else "has another grid, other ids or other markers"
        raise InputError(
            f"adapter fingerprint {fingerprint}: the base's tokenizer {found}; merge into the base the "
            "adapter was trained on (expand-vocab makes it)"
        )
    return []


def check_base(base: Path, named: object, force: bool) -> list[str]:
    """Compare the digest of its base's weights that an adapter names with those of the base.

    Args:
        base: the checkpoint's folder
        named: the digest in the adapter's card, None without one
        force: whether another base is a warning and no error

    Returns:
        A warning if the comparison is not possible, or the base is another.

    Raises:
        InputError: if the base is another
    """
    if named is None:
        return ["the adapter names no digest of its base: whether it was trained on this one is not checked"]
    if named == (found := weights_digest(base)):
        return []
    other = f"{base}: has weights of the digest {found}, and the adapter was trained on another base, {named}"
    if force:
        return [other]
    raise InputError(f"{other}; merge into the base of its training, or --force")


@dataclass(frozen=True)
class Tables:
    """The embedding and the head of a checkpoint.

    Attributes:
        embed: name of the embedding [V, H]
        tied: whether the head is the embedding (both may be stored, with the same bytes)
    """

    embed: str
    tied: bool

    @property
    def head(self) -> str:
        """Name of the head [V, H], stored or not."""
        return _HEADS[self.embed]

    def source(self, base: StoredCheckpoint, name: str) -> TensorInfo:
        """Return a tensor by name; for a tied head the embedding."""
        return base.tensors.get(name) or base.tensors[self.embed]


def find_tables(base: StoredCheckpoint) -> Tables:
    """Find embedding and head, and whether transformers would tie them.

    Two stored tensors with different values are not tied, whatever the configuration says, as in transformers.

    Raises:
        InputError: if there is no embedding, or no head although the configuration requires one
    """
    names = [name for name in _HEADS if name in base.tensors]
    if len(names) != 1:
        raise InputError(f"{base.folder}: expected one embedding among {', '.join(_HEADS)}, found {names}")
    embed, head = base.tensors[names[0]], base.tensors.get(_HEADS[names[0]])
    inner = base.config.get("text_config", {}).get("tie_word_embeddings")
    tied = base.config.get("tie_word_embeddings", inner)
    if head is None and tied is False:
        raise InputError(
            f"{base.folder / 'config.json'}: tie_word_embeddings is false and {_HEADS[names[0]]} is not stored"
        )
    if head is not None and tied:
        tied = _equal_bytes(embed, head)
    return Tables(names[0], head is None if tied is None else tied)


def with_one_tie(base: StoredCheckpoint, tied: bool) -> tuple[dict, list[str]]:
    """Return the configuration with one value of `tie_word_embeddings`, and a note where the base states two.

    transformers reads the value at the top, and programs that read `text_config` alone would load another head.
    """
    config, inner = base.config, base.config.get("text_config", {})
    outer_value, inner_value = config.get("tie_word_embeddings"), inner.get("tie_word_embeddings")
    if None in (outer_value, inner_value) or outer_value == inner_value:
        return config, []
    found = f"{json.dumps(outer_value)} at the top and {json.dumps(inner_value)} in text_config"
    note = (
        f"{base.folder / 'config.json'}: tie_word_embeddings is {found}; transformers reads the first and the weights "
        f"{'are' if tied else 'are not'} tied, so that OUT has {json.dumps(tied)} at both"
    )
    return set_tied(config, tied), [note]


def set_tied(config: dict, tied: bool) -> dict:
    """Return the configuration with `tie_word_embeddings` set at the top and in `text_config`."""
    changed = config | {"tie_word_embeddings": tied}
    if isinstance(config.get("text_config"), dict):
        changed["text_config"] = config["text_config"] | {"tie_word_embeddings": tied}
    return changed


def set_dtype(config: dict, dtype: str) -> dict:
    """Return the configuration with the dtype replaced wherever it is stated, and set at the top."""
    changed = {key: set_dtype(value, dtype) if isinstance(value, dict) else value for key, value in config.items()}
    stated = {key: dtype for key in ("dtype", "torch_dtype") if key in config}
    return changed | (stated or ({"dtype": dtype} if "architectures" in config else {}))


def _equal_bytes(one: TensorInfo, other: TensorInfo) -> bool:
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    return all(one.read(lo, hi) == other.read(lo, hi) for lo, hi in one.blocks())
