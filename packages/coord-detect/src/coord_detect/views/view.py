"""A view: a way to show an image to a model, or to ask about it, beside the image itself."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from itertools import product
from typing import TYPE_CHECKING, ClassVar

from coord_codec.geometry.base import Affine, Box

if TYPE_CHECKING:
    from PIL import Image

    from coord_eval import ScoredObject

WHOLE: Box = (0.0, 0.0, 1.0, 1.0)


@dataclass(frozen=True)
class Question:
    """What a model is asked about an image, and the largest image that it is shown.

    Attributes:
        prompt: the user's message
        class_prompt: the user's message about some classes; {classes} is replaced by their names
        labels: the known labels, sorted; empty if none are given
        geometry: name of the geometry of the answers
        max_pixels: images with more pixels are reduced before the model sees them; None if that is not known
    """

    prompt: str
    class_prompt: str = "{classes}"
    labels: tuple[str, ...] = ()
    geometry: str = "box"
    max_pixels: int | None = None


@dataclass(frozen=True)
class Look:
    """One image that the model is asked about; the image itself if nothing is given.

    Attributes:
        crop: left, top, right and bottom in pixels of the part that is shown; None for all of it
        mirrored: whether that part is mirrored left to right
        size: width and height in pixels to which it is then resized; None if it is not
        turns: number of clockwise quarter turns that follow
        prompt: the user's message, None for that of the question
        pixels: factor of the model's limits on the size of an image, so that an enlarged image is not reduced again
    """

    crop: tuple[int, int, int, int] | None = None
    mirrored: bool = False
    size: tuple[int, int] | None = None
    turns: int = 0
    prompt: str | None = None
    pixels: float = 1.0

    def show(self, image: Image.Image) -> Image.Image:
        """Return the image that the model sees."""
        from PIL import Image as Pillow

        if self.crop is not None:
            image = image.crop(self.crop)
        if self.mirrored:
            image = image.transpose(Pillow.Transpose.FLIP_LEFT_RIGHT)
        if self.size is not None:
            image = image.resize(self.size, Pillow.Resampling.BICUBIC)
        for _ in range(self.turns % 4):
            image = image.transpose(Pillow.Transpose.ROTATE_270)
        return image

    def region(self, width: int, height: int) -> Box:
        """Return the part of the image that is shown: x1, y1, x2, y2 in [0, 1] of an image of this size."""
        if self.crop is None:
            return WHOLE
        left, top, right, bottom = self.crop
        return left / width, top / height, right / width, bottom / height

    def back(self, width: int, height: int) -> Affine:
        """Return the change that moves a point of the answer, in [0, 1] of what is shown, to that of the image."""
        x1, y1, x2, y2 = self.region(width, height)
        change = Affine(xx=x2 - x1, yy=y2 - y1, x0=x1, y0=y1)
        if self.mirrored:
            change = Affine(xx=x1 - x2, yy=change.yy, x0=x2, y0=y1)
        for _ in range(self.turns % 4):  # before that a quarter turn back: x, y was at y, 1 - x
            change = Affine(
                xx=-change.xy,
                xy=change.xx,
                yx=-change.yy,
                yy=change.yx,
                x0=change.x0 + change.xy,
                y0=change.y0 + change.yy,
            )
        return change


class View(ABC):
    """A row of the table of views, which `register_view` extends.

    Attributes:
        name: the word that names it in `evaluation.views` and `--views`
        about: what is shown, for documentation and messages
        example: a word with an argument, for documentation and tests
    """

    name: ClassVar[str]
    about: ClassVar[str]
    example: ClassVar[str]

    @classmethod
    @abstractmethod
    def parse(cls, argument: str | None) -> View:
        """Return the view of a word `name` (the argument is None) or `name:argument`.

        Raises:
            ValueError: for an argument that it does not take; the message says what was expected
        """

    @abstractmethod
    def looks(self, width: int, height: int, question: Question) -> list[Look]:
        """Return what is shown of an image of this size; nothing if the image itself shows as much."""

    def objection(self, question: Question) -> str | None:
        """Return why the view does not suit a question; None if it does."""
        return None

    def keeps(self, label: str) -> bool:
        """Return whether an object with this label, found in the view, has the same label in the image."""
        return True


def no_argument(view: type[View], argument: str | None) -> None:
    """Raise `ValueError` if there is an argument, for a view that takes none."""
    if argument is not None:
        raise ValueError(f"expected {view.name} without an argument, found {view.name}:{argument}")


def in_image(item: ScoredObject, back: Affine) -> ScoredObject:
    """Return an object of a view where it is in the image.

    Args:
        item: the object, in [0, 1] of what was shown
        back: see `Look.back`

    Example:
        >>> from coord_eval import ScoredObject
        >>> found = ScoredObject("cat", (0.0, 0.25, 0.5, 1.0), (0, 250, 500, 1000), (0, 40), score=0.9)
        >>> in_image(found, Look(mirrored=True).back(8, 8)).box
        (0.5, 0.25, 1.0, 1.0)
    """
    corners = [back(x, y) for x, y in product(item.box[::2], item.box[1::2])]
    xs, ys = ([min(max(v, 0.0), 1.0) for v in values] for values in zip(*corners, strict=True))
    return item._replace(box=(min(xs), min(ys), max(xs), max(ys)), scale=None)
