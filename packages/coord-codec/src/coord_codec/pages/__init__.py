"""The parts of every page: text, tables, images with boxes, a gallery, and the frame with its style and script."""

from coord_codec.pages.boxes import Drawn, fate_legend, image_svg, label_key
from coord_codec.pages.elements import (
    Strong,
    columns,
    figure,
    number,
    outline_svg,
    printable,
    safe,
    scrolled,
    section,
    table,
    tiles,
)
from coord_codec.pages.frame import fragment, notes, page, page_style
from coord_codec.pages.gallery import Card, Gallery
from coord_codec.pages.palette import PALETTE, label_slots
from coord_codec.pages.spans import coloured_text

__all__ = [
    "PALETTE",
    "Card",
    "Drawn",
    "Gallery",
    "Strong",
    "coloured_text",
    "columns",
    "fate_legend",
    "figure",
    "fragment",
    "image_svg",
    "label_key",
    "label_slots",
    "notes",
    "number",
    "outline_svg",
    "page",
    "page_style",
    "printable",
    "safe",
    "scrolled",
    "section",
    "table",
    "tiles",
]
