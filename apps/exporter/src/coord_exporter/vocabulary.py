"""The vocabulary of a checkpoint: token ids in its tokenizer files, rows in its embedding and head.

No tokenizer or model is loaded: tokenizer files are read as JSON, and only the headers of weight files.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

from coord_adapter import weights_digest
from coord_codec import MARKERS, CoordVocab, coord_tokens
from coord_codec.files import InputError
from coord_exporter.checkpoint.modules import tables_in_model
from coord_exporter.checkpoint.read import StoredCheckpoint, TensorInfo, read_object

DTYPES = {"bfloat16": "BF16", "float16": "F16", "float32": "F32"}
"""Names of dtypes in safetensors files by their names in configurations."""

_HEADS = {
    "model.language_model.embed_tokens.weight": "lm_head.weight",
    "language_model.model.embed_tokens.weight": "language_model.lm_head.weight",
    "model.embed_tokens.weight": "lm_head.weight",
}
"""Names of heads by the name of the embedding, in files or in the model; transformers is asked about others."""

STATED = {
    *("gemma3", "glm4v", "idefics2", "internvl", "llama", "llava", "llava_next", "llava_onevision", "mistral3"),
    *("paligemma", "qwen2", "qwen2_5_vl", "qwen2_vl", "qwen3", "qwen3_5", "qwen3_5_moe", "qwen3_vl", "qwen3_vl_moe"),
}
"""Families (`model_type`) that tie embedding and head as their configuration says, if it says the same everywhere.

What a missing value means, and which of two different ones holds, differs from family to family, and some never tie:
then transformers is asked, which takes seconds.
"""


@dataclass(frozen=True)
class Vocabulary:
    """The ids of a tokenizer's tokens by their text."""

    ids: dict[str, int]

    @property
    def size(self) -> int:
        """The first free id."""
        return max(self.ids.values(), default=-1) + 1

    def coord_vocab(self) -> CoordVocab | None:
        """Return the coordinate tokens, all in order or an `InputError`; None if there are none."""
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
        spellings: list[Any] = [None]
        for tokens in (family.tokens for family in MARKERS.values()):
            spellings.append(tokens)
            if all(token in self.ids for token in tokens):
                ids = [self.ids[token] for token in tokens]
                spellings += [ids, dict(zip(tokens, ids, strict=True))]
        return {coords.fingerprint(markers) for markers in spellings}


def read_vocabulary(folder: Path) -> Vocabulary | None:
    """Read a checkpoint's vocabulary from its tokenizer.json, None if it has none."""
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
    """Compare an adapter's fingerprint, if it has one, with the base's tokenizer.

    Returns a warning if the comparison is not possible.

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
    """Compare the digest of weights that an adapter's card names, if it does, with that of the base.

    Returns a warning if the comparison is not possible, or with `force` if the base is another.

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
        head: name of the head [V, H], stored or not
        tied: whether the head is the embedding (both may be stored, with the same bytes)
    """

    embed: str
    head: str
    tied: bool

    def source(self, base: StoredCheckpoint, name: str) -> TensorInfo:
        """Return a tensor by name; for a tied head the embedding."""
        return base.tensors.get(name) or base.tensors[self.embed]


def find_tables(base: StoredCheckpoint) -> Tables:
    """Find embedding and head, and whether transformers ties them.

    Two stored tensors with different values are not tied, whatever the configuration says, as in transformers 5.

    Raises:
        InputError: if there is no embedding, or a head that is neither stored nor tied, which transformers would fill
            with other random values on each load
    """
    known = [name for name in _HEADS if name in base.tensors]
    if len(known) == 1:
        embed, head = known[0], _HEADS[known[0]]
    else:
        embed, head = _asked_names(base)
    stored = base.tensors.get(head)
    if stored is not None and not _equal_bytes(base.tensors[embed], stored):
        return Tables(embed, head, tied=False)
    tied = _stated_tie(base.config)
    if tied is None:
        tied = tables_in_model(base).tied
    if stored is None and not tied:
        raise InputError(
            f"{base.folder / 'config.json'}: tie_word_embeddings ({_values(base.config)}) does not tie the head of "
            f"{base.config.get('model_type')} to its embedding, and {head} is not stored, so transformers would draw a "
            "new random head on each load; set it to true at the top and in text_config if the model was trained "
            "tied, else fetch the missing weights"
        )
    return Tables(embed, head, tied)


def _asked_names(base: StoredCheckpoint) -> tuple[str, str]:
    """Return the names of embedding and head in a checkpoint whose names are transformers' to say."""
    model = tables_in_model(base)
    stored = {} if base.modules else {module: name for name, module in model.modules.items()}
    embed, head = stored.get(model.embed, model.embed), stored.get(model.head, model.head)
    if embed not in base.tensors:
        raise InputError(
            f"{base.folder}: expected the embedding {embed}, found no tensor that transformers "
            f"{version('transformers')} loads as it: it would draw a random one on each load"
        )
    return embed, head


