"""Sets up the client of a served model: prompt and limits of its folder, if it has one, and the grammar of answers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from coord_codec import InputError
from coord_detect.answers.answering_model import AnsweringModel, check_labels
from coord_detect.console import say
from coord_detect.model.card import as_trained, installed_version, read_card, system_text
from coord_detect.model.checkpoints import CARD_FILE, locate_model
from coord_detect.model.prompt import prompt_settings, read_chat_template
from coord_detect.served.answer_tokens import AnswerTokens
from coord_detect.served.endpoint import EndpointEngine, check_key, checked_url
from coord_detect.served.sent_image import SentSides
from coord_detect.settings.record import Settings
from coord_detect.views.registry import check_views


def open_served(
    urls: Sequence[str],
    name: str,
    model: Path | None,
    config: Settings,
    labels: Sequence[str] = (),
    names: Sequence[str] = (),
    *,
    only: Sequence[str] = (),
    grammar: str | None = None,
    concurrency: int = 8,
    timeout: float = 300.0,
    calibrated: bool = True,
) -> AnsweringModel:
    """Return the client of servers of a model.

    `model` is its folder, None if it is not here: settings of `config` that are not set are those of its
    card, and `calibrated` takes its calibration. The other arguments are those of `Detector`.

    Raises:
        InputError: if a URL, the folder or settings are invalid
    """
    if only:
        raise InputError(
            "only: a server states probabilities among what its grammar allows, by which absent objects score like "
            "present ones; answer in this process, or keep the boxes of a label with labels (--label)"
        )
    urls = tuple(dict.fromkeys(map(checked_url, urls)))
    check_key()
    folder = locate_model(model) if model is not None else None
    card = read_card(folder) if folder is not None else None
    resolved = config if folder is None else as_trained(config, folder)
    sides = SentSides.of_folder(folder, resolved.data) if folder is not None else None
    if card is None:
        say(f"no {CARD_FILE} of the served model: prompt, markers and limits are the configuration's, unchecked")
    elif card.made_pixels:
        here = f"images are resized here, with pillow {installed_version('pillow')}"
        resized = here if sides is not None else "a server does not tell what it resizes images with"
        say(f"note: trained with {card.made_pixels}; {resized}, and other versions make slightly different pixels")
    template_settings = card.chat_template_kwargs if card is not None else {}
    template_settings = template_settings or (prompt_settings(read_chat_template(folder)) if folder is not None else {})
    data = resolved.data
    decoding = config.evaluation.decoding[0]
    if "decoding" in config.evaluation.model_fields_set and decoding.grammar != "none":
        raise InputError(
            f"evaluation.decoding.grammar is {decoding.grammar}, which decodes under a grammar in this process; a "
            "server decodes under one with --grammar, and evaluation.decoding.boxes says how its boxes are computed"
        )
    tokenizer = _tokenizer(folder)
    engine = EndpointEngine(
        urls,
        name,
        data.prompt,
        card.system if card is not None else system_text(resolved),
        data.markers if data.style == "markers" else None,
        resolved.evaluation.max_new_tokens or _max_new_tokens(resolved, tokenizer),
        concurrency,
        timeout,
        constraint=_constraint(grammar, resolved, folder),
        chat_template_kwargs=template_settings,
        sides=sides,
        tokens=AnswerTokens(tokenizer),
        coordinates=resolved.custom.coord_tokens.enabled,
    )
    names = tuple(names) or (card.names if card is not None else ())
    served = AnsweringModel(engine, resolved, frozenset(check_labels(labels)), names=names, folder=folder)
    check_views(resolved.evaluation.views, served.finish.question)
    return served.calibrated_as(folder) if folder is not None and calibrated else served


def _tokenizer(folder: Path | None) -> Any:
    """Return the tokenizer of a model's folder; None without a folder, or without a tokenizer, as of an adapter."""
    from coord_detect.grammar.served import read_tokenizer

    try:
        return read_tokenizer(folder) if folder is not None else None
    except InputError:
        return None


def _max_new_tokens(config: Settings, tokenizer: Any) -> int:
    """Return the length limit of an answer, computed with the tokenizer if there is one."""
    from coord_detect.answers.token_limit import token_limit, token_limit_without_tokenizer

    return token_limit_without_tokenizer(config) if tokenizer is None else token_limit(config, tokenizer, ())


def _constraint(grammar: str | None, config: Settings, folder: Path | None) -> dict[str, Any]:
    """Return the request fields that make a server decode under the grammar (see docs/guides/gpu.md)."""
    if grammar is None:
        return {}
    if folder is None:
        raise InputError("--grammar: the grammar needs the token ids of the served model; give its folder as MODEL")
    from coord_detect.grammar.served import SERVERS, answer_form

    if grammar not in SERVERS:
        raise InputError(f"grammar: expected one of {', '.join(SERVERS)}, found {grammar!r}")
    return SERVERS[grammar](answer_form(folder, config, ()))
