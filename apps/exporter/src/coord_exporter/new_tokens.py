"""Which tokens a vocabulary lacks, the ids they get, and the tokenizer files that say so."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from coord_codec import MARKERS, WILDCARD_TOKEN, CoordVocab, coord_tokens

from .checkpoint import read_json
from .errors import ExportError, InputError
from .vocabulary import Vocabulary, read_vocabulary


@dataclass(frozen=True)
class NewTokens:
    """Tokens to add, in the order of their ids.

    Attributes:
        vocabulary: the vocabulary before.
        tokens: the tokens it lacks.
        first_coord: id of the token of bin 0 afterwards.
    """

    vocabulary: Vocabulary
    tokens: tuple[str, ...]
    first_coord: int

    @property
    def ids(self) -> dict[str, int]:
        """The new tokens' ids: the next free ones."""
        return {token: self.vocabulary.size + i for i, token in enumerate(self.tokens)}

    @property
    def size(self) -> int:
        """The vocabulary's size afterwards."""
        return self.vocabulary.size + len(self.tokens)


def find_new_tokens(folder: Path, *, wildcard: bool, markers: bool) -> NewTokens:
    """Decide which tokens are added to a checkpoint's vocabulary.

    Raises:
        InputError: without a fast tokenizer, for an incomplete set of coordinate tokens, or where the
            wildcard can no longer come before them: nothing that has an id is moved.
    """
    vocabulary = read_vocabulary(folder)
    if vocabulary is None or not (folder / "tokenizer.json").exists():
        raise InputError(f"{folder}: tokenizer.json is missing; save the tokenizer with a fast class first")
    coords, has_wildcard = vocabulary.coord_vocab(), WILDCARD_TOKEN in vocabulary.ids
    if coords is not None and wildcard and not has_wildcard:
        raise InputError(
            f"{folder}: the tokenizer has the coordinate tokens without {WILDCARD_TOKEN}: putting it before "
            "them would move their ids; use --no-wildcard"
        )
    if coords is None and has_wildcard and vocabulary.ids[WILDCARD_TOKEN] != vocabulary.size - 1:
        raise InputError(
            f"{folder}: {WILDCARD_TOKEN} has id {vocabulary.ids[WILDCARD_TOKEN]} and other tokens follow it; "
            "the coordinates cannot come behind it without moving ids: start from the original tokenizer"
        )
    wanted = [WILDCARD_TOKEN] if wildcard else []
    wanted += coord_tokens() + (list(MARKERS["obj"].tokens) if markers else [])
    missing = tuple(token for token in wanted if token not in vocabulary.ids)
    first = coords.first_id if coords else vocabulary.size + missing.index(coord_tokens()[0])
    return NewTokens(vocabulary, missing, first)


def extend_tokenizer(folder: Path, new: NewTokens) -> dict[str, dict]:
    """The tokenizer files with the new tokens in them, by file name; empty if there are none to add.

    Boxes are part of the answer, not control tokens: they are added as ordinary tokens, so that decoding with
    skip_special_tokens keeps them.
    """
    if not new.tokens:
        return {}
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": False}
    files = {"tokenizer.json": read_json(folder / "tokenizer.json")}
    added = files["tokenizer.json"].setdefault("added_tokens", [])
    added += [{"id": token_id, "content": token} | plain for token, token_id in new.ids.items()]
    if (folder / "tokenizer_config.json").exists():
        content = read_json(folder / "tokenizer_config.json")
        if isinstance(content.get("added_tokens_decoder"), dict):
            content["added_tokens_decoder"] |= {str(i): {"content": t} | plain for t, i in new.ids.items()}
            files["tokenizer_config.json"] = content
    if (folder / "added_tokens.json").exists():
        files["added_tokens.json"] = read_json(folder / "added_tokens.json") | new.ids
    return files


def check_tokenizer(folder: Path, new: NewTokens) -> None:
    """Load the written tokenizer and check that every token is one and has its id, old ones as before.

    Raises:
        ExportError: naming the first that is not.
    """
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    found = tokenizer.get_vocab(with_added_tokens=True)
    for token, token_id in (new.vocabulary.ids | new.ids).items():
        if found.get(token) != token_id:
            raise ExportError(f"tokenizer: {token} would get id {found.get(token)} instead of {token_id}")
    try:
        coords = CoordVocab.from_tokenizer(_Encoder(tokenizer))
    except ValueError as error:
        raise ExportError(f"tokenizer: {error}") from None
    if coords.first_id != new.first_coord:
        raise ExportError(f"tokenizer: coordinates start at {coords.first_id} instead of {new.first_coord}")


class _Encoder:
    """The two methods of a Hugging Face tokenizer that `CoordVocab.from_tokenizer` calls."""

    def __init__(self, tokenizer) -> None:
        self._tokenizer = tokenizer

    def get_vocab(self) -> dict[str, int]:
        return self._tokenizer.get_vocab(with_added_tokens=True)

    def encode(self, text: str, add_special_tokens: bool = True) -> list[int]:
        return self._tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
