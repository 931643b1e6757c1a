"""From the text a model wrote to objects: finds the format, hands over to its parser."""

from __future__ import annotations

import re
from typing import Literal

from coord_codec import MARKERS, CoordGrid, MarkerFamily
from coord_eval.answer import Answer
from coord_eval.building import AnswerBuilder, Scale
from coord_eval.json_parser import JsonParser
from coord_eval.loc_parser import LOC_FAMILIES, LocParser
from coord_eval.marker_parser import MarkerParser
from coord_eval.tokens import COORD, COORD_START, token_units

_DEFAULT_GRID = CoordGrid()
#: Formats by name, and what an object looks like in each.
FORMATS = {
    "obj": "<obj_start>cat, four coordinate tokens or (x1,y1),(x2,y2), <obj_end>",
    "qwen": "<|object_ref_start|>cat<|object_ref_end|><|box_start|>, coordinates as in obj, <|box_end|>",
    "json": '{"bbox_2d": [x1, y1, x2, y2], "label": "cat"}; numbers, numbers as strings or coordinate tokens',
    "paligemma": "<loc0034><loc0012><loc0078><loc0056> cat ; four of 1024 bins, y first",
    "florence2": "cat<loc_12><loc_34><loc_56><loc_78>, read at the centre of 1000 bins",
}
_THOUGHT_END = "</think>"
_JSON_HINT = re.compile(r"[{\[]")


def parse_answer(
    text: str,
    format: str | MarkerFamily = "auto",
    *,
    scale: float | Literal["pixels"] | None = None,
    image_size: tuple[float, float] | None = None,
    grid: CoordGrid = _DEFAULT_GRID,
    keep_flat: bool = False,
) -> Answer:
    """Read the objects of one answer.

    One pass, linear in the text. No text raises; what cannot be understood is in ``dropped`` with a reason.
    Everything up to a closing ``</think>`` is passed over. Exactly four valid coordinates make a box; of
    nested starts the inner one counts; repeats are kept and counted; swapped corners are repaired and marked.

    Args:
        text: The answer, special tokens included.
        format: A name of :data:`FORMATS`, a marker family of your own, or ``auto``.
        scale: What plain numbers are divided by; ``"pixels"`` for pixels of ``image_size``; None assumes the
            grid's own (1000), and the answer says so. Coordinate tokens never use it.
        image_size: ``(width, height)`` of the picture as the model saw it, for ``scale="pixels"``.
        grid: The grid of the coordinate tokens.
        keep_flat: Keep boxes without area, which are dropped otherwise: for callers that read the sides elsewhere.

    Raises:
        ValueError: For an unknown format or an impossible scale; never because of the text.
    """
    units = token_units(grid)
    family = format if isinstance(format, MarkerFamily) else None
    resolved = _resolve_scale(scale, image_size, grid)
    if family is None and format not in ("auto", *FORMATS):
        raise ValueError(f"format: expected auto, {', '.join(FORMATS)} or a MarkerFamily, found {format!r}")
    begin = text.rfind(_THOUGHT_END) + len(_THOUGHT_END) if _THOUGHT_END in text else 0
    name = family.name if family else str(format) if format != "auto" else detect_format(text, begin)
    builder = AnswerBuilder(name, resolved, keep_flat=keep_flat)
    # Ordinals count the whole text, reasoning included, as the producer's lists do.
    builder.coord_count = sum(token in units for token in COORD.findall(text, 0, begin))
    if begin == 0 and text.lstrip().startswith("<think>"):
        builder.truncated = True
        builder.drop("unclosed_thought", 0, len(text))
    elif name == "json":
        JsonParser(builder, units).parse(text, begin)
    elif name in LOC_FAMILIES:
        LocParser(builder, LOC_FAMILIES[name]).parse(text, begin)
    elif name != "none":
        family = family or MARKERS[name]
        builder.start_count = text.count(family.tokens[0], 0, begin)
        MarkerParser(builder, family, units).parse(text, begin)
    return builder.build(text[begin:])


def detect_format(text: str, begin: int = 0) -> str:
    """Return the format whose marks the text carries, ``none`` when it carries none.

    Markers and location tokens go before JSON, since descriptions may hold brackets, JSON holds no markers.
    """
    for name, family in MARKERS.items():
        if any(token in text for token in (family.tokens[0], family.tokens[-2])):
            return name
    for name, loc_family in LOC_FAMILIES.items():
        if re.search(loc_family.token, text):
            return name
    if _JSON_HINT.search(text, begin):
        return "json"
    return "obj" if COORD_START in text else "none"


def _resolve_scale(
    scale: float | str | None, image_size: tuple[float, float] | None, grid: CoordGrid
) -> Scale:
    if scale is None and image_size is None:
        return Scale(grid.scale, grid.scale, assumed=True)
    if scale is None or scale == "pixels":
        if image_size is None or not all(side > 0 for side in image_size):
            raise ValueError(
                f"image_size: expected width and height for scale='pixels', found {image_size!r}"
            )
        return Scale(float(image_size[0]), float(image_size[1]))
    if isinstance(scale, bool) or not isinstance(scale, int | float) or not 0 < scale < float("inf"):
        raise ValueError(f"scale: expected a positive number, 'pixels' or None, found {scale!r}")
    return Scale(scale, scale)
