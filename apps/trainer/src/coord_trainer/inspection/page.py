"""What the trainer adds to inspect.html: images with their tokens as the model receives them, lengths, ceilings."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from coord_codec.counts import counted
from coord_codec.pages import Drawn, Gallery, number, safe
from coord_codec.pages.boxes import Fate
from coord_data.inspection.page import Page, add_image, histogram, images_html
from coord_trainer.inspection.shown import ModelView, Named, ShownImage, Token

_ROLES = {
    "prompt": ("#e8ebef", "prompt, no loss"),
    "image": ("#d9d2ea", "image, no loss"),
    "structure": ("#f2b84b", "structure"),
    "description": ("#5fbf7f", "description"),
    "object": ("#6f9df0", "coordinate"),
    "unlearnt": ("#e9b5ae", "answer, no loss"),
    "beyond": ("#e0605a", "beyond training.max_length"),
}
"""Colour and name of each role; tokens with a loss are drawn paler the smaller their weight is."""
_REMARKS = {
    "Quantisation ceiling": "AP of the usable annotations as answers",
    "Ceiling of all given objects": "the same where refused objects and those beyond data.max_objects are missed",
}
"""What lowers each ceiling."""
_UNLEARNT = ("prompt", "image", "unlearnt", "beyond")
_STYLE = """
.tokens span { display: inline-block; padding: 0 3px; margin: 1px; border-radius: 3px; white-space: pre-wrap;
  font: 12px ui-monospace, Menlo, Consolas, monospace; color: #1c2430; }
"""


def model_page(shown: Sequence[ShownImage], ceilings: Mapping[str, float], view: ModelView | None) -> Page:
    """Return the parts of the page that need the configuration or, if there is a `view`, the model."""
    title = "Images as the model receives them" if view else "Images"
    return Page(
        tiles=tuple((name, number(ap), _REMARKS.get(name, "AP")) for name, ap in ceilings.items()),
        images=(title, _images(shown, view is not None)),
        sections=(("Lengths", _lengths(view)),) if view else (),
        style=_STYLE,
    )


def _images(shown: Sequence[ShownImage], tokens: bool) -> str:
    source = "token ids" if tokens else "target text"
    legend = f"<p>Dashed: annotation; solid: parsed from the {source}. Colours stand for labels.</p>"
    key = "".join(f'<span style="background:{colour}">{name}</span> ' for colour, name in _ROLES.values())
    weights = [t.weight for item in shown for t in item.tokens if t.weight]
    largest = max(weights, default=1.0)
    explanation = (
        f"darker tokens have larger loss weights, here {min(weights, default=0):.3g} to {largest:.3g}; "
        "the tooltip of each token states its loss terms and weight"
    )
    legend += f'<p class="tokens">{key}; {explanation}</p>' if tokens else ""
    named = (desc for item in shown for desc, _ in (*item.truth, *item.decoded))
    images = Gallery(dict.fromkeys(named), len(shown))
    for item in shown:
        deviation = "an object is missing" if item.off_by is None else f"at most {item.off_by:.2f} px apart"
        origin = "augmented as in the first epoch," if item.augmented else "file"
        (w, h), (width, height) = item.image.size, item.size
        caption = f"{item.name}: {w} x {h} shown, {origin} {width} x {height}; {deviation}"
        answer = _tokens(item.tokens, largest) if item.tokens else f"<pre>{safe(item.text)}</pre>"
        objects = counted(len(item.truth), "object")
        details = f"<details><summary>{objects}: prompt and answer</summary>{answer}</details>"
        fates: tuple[tuple[Sequence[Named], Fate], ...] = (item.truth, "truth"), (item.decoded, "plain")
        drawn = [
            Drawn(desc, box, fate, slot=images.slots[desc], named=fate == "plain")
            for boxes, fate in fates
            for desc, box in boxes
        ]
        add_image(images, item.name, item.image, drawn, caption, details)
    return legend + images_html(images)


def _tokens(tokens: Sequence[Token], largest: float) -> str:
    spans = (
        f'<span style="background:{_colour(t, largest)}" title="{safe(_about(t))}">{safe(t.text)}</span>'
        for t in tokens
    )
    return f'<div class="tokens">{"".join(spans)}</div>'


def _about(token: Token) -> str:
    """Return what the tooltip of a token says: its role, its loss terms and their weight."""
    return f"{token.role}, {', '.join(token.terms) or 'not supervised'}, weight {token.weight:.3g}"


def _colour(token: Token, largest: float) -> str:
    """Return the colour of the token's role; its opacity grows from a quarter to 1 with the weight of the token."""
    colour = _ROLES[token.role.split()[0]][0]
    if not token.weight:
        return colour if token.role in _UNLEARNT else f"{colour}26"
    return f"{colour}{round(255 * (0.25 + 0.75 * token.weight / largest)):02x}"


def _lengths(view: ModelView) -> str:
    too_long = sum(length > view.limit for length in view.lengths)
    low, high = min(view.lengths, default=0), max(view.lengths, default=0)
    summary = (
        f"<p>{counted(len(view.lengths), 'sample')} of {low} to {high} tokens; "
        f"training.max_length is {view.limit}: {too_long} are longer and would be truncated or refused.</p>"
    )
    return summary + histogram("Tokens per sample", view.lengths, "tokens")
