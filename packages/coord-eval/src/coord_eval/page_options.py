"""What a caller may give a page: where the images are, and sections of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

ImageRoot = Path | Callable[[str], "Path | None"]
"""The folder of the images, or a function from the name of an image to its file, None for one that must not be read."""
MAX_OVERLAYS = 200
"""Most images of a report, unless the caller says otherwise."""
MOST_SHOWN = 300
"""Most suspicions of a review's page, unless the caller says otherwise."""


@dataclass(frozen=True)
class ReportSection:
    """A section that a caller adds to the report.

    Attributes:
        title: heading, plain text
        html: content, inserted unescaped: the caller must escape it and embed all resources
    """

    title: str
    html: str
