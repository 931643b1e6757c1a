"""Objects between marker tokens: one pass over the sequence, one state per place in the grammar."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum, auto

from coord_codec.layout_types import ObjectLayout, Omission, Reason
from coord_codec.vocab import CoordVocab

_MIN_COORDS = 4


class _State(Enum):
    OUTSIDE = auto()
    DESC = auto()  # after start
    GAP = auto()  # four markers: between description end and box start
    COORDS = auto()
    SKIPPING = auto()  # in what is left of a broken object: the next start or end marker leads out of it


def find_marked_objects(
    ids: Sequence[int], is_coord: Sequence[bool], vocab: CoordVocab, markers: Sequence[int]
) -> tuple[list[ObjectLayout], list[Omission]]:
    """Return the objects between two or four markers and what was left out; see `find_layout`."""
    scanner = _Scanner(vocab, markers)
    for position, (token_id, coord) in enumerate(zip(ids, is_coord, strict=True)):
        scanner.step(position, token_id, coord)
    scanner.finish(len(ids))
    return scanner.objects, scanner.omissions


class _Scanner:
    def __init__(self, vocab: CoordVocab, markers: Sequence[int]) -> None:
        self.vocab = vocab
        self.start, self.end = markers[0], markers[-1]
        inner = len(markers) == 4
        self.desc_end = markers[1] if inner else None
        self.box_start = markers[2] if inner else None
        self.markers = frozenset(markers)
        self.objects: list[ObjectLayout] = []
        self.omissions: list[Omission] = []
        self.state = _State.OUTSIDE
        self.opened_at = 0
        self.desc: list[int] = []
        self.coords: list[int] = []
        self.bins: list[int] = []

    def step(self, position: int, token_id: int, coord: bool) -> None:
        """Read one token."""
        if token_id == self.start:
            self._open(position)
        elif self.state is _State.SKIPPING:
            if token_id == self.end:
                self.state = _State.OUTSIDE
        elif self.state is _State.OUTSIDE:
            self._stray(position, token_id, coord)
        elif token_id < 0:
            self._leave_out(position, Reason.MASKED, _State.SKIPPING)
        elif self.state is _State.DESC:
            self._in_desc(position, token_id, coord)
        elif self.state is _State.GAP:
            if token_id == self.box_start:
                self.state = _State.COORDS
            else:
                self._unexpected(position, token_id)
        elif coord:
            self._take_coord(position, token_id)
        elif token_id == self.end:
            self._close(position)
        else:
            self._unexpected(position, token_id)

    def finish(self, length: int) -> None:
        """End of the sequence: whatever is open is unfinished."""
        if self.state in (_State.DESC, _State.GAP, _State.COORDS):
            self._leave_out(length, Reason.UNFINISHED, _State.OUTSIDE)

    def _open(self, position: int) -> None:
        if self.state in (_State.DESC, _State.GAP, _State.COORDS):
            self._leave_out(position, Reason.NESTED_START, _State.OUTSIDE)
        self.state, self.opened_at = _State.DESC, position
        self.desc, self.coords, self.bins = [], [], []

    def _in_desc(self, position: int, token_id: int, coord: bool) -> None:
        leaves_desc = (
            token_id == self.desc_end if self.desc_end is not None else coord or token_id == self.end
        )
        if leaves_desc and not self.desc:
            self._leave_out(position, Reason.NO_DESCRIPTION, self._after(token_id))
        elif not leaves_desc and (coord or token_id in self.markers):
            self._unexpected(position, token_id)
        elif not leaves_desc:
            self.desc.append(position)
        elif token_id == self.desc_end:
            self.state = _State.GAP
        elif coord:
            self.state = _State.COORDS
            self._take_coord(position, token_id)
        else:
            self._close(position)

    def _take_coord(self, position: int, token_id: int) -> None:
        self.coords.append(position)
        self.bins.append(self.vocab.id_to_bin(token_id))

    def _close(self, position: int) -> None:
        if len(self.coords) < _MIN_COORDS or len(self.coords) % 2:
            self._leave_out(position, Reason.ARITY, _State.OUTSIDE)
            return
        self.objects.append(ObjectLayout(tuple(self.coords), tuple(self.desc), tuple(self.bins)))
        self.state = _State.OUTSIDE

    def _stray(self, position: int, token_id: int, coord: bool) -> None:
        if coord or token_id in self.markers:
            self.opened_at = position
            reason = Reason.STRAY_COORDINATE if coord else Reason.STRAY_MARKER
            self._leave_out(position, reason, self._after(token_id))

    def _unexpected(self, position: int, token_id: int) -> None:
        self._leave_out(position, Reason.UNEXPECTED_TOKEN, self._after(token_id))

    def _after(self, token_id: int) -> _State:
        """A fault at the end marker is over with it; any other one drags on to the next start or end."""
        return _State.OUTSIDE if token_id == self.end else _State.SKIPPING

    def _leave_out(self, position: int, reason: Reason, state: _State) -> None:
        self.omissions.append(Omission(self.opened_at, position, reason))
        self.state = state
