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


def bring_card(adapters: Sequence[Adapter], companions: dict[str, Path]) -> list[str]:
    """Let the first adapter's card come along, which says how its training asked the model; the base's says how before.

    Args:
        adapters: what is merged
        companions: the files of OUT by name; the card is put in or taken out

    Returns:
        What contradicts the card: another adapter's, the image processor of OUT.

    Raises:
        InputError: a card of another format or coordinate grid.
    """
    cards = [adapter.card for adapter in adapters]
    for adapter, card in zip(adapters, cards, strict=True):
        _check(adapter.folder / CARD_FILE, card)
    first, card = adapters[0].folder, cards[0]
    if not card:
        if companions.pop(CARD_FILE, None) is None:
            return []
        return [f"{first}: no {CARD_FILE}, and the base's is left out: it does not say how the adapter was trained"]
    companions[CARD_FILE] = first / CARD_FILE
    found = [
        f"{adapter.folder / CARD_FILE}: {name} is {other[name]!r}, that of {first.name} is {card.get(name)!r}; OUT is "
        f"asked as {first.name} was"
        for adapter, other in zip(adapters[1:], cards[1:], strict=True)
        for name in _ASKED
        if name in other and other[name] != card.get(name)
    ]
    return found + _other_pixels(first / CARD_FILE, card.get("pixels"), companions)


def _check(path: Path, card: dict) -> None:
    grid, mine = card.get("grid"), CoordGrid()
    if card and card.get("format") != _FORMAT:
        raise InputError(f"{path}: format: expected {_FORMAT}, found {card.get('format')!r}; update coord-exporter")
    if grid is not None and grid != {"bins": mine.bins, "scale": mine.scale}:
        raise InputError(
            f"{path}: grid: expected {mine.bins} bins of 1/{mine.scale}, found {grid!r}; the coordinates of the merged "
            "model would be read wrongly"
        )


def _other_pixels(path: Path, trained: object, companions: dict[str, Path]) -> list[str]:
    """Compare the pixels that images were resized to in training with the image processor that comes along."""
    name = next((name for name in _PROCESSORS if name in companions), None)
    if not isinstance(trained, dict) or name is None:
        return []
    settings = read_object(companions[name])
    settings = settings.get("image_processor", settings)
    size = settings.get("size") or {}
    own = {
        "min": settings.get("min_pixels", size.get("shortest_edge")),
        "max": settings.get("max_pixels", size.get("longest_edge")),
    }
    against = [
        f"{limit}_pixels {trained[limit]} (OUT's {name} has {own[limit]})"
        for limit in own
        if trained.get(limit) is not None and own[limit] is not None and trained[limit] != own[limit]
    ]
    if not against:
        return []
    return [
        f"{path}: the adapter was trained with {' and '.join(against)}; coordexp's own commands follow it, other "
        "programs have to be told"
    ]
