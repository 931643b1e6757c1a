"""Parses objects from location tokens: PaliGemma's `<loc0123>` and Florence-2's `<loc_123>`.

Both grids belong to their models and stand here with their sources; the grid of coord_codec plays no part.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass

from coord_eval.parse.answer import AnswerBuilder, Geometry

# PaliGemma (Beyer et al. 2024): tokens <loc0000> to <loc1023>, y before x, coordinate k/1024 (big_vision).
_PALIGEMMA_BINS = 1024
# Florence-2 (Xiao et al. 2023): tokens <loc_0> to <loc_999>; its processor decodes a bin as its centre, (k + .5)/1000.
_FLORENCE_BINS = 1000


@dataclass(frozen=True)
class LocFamily:
    """The conventions of one model for location tokens.

    Attributes:
        name: format name
        token: pattern of one token, its number in group 1
        bins: number of tokens of the grid
        unit: maps a bin to its coordinate in [0, 1]
        y_first: whether y stands before x
        label_first: whether the description stands before the coordinates; then several boxes may follow it
    """

    name: str
    token: str
    bins: int
    unit: Callable[[int], float]
    y_first: bool
    label_first: bool


PALIGEMMA = LocFamily("paligemma", r"<loc([0-9]{4})>", _PALIGEMMA_BINS, lambda k: k / _PALIGEMMA_BINS, True, False)
FLORENCE = LocFamily(
    "florence2", r"<loc_([0-9]{1,4})>", _FLORENCE_BINS, lambda k: (k + 0.5) / _FLORENCE_BINS, False, True
)
LOC_FAMILIES = {family.name: family for family in (PALIGEMMA, FLORENCE)}
_SPECIALS = re.compile(r"</?s>|<pad>|<eos>|<bos>|<seg[0-9]{3}>|</?poly>|</?od>|<sep>")


@dataclass
class _Run:
    """Location tokens that follow each other directly."""

    start: int
    end: int
    numbers: list[int]
    polygon: bool


class LocParser:
    """Parser of one text; `parse` adds to the builder."""

    def __init__(self, builder: AnswerBuilder, family: LocFamily) -> None:
        self.builder = builder
        self.family = family
        self.number = re.compile(family.token)
        bare = family.token.replace("(", "(?:")
        # A separator ends a PaliGemma label; the marks around polygons belong to Florence-2.
        self.lexer = re.compile(rf"(?P<run>(?:{bare})+)|(?P<poly><poly>)|(?P<end></poly>|;)")

    def parse(self, text: str, begin: int) -> None:
        """Parse `text` from character `begin` on."""
        self.text_end = len(text.rstrip())
        run: _Run | None = None
        label_from, in_polygon = begin, False
        for match in self.lexer.finditer(text, begin):
            if match.lastgroup == "run":
                if not self.family.label_first and run is not None:
                    self._add(text, run, run.end, match.start())
                numbers = [int(n) for n in self.number.findall(match.group())]
                run = _Run(match.start(), match.end(), numbers, in_polygon)
                if self.family.label_first:
                    self._add(text, run, label_from, match.start())
                    label_from, run = match.end(), None
            elif match.lastgroup == "poly":
                in_polygon = True
            elif match.group() == ";":
                if run is not None:
                    self._add(text, run, run.end, match.start())
                    run = None
            else:
                in_polygon = False
        if run is not None:
            self._add(text, run, run.end, len(text))

    def _add(self, text: str, run: _Run, label_start: int, label_end: int) -> None:
        builder, family = self.builder, self.family
        desc = _SPECIALS.sub("", text[label_start:label_end]).strip()
        span = (min(run.start, label_start), max(run.end, label_end))
        first, start_index = builder.coord_count, builder.start_count
        builder.coord_count += len(run.numbers)
        builder.start_count += 1
        at_end = run.end >= self.text_end
        geometry: Geometry = "polygon" if run.polygon else "box"
        groups = [run.numbers]
        if not run.polygon and family.label_first and run.numbers and len(run.numbers) % 4 == 0:
            groups = [run.numbers[i : i + 4] for i in range(0, len(run.numbers), 4)]
        if any(n >= family.bins for n in run.numbers):
            builder.drop("invalid_coordinate", *span)
            return
        if at_end and len(run.numbers) < 4:
            builder.truncated = True
            builder.drop("truncated", *span)
            return
        for i, group in enumerate(groups):
            unit = [family.unit(n) for n in group]
            if family.y_first and len(unit) % 2 == 0:
                unit[::2], unit[1::2] = unit[1::2], unit[::2]
            builder.add_shape(
                desc,
                group,
                unit,
                span,
                geometry=geometry,
                first_coord_index=first + 4 * i,
                start_index=start_index,
                # A PaliGemma label follows its box: where none follows, the answer was cut off.
                partial=not family.label_first and at_end,
            )
        builder.truncated |= not family.label_first and at_end
