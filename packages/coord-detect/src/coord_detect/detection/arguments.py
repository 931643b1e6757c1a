"""Splits the arguments of `predict` into model, images and settings; imports nothing slow."""

import os
import re
from collections.abc import Sequence
from glob import glob
from pathlib import Path

from coord_codec import InputError
from coord_codec.settings import flag_of, stated_settings
from coord_detect.console import world_size
from coord_detect.model.checkpoints import locate_model
from coord_detect.served.request import Request
from coord_detect.settings.load import load_settings, setting_names
from coord_detect.settings.record import Settings
from coord_detect.settings.words import did_you_mean

_OF_PROCESS = ("model.dtype", "model.attention", "evaluation.batch_size", "evaluation.speed", "evaluation.device")
"""Settings of the process that holds the model, which a server was started with."""
_LONGEST_REQUEST = 86400
_SETTING = re.compile(r"(plugins|[A-Za-z_]\w*(\.\w+)+)=")


def read_settings(file: Path | None, words: Sequence[str], endpoint: bool = False) -> Settings:
    """Return the settings of a file and of words of the command line, which have an effect on answers.

    A file may be the configuration of a run, whose other settings are passed over and told.

    Raises:
        InputError: if a word is no setting, or has no effect on how images are answered
    """
    known = [*setting_names(Settings), "training.system"]
    acting = [name for name in known if not any(other.startswith(f"{name}.") for other in known)]
    for word in words:
        name = word.partition("=")[0]
        if endpoint and name in _OF_PROCESS:
            raise InputError(f"{name}: it has no effect on a server of --endpoint, which was started with its own")
        if not any(name == other or name.startswith(f"{other}.") for other in acting):
            hint = did_you_mean(name, acting) or f"; these settings have: {', '.join(acting)}"
            raise InputError(f"{name}: it has no effect on how images are answered{hint}")
    config, _ = load_settings(Settings, file, words)
    if len(config.evaluation.decoding) > 1 and any(word.startswith("evaluation.decoding=") for word in words):
        raise InputError("evaluation.decoding: images are answered by one decoding; `evaluate` takes several")
    return config


def check_request(request: Request) -> None:
    """Raise `InputError` for a request without images, and for options about a server without one."""
    for acts_on, is_given in (("--endpoint", bool(request.endpoints)), ("--engine ray", request.engine == "ray")):
        for name in () if is_given else request.changed(acts_on):
            flag = flag_of(name, stated_settings(request)[name])
            hint = (
                "; in this process evaluation.decoding.grammar=markers decodes under one" if name == "grammar" else ""
            )
            raise InputError(f"{flag} is for {acts_on}, and without it has no effect{hint}")
    if request.engine == "ray" and (request.endpoints or world_size() > 1):
        other = "--endpoint, whose servers" if request.endpoints else "torchrun, whose processes"
        raise InputError(f"--engine ray: it goes without {other} share the images already")
    if not request.sources:
        raise InputError("expected images to answer: predict MODEL SRC... --out DIR")
    if request.timeout is not None and not request.timeout <= _LONGEST_REQUEST:  # also refuses nan
        raise InputError(f"--timeout: expected at most {_LONGEST_REQUEST} seconds, found {request.timeout}")


def split_words(words: Sequence[str], endpoint: bool) -> tuple[Path | None, tuple[str, ...], list[str]]:
    """Return model, sources and settings among the arguments of the command line.

    With an endpoint the first argument is a model only if it is a folder with one; otherwise all are sources.
    """
    # A Path raises for words that are too long for any file.
    settings = [word for word in words if _SETTING.match(word) and not (os.path.exists(word) or glob(word))]  # noqa: PTH110, PTH207
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
