"""A gallery of images that a reader can filter, sort, enlarge and walk through with the keyboard."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from coord_codec.pages.elements import safe


@dataclass(frozen=True)
class Card:
    """One image of a gallery.

    Attributes:
        html: the image, for example of `image_svg`
        caption: plain text below it
        details: HTML that folds below the caption
        objects: fate, index of the label and size (`small`, `medium`, `large` or empty) of each object
        values: the values to sort by, in the order of the gallery's `sorts`
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


def gallery(
    cards: Sequence[Card],
    *,
    labels: Sequence[str] = (),
    kinds: Mapping[str, str] | None = None,
    sorts: Sequence[tuple[str, bool]] = (),
) -> str:
    """Return the gallery; without JavaScript it shows all images in the order given.

    Args:
        cards: the images
        labels: names of the labels that `Card.objects` refers to
        kinds: names of the fates to filter by
        sorts: name of each order, and whether it begins with the largest value
    """
    if not cards:
        return "<p>No image can be shown.</p>"
    used = {label for card in cards for _, label, _ in card.objects}
    by_label = [(str(k), name) for k, name in enumerate(labels) if k in used]
    sizes = sorted({size for card in cards for *_, size in card.objects if size})
    compares = any('class="truth' in card.html for card in cards)
    tools = [
        '<input type="search" name="text" aria-label="search names, labels and answers" placeholder="search ( / )">',
        _select("label", "all labels", sorted(by_label, key=lambda item: item[1].casefold())),
        _select("kind", "all images", list((kinds or {}).items())),
        _select("size", "all sizes", [(size, size) for size in sizes]),
        _select("sort", "", [(f"{k}{'-' if down else '+'}", name) for k, (name, down) in enumerate(sorts)]),
        '<label><input type="checkbox" name="truth" checked> ground truth</label>' if compares else "",
        '<label><input type="checkbox" name="names" checked> labels</label>',
        '<output aria-live="polite"></output><button type="reset">reset</button>',
    ]
    return (
        f'<form class="tools" hidden>{"".join(tools)}</form><div class="images">{"".join(map(_figure, cards))}</div>'
        '<p class="hint" hidden>Arrow keys move from image to image, Enter enlarges one, / searches.</p>'
    )


def _figure(card: Card) -> str:
    tokens = " ".join(dict.fromkeys(f"{kind}.{label}.{size}" for kind, label, size in card.objects))
    values = " ".join(f"{value:.4g}" for value in card.values)
    link = f' <a href="{safe(card.link)}">file</a>' if card.link else ""
    return (
        f'<figure class="shot" tabindex="0" data-objects="{safe(tokens)}" data-values="{values}" '
        f'data-search="{safe(card.search)}">{card.html}<figcaption>{safe(card.caption)}{link}</figcaption>'
        f"{card.details}</figure>"
    )


def _select(name: str, everything: str, options: Iterable[tuple[str, str]]) -> str:
    """Return a menu; empty if there is nothing to choose."""
    items = [("", everything)] * bool(everything) + list(options)
    if len(items) < 2:
        return ""
    listed = "".join(f'<option value="{safe(value)}">{safe(text)}</option>' for value, text in items)
    return f'<select name="{name}" aria-label="{name}">{listed}</select>'
