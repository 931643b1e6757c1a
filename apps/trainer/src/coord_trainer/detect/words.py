"""Which words of `predict` are the model, the images and settings; imports nothing slow."""

import re
from collections.abc import Sequence
from pathlib import Path

from coord_codec import InputError
from coord_trainer.model.locate import locate_model

_ACTING = (
    r"data\.(prompt|markers|style|order|max_objects|noise_objects|min_pixels|max_pixels|geometry|max_vertices)"
    r"|model\.(dtype|attention)|training\.system"
    r"|evaluation\.(limit|batch_size|max_new_tokens|readings)|custom\.coord_(tokens|offset)\..+"
)


def check_settings(settings: Sequence[str]) -> None:
    """Refuse settings that exist and would change nothing, since images and model are named by themselves.

    Raises:
        InputError: the first such setting.
    """
    for word in settings:
        name = word.partition("=")[0]
        if not re.fullmatch(_ACTING, name):
            raise InputError(
                f"{name}: it has no effect on how images are answered; what has is data.prompt, data.max_objects, "
                "data.max_pixels, evaluation.limit, evaluation.batch_size, evaluation.max_new_tokens, "
                "evaluation.readings, model.dtype and model.attention, and what the checkpoint says of itself"
            )


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
