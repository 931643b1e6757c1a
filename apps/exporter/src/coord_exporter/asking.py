"""coordexp.json, how a checkpoint is asked: the adapters' cards go in, that of OUT and what contradicts it come out."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from coord_codec import CoordGrid
from coord_codec.files import InputError
from coord_exporter.adapter import Adapter
from coord_exporter.checkpoint.read import CARD_FILE, read_object

_FORMAT = 1
_ASKED = ("prompt", "system", "markers", "style", "form", "order", "pixels")
_PROCESSORS = ("processor_config.json", "preprocessor_config.json")


def bring_card(adapters: Sequence[Adapter], companions: dict[str, Path]) -> tuple[list[str], dict[str, dict]]:
    """Let the first adapter's card come along, which says how its training asked the model; the base's says how before.

    Image processors of OUT get the pixel limits of training, so that whoever serves OUT resizes as training did.

    Args:
        adapters: what is merged
        companions: the files of OUT by name; the card is put in or taken out

    Returns:
        What contradicts the card, and the image processors that come along changed, by file name.

    Raises:
        InputError: a card of another format or coordinate grid.
    """
    cards = [adapter.card for adapter in adapters]
    for adapter, card in zip(adapters, cards, strict=True):
        _check(adapter.folder / CARD_FILE, card)
    first, card = adapters[0].folder, cards[0]
    if not card:
        if companions.pop(CARD_FILE, None) is None:
            return [], {}
        return [f"{first}: no {CARD_FILE}, and the base's is left out: it does not say how the adapter was trained"], {}
    companions[CARD_FILE] = first / CARD_FILE
    found = [
        f"{adapter.folder / CARD_FILE}: {name} is {other[name]!r}, that of {first.name} is {card.get(name)!r}; OUT is "
        f"asked as {first.name} was"
        for adapter, other in zip(adapters[1:], cards[1:], strict=True)
        for name in _ASKED
        if name in other and other[name] != card.get(name)
    ]
    changed, rewritten = _with_pixels(card.get("pixels"), companions)
    return found + changed, rewritten


def _check(path: Path, card: dict) -> None:
    grid, mine = card.get("grid"), CoordGrid()
    if card and card.get("format") != _FORMAT:
        raise InputError(f"{path}: format: expected {_FORMAT}, found {card.get('format')!r}; update coord-exporter")
    if grid is not None and grid != {"bins": mine.bins, "scale": mine.scale}:
        raise InputError(
            f"{path}: grid: expected {mine.bins} bins of 1/{mine.scale}, found {grid!r}; the coordinates of the merged "
            "model would be read wrongly"
        )


def _with_pixels(trained: object, companions: dict[str, Path]) -> tuple[list[str], dict[str, dict]]:
    """Return the image processors that resize otherwise than training did, with its limits, and a line about each."""
    told: list[str] = []
    rewritten: dict[str, dict] = {}
    for name in _PROCESSORS if isinstance(trained, dict) else ():
        if name not in companions:
            continue
        whole = read_object(companions[name])
        settings = whole.get("image_processor", whole)
        changes = []
        for limit, edge in (("min", "shortest_edge"), ("max", "longest_edge")):
            wanted, size = trained.get(limit), settings.get("size")
            places = [(settings, f"{limit}_pixels"), *([(size, edge)] if isinstance(size, dict) else [])]
            for section, key in places:
                if wanted is not None and section.get(key) not in (None, wanted):
                    changes.append(f"{key} {wanted} (the base's is {section[key]})")
                    section[key] = wanted
        if changes:
            rewritten[name] = whole
            told.append(f"OUT's {name} has {' and '.join(changes)}, as the adapter was trained")
    return told, rewritten
