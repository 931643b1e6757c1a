"""The token ids of coordinates and of the markers around an object."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

from coord_codec.arguments import expect
from coord_codec.grid import CoordGrid
from coord_codec.tokens import WILDCARD_TOKEN, coord_tokens

_NAMED = 3  # how many missing tokens an error names
_DIGEST_LENGTH = 16


@dataclass(frozen=True)
class MarkerFamily:
    """The tokens around an object's description and coordinates.

    Attributes:
        name: key in `MARKERS`
        tokens: (start, end) around description and coordinates together, or
            (description start, description end, box start, box end)

    Example:
        >>> MARKERS["obj"].tokens
        ('<obj_start>', '<obj_end>')
    """

    name: str
    tokens: tuple[str, ...]

    def __post_init__(self) -> None:
        expect("name", self.name, str)
        expect("tokens", self.tokens, tuple, list)
        for token in self.tokens:
            expect("tokens", token, str)
        if len(self.tokens) not in (2, 4) or len(set(self.tokens)) != len(self.tokens):
            raise ValueError(f"marker family {self.name!r}: expected 2 or 4 different tokens, found {self.tokens!r}")

    def ids(self, tokenizer: Any) -> tuple[int, ...]:
        """Return the ids of the tokens in order, as `find_layout` expects them.

        Raises:
            ValueError: if the tokenizer lacks a marker or splits it into several tokens
        """
        advice = (
            f"the marker family {self.name!r} needs them: add them with tokenizer.add_tokens(list(MARKERS"
            f"[{self.name!r}].tokens)) and train their rows, or choose a family the tokenizer knows"
        )
        return tuple(_single_token_ids(tokenizer, self.tokens, what="marker", advice=advice))


MARKERS: Mapping[str, MarkerFamily] = MappingProxyType(
    {
        "obj": MarkerFamily("obj", ("<obj_start>", "<obj_end>")),
        "qwen": MarkerFamily("qwen", ("<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>", "<|box_end|>")),
    }
)
"""Families by name: `obj` is a pair of tokens that must be added to the vocabulary; `qwen` consists of the four tokens
that pretrained Qwen checkpoints already have."""

PLACEHOLDERS = (
    *("<image>", "<video>", "<audio>"),  # ms-swift, LLaVA, SmolVLM, PaliGemma
    *("<start_of_image>", "<image_soft_token>", "<audio_soft_token>"),  # Gemma
    *("<IMG_CONTEXT>", "[IMG]"),  # InternVL, Mistral
)
"""What chat templates and processors replace by the pixels of an image, beside Qwen's `<|image_pad|>`."""

# Matches all text with the form of a control token, since a tokenizer may encode it as one anywhere in a text.
_CONTROL = re.compile(
    "|".join(
        (
            r"<\|[^\s<>|]+\|>",
            *(re.escape(token) for family in MARKERS.values() for token in family.tokens),
            *map(re.escape, PLACEHOLDERS),
        )
    )
)


def marker_family(markers: str | MarkerFamily) -> MarkerFamily:
    """Return the family with this name; a `MarkerFamily` is returned unchanged.

    Raises:
        ValueError: for an unknown name
    """
    if isinstance(markers, MarkerFamily):
        return markers
    if markers not in MARKERS:
        raise ValueError(f"markers: expected one of {sorted(MARKERS)} or a MarkerFamily, found {markers!r}")
    return MARKERS[markers]


def find_control_token(text: str) -> str | None:
    """Return the first marker, coordinate token, placeholder or other `<|...|>` token in `text`, or None."""
    match = _CONTROL.search(text)
    return match[0] if match else None


