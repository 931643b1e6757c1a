"""Which words of `predict` are the model, the images and settings; imports nothing slow."""

from collections.abc import Sequence
from pathlib import Path

from coord_codec import InputError
from coord_trainer.model.locate import locate_model


def split_words(words: Sequence[str], endpoint: bool) -> tuple[Path | None, tuple[str, ...], list[str]]:
    """Return model, sources and settings among the words of the command line.

    With an endpoint the first word is a model only where it is a folder with one; else all are sources.
    """
    settings = [word for word in words if "=" in word and not Path(word).exists()]
    places = [word for word in words if word not in settings]
    if endpoint and not (places and _is_model(Path(places[0]))):
        return None, tuple(places), settings
    return (Path(places[0]) if places else None), tuple(places[1:]), settings


def _is_model(folder: Path) -> bool:
    try:
        locate_model(folder)
    except InputError:
        return False
    return True
