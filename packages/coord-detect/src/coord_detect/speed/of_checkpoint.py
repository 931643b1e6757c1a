"""Decodes the answers of a loaded checkpoint with `evaluation.speed`, and says what it cannot do."""

from __future__ import annotations

from collections.abc import Set
from typing import Any

from coord_codec import InputError
from coord_detect.families.family import Family
from coord_detect.model.checkpoint import LoadedCheckpoint
from coord_detect.model.token_statistics import Unforced
from coord_detect.settings.record import Settings
from coord_detect.settings.sections import Asking
from coord_detect.speed.decode import Decoded, Grammar, Rules, decode
from coord_detect.speed.forced import ForcedTokens
from coord_detect.speed.passes import Passes


def check_speed(config: Settings, family: Family | None) -> None:
    """Raise `InputError` if a model family, None for an unknown one, cannot go back to before a rejected draft."""
    reason = family.cannot.get("speed") if family is not None else None
    if family is not None and reason and config.evaluation.speed != "plain":
        raise InputError(
            f"evaluation.speed is {config.evaluation.speed} but the model is a {family.name}: {reason}; "
            "set evaluation.speed=plain"
        )


def has_fixed_shapes(checkpoint: LoadedCheckpoint) -> bool:
    """Return whether a checkpoint answers by passes of fixed shapes: on a GPU, if its family can go back a token."""
    family = checkpoint.family
    can = checkpoint.vocab is not None and family is not None and "speed" not in family.cannot
    return can and checkpoint.model.device.type == "cuda"


def decode_fast(
    checkpoint: LoadedCheckpoint,
    inputs: Any,
    data: Asking,
    max_new_tokens: int,
    grammar: Grammar | None,
    names: Set[str] | None,
    speed: str,
    unforced: Unforced | None = None,
) -> Decoded:
    """Return the answers to a batch of prompts; see `decode`. `names` are the only descriptions, if given."""
    tokenizer, vocab = checkpoint.processor.tokenizer, checkpoint.vocab
    assert vocab is not None  # a rule of the configuration
    if not checkpoint.passes:
        checkpoint.passes.append(Passes(checkpoint.model, tokenizer.pad_token_id, has_fixed_shapes(checkpoint)))
    return decode(
        checkpoint.passes[0],
        inputs,
        ForcedTokens() if speed == "plain" else ForcedTokens.for_tokenizer(tokenizer, data, names),
        Rules(tokenizer.eos_token_id, max_new_tokens, vocab),
        grammar,
        unforced,
    )