@dataclass(frozen=True)
class CoordVocab:
    """The coordinate tokens of a vocabulary: `grid.bins` consecutive ids, bin 0 first.

    Attributes:
        first_id: id of the token of bin 0 (151670 in Qwen3-VL vocabularies extended as specified)
        grid: the grid of the bins

    Example:
        >>> vocab = CoordVocab(first_id=151670)
        >>> vocab.bin_to_id(7), vocab.id_to_bin(151677), vocab.mask([42, 151670])
        (151677, 7, [False, True])
    """

    first_id: int
    grid: CoordGrid = field(default_factory=CoordGrid)

    def __post_init__(self) -> None:
        if isinstance(self.first_id, bool) or not isinstance(self.first_id, int) or self.first_id < 0:
            raise ValueError(f"CoordVocab.first_id: expected a token id >= 0, found {self.first_id!r}")

    @property
    def ids(self) -> range:
        """The ids in the order of their bins."""
        return range(self.first_id, self.first_id + self.grid.bins)

    def id_to_bin(self, token_id: Any) -> Any:
        """Return the bin of an id; for an array or tensor of ids, an array or tensor of bins.

        Raises:
            ValueError: if an id is not a coordinate token
        """
        if hasattr(token_id, "dtype"):
            others = token_id.reshape(-1)[~self.mask(token_id).reshape(-1)].tolist()
        else:
            others = [] if token_id in self.ids else [token_id]
        if others:
            raise ValueError(
                f"token id {others[0]} is not a coordinate: expected {self.ids[0]}..{self.ids[-1]} "
                "(mask picks the coordinates out of a sequence)"
            )
        return token_id - self.first_id

    def bin_to_id(self, k: int) -> int:
        """Return the id of a bin.

        Raises:
            ValueError: if `k` is not a bin of the grid
        """
        return self.first_id + self.grid.check_bin(k)

    def mask(self, ids: Any) -> Any:
        """Return which ids are coordinates, as booleans of the same kind and shape.

        Args:
            ids: a list (nested lists too), NumPy array or torch tensor of any shape
        """
        if hasattr(ids, "dtype"):
            return (ids >= self.first_id) & (ids < self.first_id + self.grid.bins)
        return [self.mask(i) if isinstance(i, (list, tuple)) else i in self.ids for i in ids]

    @classmethod
    def from_tokenizer(cls, tokenizer: Any, grid: CoordGrid | None = None) -> CoordVocab:
        """Find the coordinate tokens and check that each is a single token and that their ids are consecutive.

        Args:
            tokenizer: a tokenizer of transformers or tokenizers, or a processor that holds one as `.tokenizer`
            grid: the grid whose tokens are looked up; the default grid if None

        Raises:
            ValueError: if it is no tokenizer, or a token is missing, split or out of order; the message names the first
        """
        grid = grid or CoordGrid()
        tokens = coord_tokens(grid)
        advice = (
            f"extend the original one with tokenizer.add_tokens([{WILDCARD_TOKEN!r}, *coord_tokens()]), "
            "which adds them in order, and resize the model's embeddings"
        )
        ids = _single_token_ids(tokenizer, tokens, what="coordinate", advice=advice)
        expected = range(ids[0], ids[0] + grid.bins)
        if ids != list(expected):
            k = next(k for k, token_id in enumerate(ids) if token_id != expected[k])
            fault = "are out of order" if sorted(ids) == list(range(min(ids), min(ids) + grid.bins)) else "have a gap"
            raise ValueError(
                f"the ids of the coordinate tokens {fault}: {tokens[k]} has id {ids[k]}, expected "
                f"{expected[k]} since {tokens[0]} has {ids[0]}; {advice}"
            )
        return cls(ids[0], grid)

    def fingerprint(self, markers: str | MarkerFamily | Sequence[str | int] | Mapping[str, int] | None = None) -> str:
        """Return a short digest of everything that two artefacts must share to have compatible coordinates.

        Args:
            markers: the marker family or its name, or the marker tokens, their ids, or a mapping from tokens to ids
                (which is the strictest); None for JSON text. Digests are comparable only if all were made from
                the same kind of value

        Returns:
            16 hexadecimal digits over grid, token text, ids and markers, the same on every machine.
        """
        if isinstance(markers, (str, MarkerFamily)):
            markers = marker_family(markers).tokens
        content = {
            "bins": self.grid.bins,
            "scale": self.grid.scale,
            "tokens": coord_tokens(self.grid),
            "first_id": self.first_id,
            "markers": list(markers.items() if isinstance(markers, Mapping) else markers or ()),
        }
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:_DIGEST_LENGTH]


def _single_token_ids(tokenizer: Any, tokens: Sequence[str], *, what: str, advice: str) -> list[int]:
    """Return the id of each token."""
    tokenizer = getattr(tokenizer, "tokenizer", tokenizer)
    if not hasattr(tokenizer, "get_vocab"):
        raise ValueError(f"expected a tokenizer, found {tokenizer!r:.60}; AutoTokenizer.from_pretrained loads one")
    vocab = tokenizer.get_vocab()
    if missing := [token for token in tokens if token not in vocab]:
        named = ", ".join(missing[:_NAMED]) + (", ..." if len(missing) > _NAMED else "")
        raise ValueError(f"the tokenizer lacks {len(missing)} of {len(tokens)} {what} tokens: {named}; {advice}")
    ids = [vocab[token] for token in tokens]
    # A token in the vocabulary may still be split (a BPE entry that no merge produces). One call for all tokens is a
    # thousand times faster than one call per token, and also proves that neighbours are not merged.
    if _encode(tokenizer, "".join(tokens)) == ids:
        return ids
    for token, token_id in zip(tokens, ids, strict=True):
        if (encoded := _encode(tokenizer, token)) != [token_id]:
            fault = f"has id {token_id} but its text is encoded as {encoded}"
            raise ValueError(
                f"the {what} token {token} {fault}: add it with tokenizer.add_tokens so that it is never split"
            )
    raise ValueError(f"the {what} tokens are not encoded one by one when adjacent: check the tokenizer's added tokens")


def _encode(tokenizer: Any, text: str) -> list[int]:
    encoded = tokenizer.encode(text, add_special_tokens=False)
    return list(getattr(encoded, "ids", encoded))  # tokenizers.Tokenizer returns an Encoding