def _stated_tie(config: dict[str, Any]) -> bool | None:
    """Return whether a configuration ties embedding and head; None if that depends on the family's rule."""
    values = set(_places(config).values())
    one = config.get("model_type") in STATED and len(values) == 1
    return values.pop() if one else None


def _places(config: dict[str, Any]) -> dict[str, bool | None]:
    """Return the values of `tie_word_embeddings` by the places where a configuration can state one."""
    parts = {"at the top": config, "in text_config": config.get("text_config")}
    places = {place: part.get("tie_word_embeddings") for place, part in parts.items() if isinstance(part, dict)}
    for place, value in places.items():
        if value not in (None, True, False):
            raise InputError(f"config.json: tie_word_embeddings {place}: expected true or false, found {value!r:.80}")
    return places


def _values(config: dict[str, Any]) -> str:
    words = {None: "absent", True: "true", False: "false"}
    return " and ".join(f"{words[value]} {place}" for place, value in _places(config).items())


def with_one_tie(base: StoredCheckpoint, tied: bool) -> tuple[dict[str, Any], list[str]]:
    """Return the configuration with one value of `tie_word_embeddings`, and a note where the base contradicts it.

    Which of two values holds, and what none means, differs between families and between programs: OUT states the one
    that holds wherever it can be stated.
    """
    config, stated = base.config, set(_places(base.config).values())
    if stated == {tied} or (stated == {None} and "text_config" not in config):
        return config, []
    changed = set_tied(config, tied)
    if (not tied) not in stated:
        return changed, []
    note = (
        f"{base.folder / 'config.json'}: tie_word_embeddings is {_values(config)}, and the weights "
        f"{'are' if tied else 'are not'} tied: OUT states {json.dumps(tied)}"
    )
    return changed, [note]


def set_tied(config: dict[str, Any], tied: bool) -> dict[str, Any]:
    """Return the configuration with `tie_word_embeddings` set at the top and in `text_config`."""
    changed = config | {"tie_word_embeddings": tied}
    if isinstance(config.get("text_config"), dict):
        changed["text_config"] = config["text_config"] | {"tie_word_embeddings": tied}
    return changed


def set_dtype(config: dict[str, Any], dtype: str) -> dict[str, Any]:
    """Return the configuration with the dtype replaced wherever it is stated, and set at the top."""
    changed = {key: set_dtype(value, dtype) if isinstance(value, dict) else value for key, value in config.items()}
    stated = {key: dtype for key in ("dtype", "torch_dtype") if key in config}
    return changed | (stated or ({"dtype": dtype} if "architectures" in config else {}))


def _equal_bytes(one: TensorInfo, other: TensorInfo) -> bool:
    if (one.dtype, one.shape) != (other.dtype, other.shape):
        return False
    return all(one.read(lo, hi) == other.read(lo, hi) for lo, hi in one.blocks())
