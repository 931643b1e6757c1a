"""The vocabulary of a checkpoint, read from its tokenizer files without building a tokenizer."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from coord_codec import MARKERS, CoordVocab, coord_tokens

from .checkpoint import read_json
from .errors import InputError


@dataclass(frozen=True)
class Vocabulary:
    """Token texts and ids; `size` is one more than the largest id."""

    ids: dict[str, int]

    @property
    def size(self) -> int:
        """The first id that is free."""
        return max(self.ids.values(), default=-1) + 1

    def coord_vocab(self) -> CoordVocab | None:
        """The coordinate tokens, or None if there are none.

        Raises:
            InputError: if some are missing or they are not consecutive and in order.
        """
        tokens = coord_tokens()
        found = [self.ids[token] for token in tokens if token in self.ids]
        if not found:
            return None
        if len(found) < len(tokens):
            missing = next(token for token in tokens if token not in self.ids)
            raise InputError(
                f"tokenizer: {len(found)} of {len(tokens)} coordinate tokens, {missing} is missing"
            )
        if found != list(range(found[0], found[0] + len(tokens))):
            raise InputError("tokenizer: the coordinate tokens' ids are not consecutive and in order")
        return CoordVocab(found[0])

    def fingerprints(self) -> set[str]:
        """The fingerprints an adapter trained with this vocabulary may carry, one per marker family."""
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
    """Read a checkpoint's vocabulary, None if it has no tokenizer files.

    Raises:
        InputError: for files that cannot be read.
    """
    try:
        return _read(folder)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise InputError(f"{folder}: the tokenizer files are damaged ({error!r}); fetch them again") from None


def _read(folder: Path) -> Vocabulary | None:
    fast, plain = folder / "tokenizer.json", folder / "vocab.json"
    if fast.exists():
        content = read_json(fast)
        ids = content.get("model", {}).get("vocab", {})
        if not isinstance(ids, dict):
            raise InputError(f"{fast}: model.vocab: expected token texts and ids (a byte-level BPE)")
        return Vocabulary(ids | {token["content"]: token["id"] for token in content.get("added_tokens", [])})
    if not plain.exists():
        return None
    ids = read_json(plain)
    if (folder / "added_tokens.json").exists():
        ids |= read_json(folder / "added_tokens.json")
    if (folder / "tokenizer_config.json").exists():
        decoder = read_json(folder / "tokenizer_config.json").get("added_tokens_decoder", {})
        ids |= {token["content"]: int(token_id) for token_id, token in decoder.items()}
    return Vocabulary(ids)


def check_fingerprint(base: Path, fingerprint: str | None) -> str | None:
    """Compare an adapter's fingerprint with the base's tokenizer.

    Args:
        base: the checkpoint's folder.
        fingerprint: what the adapter carries.

    Returns:
        A warning where nothing can be compared, else None.

    Raises:
        InputError: if they belong to different vocabularies or grids.
    """
    if fingerprint is None:
        return "the adapter carries no fingerprint: nothing shows that its coordinates are those of the base"
    vocabulary = read_vocabulary(base)
    if vocabulary is None:
        return "the base has no tokenizer: the adapter's fingerprint cannot be compared"
    expected = vocabulary.fingerprints()
    if fingerprint not in expected:
        found = "has no coordinate tokens" if not expected else "has another grid, other ids or other markers"
        raise InputError(
            f"adapter fingerprint {fingerprint}: the base's tokenizer {found}; merge into the base the "
            "adapter was trained on (expand-vocab makes it)"
        )
    return None
