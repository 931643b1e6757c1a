"""The images of a page, which a reader can filter, sort, enlarge and walk through with the keyboard.

Pillow (`pip install pillow`) and NumPy are imported with the first image.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from coord_codec.pages.boxes import MAX_SIDE
from coord_codec.pages.elements import safe
from coord_codec.pages.palette import label_slots

if TYPE_CHECKING:
    from PIL import Image

    from coord_codec.images import ImageSource

    Reader = Callable[[tuple[int, int]], Image.Image]

BUDGET = 20_000_000
"""Characters of the images of one page, so that a page stays below 25 MB; images beyond it are left out."""
_SHARPNESS = ((24, 1.5), (100, 1.0), (500, 0.75))
"""Most images of a page that have so many pixels per unit of their drawing."""
_LEAST_SHARPNESS = 0.4
_PROBLEMS = 5
"""Most problems that are listed."""
_SEARCH = '<input type="search" name="text" aria-label="search names, labels and answers" placeholder="search ( / )">'
_HINT = '<p class="hint" hidden>Arrow keys move from image to image, Enter enlarges one, / searches.</p>'


@dataclass(frozen=True)
class Card:
    """One image of a gallery.

    Attributes:
        html: the image, for example of `image_svg`
        caption: plain text below it
        details: HTML that folds below the caption
        objects: fate, index of the label and size (`small`, `medium`, `large` or empty) of each object
        values: the values to sort by, in the order of the `sorts` of `Gallery.html`
        search: text that the search looks in, besides the caption
        link: address of the image file, relative to the page; empty for none
    """

    html: str
    caption: str
    details: str = ""
    objects: Sequence[tuple[str, int, str]] = ()
    values: Sequence[float] = ()
    search: str = ""
    link: str = ""


class Gallery:
    """Collects the images of a page: decoded and scaled alike, within a budget, each problem told once.

    Args:
        labels: the labels of the page, each of which has one colour in all images
        expected: how many images the page is to show: the more, the fewer pixels each has
        budget: most characters of all images

    Attributes:
        slots: place of the colour of each label, see `label_slots`
        cards: what `html` shows
        sharpness: pixels of an image per unit of its drawing
        scores: lowest score, the threshold at which boxes are drawn at first, and highest score, if they are drawn by
            their score: then a slider sets the threshold

    Example:
        >>> from PIL import Image
        >>> images = Gallery(["cat"])
        >>> images.embed(Image.new("RGB", (64, 48)))[:15]
        'data:image/jpeg'
        >>> images.read("a.png", "a.png"), images.notes
        (None, ['a.png: the file does not exist'])
    """

    def __init__(self, labels: Iterable[str] = (), expected: int = 1, budget: int = BUDGET) -> None:
        self.labels = tuple(labels)
        self.slots = label_slots(self.labels)
        self.cards: list[Card] = []
        self.scores: tuple[float, float, float] | None = None
        self.sharpness = next((value for most, value in _SHARPNESS if expected <= most), _LEAST_SHARPNESS)
        self._left = budget
        self._problems: dict[str, list[str]] = {}

    @property
    def is_full(self) -> bool:
        """Whether the images that were added leave no room for another."""
        return self._left < 0

    def read(self, name: str, source: ImageSource | Reader, side: float = MAX_SIDE) -> Image.Image | None:
        """Return an image; None if there is no room for it, or it cannot be read, which `notes` then says.

        Args:
            name: what the image is called in `notes`
            source: path or content of the file; or a function that returns the image, which may be reduced to a width
                and height, and that raises `ImageError`
            side: longer side of its drawing, in units of the SVG
        """
        from coord_codec.images import ImageError, decode_image

        if self.is_full:
            return None
        most = round(side * self.sharpness)
        try:
            return source((most, most)) if callable(source) else decode_image(source, at_most=(most, most))
        except ImageError as error:
            self._problems.setdefault(str(error), []).append(name)
            return None

    def embed(self, image: Image.Image, side: float = MAX_SIDE) -> str:
        """Return an image as a data URL, reduced to the pixels of a drawing with this longer side."""
        from coord_codec.images import data_url

        scale = side * self.sharpness / max(image.size)
        if scale < 1:
            width, height = (max(round(length * scale), 1) for length in image.size)
            image = image.resize((width, height), reducing_gap=2)
        return data_url(image)

    def add(self, card: Card) -> None:
        """Add an image to those that `html` shows."""
        self.cards.append(card)
        self._left -= len(card.html) + len(card.details)

    @property
    def notes(self) -> list[str]:
        """The reasons why images are missing, each once with the number of its images and the first of them."""
        return [
            f"{names[0]}: {problem}" if len(names) == 1 else f"{len(names)} images, the first {names[0]}: {problem}"
            for problem, names in list(self._problems.items())[:_PROBLEMS]
        ]

    def tokens(self, labels: Iterable[str]) -> list[tuple[str, int, str]]:
        """Return the `Card.objects` of an image whose boxes have these labels and no fate."""
        return [("", self.labels.index(label), "") for label in dict.fromkeys(labels)]

    def html(self, *, kinds: Mapping[str, str] | None = None, sorts: Sequence[tuple[str, bool]] = ()) -> str:
        """Return the cards with their tools; without JavaScript it shows all images in the order given.

        They can be filtered by fates, whose names are `kinds`, and sorted: each of `sorts` is the name of an order,
        and whether it begins with the largest value.
        """
        cards = self.cards
        if not cards:
            return "<p>No image can be shown.</p>" if self._problems else "<p>There is no image to show.</p>"
        used = {label for card in cards for _, label, _ in card.objects}
        by_label = [(str(k), name) for k, name in enumerate(self.labels) if k in used]
        sizes = sorted({size for card in cards for *_, size in card.objects if size})
        compares = any('class="truth' in card.html for card in cards)
        tools = [
            _SEARCH,
            _select("label", "all labels", sorted(by_label, key=lambda item: item[1].casefold())),
            _select("kind", "all images", list((kinds or {}).items())),
            _select("size", "all sizes", [(size, size) for size in sizes]),
            _select("sort", "", [(f"{k}{'-' if down else '+'}", name) for k, (name, down) in enumerate(sorts)]),
            '<label><input type="checkbox" name="truth" checked> ground truth</label>' if compares else "",
            '<label><input type="checkbox" name="names" checked> labels</label>',
            _slider(*self.scores) if self.scores else "",
            '<output aria-live="polite"></output><button type="reset">reset</button>',
        ]
        figures = "".join(map(_figure, cards))
        return f'<form class="tools" hidden>{"".join(tools)}</form><div class="images">{figures}</div>{_HINT}'


def _figure(card: Card) -> str:
    tokens = " ".join(dict.fromkeys(f"{kind}.{label}.{size}" for kind, label, size in card.objects))
    values = " ".join(f"{value:.4g}" for value in card.values)
    link = f' <a href="{safe(card.link)}">file</a>' if card.link else ""
    return (
        f'<figure class="shot" tabindex="0" data-objects="{safe(tokens)}" data-values="{values}" '
        f'data-search="{safe(card.search)}">{card.html}<figcaption>{safe(card.caption)}{link}</figcaption>'
        f"{card.details}</figure>"
    )


def _slider(low: float, value: float, high: float) -> str:
    """Return the range of thresholds of the score, with the one at which boxes are drawn at first."""
    bounds = f'min="{low:.6g}" max="{high:.6g}" value="{value:.6g}"'
    return f'<label>score from <b>{value:.3g}</b> <input type="range" name="threshold" step="any" {bounds}></label>'


def _select(name: str, everything: str, options: Iterable[tuple[str, str]]) -> str:
    """Return a menu; empty if there is nothing to choose."""
    items = [("", everything)] * bool(everything) + list(options)
    if len(items) < 2:
        return ""
    listed = "".join(f'<option value="{safe(value)}">{safe(text)}</option>' for value, text in items)
    return f'<select name="{name}" aria-label="{name}">{listed}</select>'
