"""`Results`: the results of several images, which are answered while they are read."""

from __future__ import annotations

import html
import os
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from PIL import Image

from coord_codec import InputError
from coord_detect.answers.guesses import OF_RESULT, NamesTheCall
from coord_detect.answers.objects import ImageDetections, needed

if TYPE_CHECKING:
    import pandas

_SHOWN = 6
"""Most images that a notebook shows."""


class Results(NamesTheCall, Sequence[ImageDetections]):
    """The results of several images, in their order.

    Images are answered when their results are first read, a batch at a time; results that were read are kept.

    Example:
        >>> cats = ImageDetections((), (40, 20), "", "stop", name="a.jpg")
        >>> results = Results(2, iter([cats, cats]))
        >>> len(results), results[1].name, [found.name for found in results]
        (2, 'a.jpg', ['a.jpg', 'a.jpg'])
    """

    CALLS: ClassVar[Mapping[str, str]] = {
        name: f"that of one result, such as results[0]: {call}" for name, call in OF_RESULT.items()
    }

    def __init__(self, count: int, answered: Iterator[ImageDetections]) -> None:
        self._count, self._answered = count, answered
        self._read: list[ImageDetections] = []

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and hasattr(ImageDetections, name):
            raise AttributeError(f"Results has no attribute {name!r}; each result has: results[0].{name}", obj=self)
        return super().__getattr__(name)

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: Any) -> Any:
        place = range(self._count)[index]
        last = place if isinstance(place, int) else max(place, default=-1)
        self._read += islice(self._answered, max(last + 1 - len(self._read), 0))
        if len(self._read) == self._count:
            next(self._answered, None)  # what is said at the end
        return self._read[index] if isinstance(place, int) else [self._read[i] for i in place]

    def __repr__(self) -> str:
        return f"<Results: {self._count} images, {len(self._read)} answered yet>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the first images with their boxes."""
        shown = [found for found in self[:_SHOWN] if not found.error]
        figures = [
            f"<figure style='display:inline-block;margin:4px'><img src='{found.data_url()}' width=260>"
            f"<figcaption>{html.escape(found.name)}: {len(found)}</figcaption></figure>"
            for found in shown
        ]
        return f"{''.join(figures)}<p>{len(figures)} of {self._count} images</p>"

    def save(self, folder: str | Path) -> list[Path]:
        """Write each image with its boxes and its objects as JSON into a folder; returns the paths of the images.

        Images without an answer have no file.
        """
        if len(self) > 1 and Path(folder).suffix.lower() in Image.registered_extensions() and not Path(folder).is_dir():
            raise InputError(f"{folder}: expected a folder for {len(self)} images, found the name of one file")
        return [found.save(folder) for found in self if not found.error]

    def to_coco(self, categories: dict[str, int] | None = None) -> list[dict[str, Any]]:
        """Return a COCO results list, whose image ids count the images from 1; `file_name` names them.

        Names are relative to the folder that all images have in common, as in the files of `predict`.
        """
        rows = [row for number, found in enumerate(self, start=1) for row in found.to_coco(number, categories)]
        folders = {Path(found.name).parent for found in self if Path(found.name).is_absolute()}
        common = Path(os.path.commonpath(folders)) if folders else None
        for row in rows:
            if common is not None and Path(row["file_name"]).is_absolute():
                row["file_name"] = Path(row["file_name"]).relative_to(common).as_posix()
        return rows

    def to_pandas(self) -> pandas.DataFrame:
        """Return a table with a row for each object of all images; see `ImageDetections.to_pandas`."""
        return needed("pandas").concat([found.to_pandas() for found in self], ignore_index=True)
