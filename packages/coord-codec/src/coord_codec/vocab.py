"""Which token ids are coordinates."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from coord_codec.grid import CoordGrid
from coord_codec.markers import MarkerFamily, marker_family
from coord_codec.tokenizer_ids import single_token_ids
from coord_codec.tokens import WILDCARD_TOKEN, coord_tokens

_DIGEST_LENGTH = 16


@dataclass(frozen=True)
class CoordVocab:
    """The coordinate tokens of a vocabulary: `grid.bins` consecutive ids, bin 0 first.

    Attributes:
        first_id: id of the token of bin 0 (151670 in Qwen3-VL vocabularies extended by the specification).
        grid: the grid the bins belong to.
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
        """Return the bin of an id; arrays and tensors of ids give bins of the same kind and shape.

        Raises:
            ValueError: if an id is not a coordinate's.
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
            ValueError: if `k` is not a bin of the grid.
        """
        return self.first_id + self.grid.check_bin(k)

    def mask(self, ids: Any) -> Any:
        """Return which ids are coordinates.

        Args:
            ids: a list (nested lists too), NumPy array or torch tensor of any shape.

        Returns:
            Booleans of the same kind and shape.
        """
        if hasattr(ids, "dtype"):
            return (ids >= self.first_id) & (ids < self.first_id + self.grid.bins)
        return [self.mask(i) if isinstance(i, (list, tuple)) else i in self.ids for i in ids]

    @classmethod
    def from_tokenizer(cls, tokenizer: Any, grid: CoordGrid | None = None) -> CoordVocab:
        """Find the coordinate tokens and check that all are there, single, consecutive and in order.

        Args:
            tokenizer: a Hugging Face tokenizer, or a processor that holds one as `.tokenizer`.
            grid: the grid whose tokens are looked up; the default grid if None.

        Raises:
            ValueError: naming the first token that is missing, split, or not where it belongs.
        """
        grid = grid or CoordGrid()
        tokens = coord_tokens(grid)
        remedy = (
            f"extend the original one with tokenizer.add_tokens([{WILDCARD_TOKEN!r}, *coord_tokens()]), "
            "which adds them in order, and resize the model's embeddings"
        )
        ids = single_token_ids(tokenizer, tokens, what="coordinate", advice=remedy)
        expected = range(ids[0], ids[0] + grid.bins)
        if ids != list(expected):
            k = next(k for k, token_id in enumerate(ids) if token_id != expected[k])
            fault = (
                "are out of order"
                if sorted(ids) == list(range(min(ids), min(ids) + grid.bins))
                else "have a gap"
            )
            raise ValueError(
                f"the ids of the coordinate tokens {fault}: {tokens[k]} has id {ids[k]}, expected "
                f"{expected[k]} since {tokens[0]} has {ids[0]}; {remedy}"
            )
        return cls(ids[0], grid)

    def fingerprint(
        self, markers: str | MarkerFamily | Sequence[str | int] | Mapping[str, int] | None = None
    ) -> str:
        """Return a short digest of what two artefacts must share to read each other's coordinates.

        Args:
            markers: the marker family or its name, or the marker tokens, their ids, or a mapping from one to
                the other (which says the most); None for JSON text. Digests compare only where the same
                kind was given.

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
