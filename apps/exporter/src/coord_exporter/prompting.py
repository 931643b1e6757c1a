"""Brings coordexp.json to OUT: how the model was asked in training."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from coord_codec import CoordGrid
from coord_codec.files import InputError
from coord_exporter.adapter import Adapter
from coord_exporter.checkpoint.read import CARD_FILE, read_object

_FORMAT = 1
_PROCESSORS = ("processor_config.json", "preprocessor_config.json")


def bring_card(adapter: Adapter, companions: dict[str, Path]) -> tuple[list[str], dict[str, dict[str, Any]]]:
    """Copy the adapter's card to OUT, instead of the base's, which predates the adapter's training.

    Image processors of OUT get the pixel limits of training, so that images are resized as in training.
    `companions` are the files of OUT by name, to which the card is added or from which it is removed.

    Returns:
        Notes on changes, and the contents of the changed image processors by file name.

    Raises:
        InputError: for a card of another format or coordinate grid
    """
    folder, card = adapter.folder, adapter.card
    _check(folder / CARD_FILE, card)
    if card:
        companions[CARD_FILE] = folder / CARD_FILE
        return _with_pixels(card.get("pixels"), companions)
    if companions.pop(CARD_FILE, None) is None:
        return [], {}
    return [f"{folder}: no {CARD_FILE}; the base's is left out, it does not describe the adapter's training"], {}


def _check(path: Path, card: dict[str, Any]) -> None:
    grid, supported = card.get("grid"), CoordGrid()
    if card and card.get("format") != _FORMAT:
        raise InputError(f"{path}: format: expected {_FORMAT}, found {card.get('format')!r}; update coord-exporter")
    if grid is not None and grid != {"bins": supported.bins, "scale": supported.scale}:
        raise InputError(
            f"{path}: grid: expected {supported.bins} bins of 1/{supported.scale}, found {grid!r}; the coordinates of "
            "the merged model would be misinterpreted"
        )


def _with_pixels(trained: Any, companions: dict[str, Path]) -> tuple[list[str], dict[str, dict[str, Any]]]:
    """Return a note about each image processor with other pixel limits than training, and its corrected content."""
    notes: list[str] = []
    rewritten: dict[str, dict[str, Any]] = {}
    for name in _PROCESSORS if isinstance(trained, dict) else ():
        if name not in companions:
            continue
        content = read_object(companions[name])
        settings = content.get("image_processor", content)
        if not isinstance(settings, dict):
            raise InputError(f"{companions[name]}: image_processor: expected an object, found {settings!r:.80}")
        changes = []
        for limit, edge in (("min", "shortest_edge"), ("max", "longest_edge")):
            wanted, size = trained.get(limit), settings.get("size")
            entries = [(settings, f"{limit}_pixels"), *([(size, edge)] if isinstance(size, dict) else [])]
            for section, key in entries:
                if wanted is not None and section.get(key) not in (None, wanted):
                    changes.append(f"{key} {wanted} (the base's is {section[key]})")
                    section[key] = wanted
        if changes:
            rewritten[name] = content
            notes.append(f"OUT's {name} has {' and '.join(changes)}, as in the adapter's training")
    return notes, rewritten
