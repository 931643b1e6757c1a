"""Which words of `predict` are the model, the images and settings; imports nothing slow."""

from collections.abc import Sequence
from pathlib import Path

from coord_trainer.model.card import CARD_FILE


def split_words(words: Sequence[str], endpoint: bool) -> tuple[Path | None, tuple[str, ...], list[str]]:
    """Return model, sources and settings among the words of the command line.

    With an endpoint the first word is a model only where it is a folder with a card; else all are sources.
    """
    settings = [word for word in words if "=" in word and not Path(word).exists()]
    places = [word for word in words if word not in settings]
    if endpoint and not (places and (Path(places[0]) / CARD_FILE).is_file()):
        return None, tuple(places), settings
    return (Path(places[0]) if places else None), tuple(places[1:]), settings
