"""Decodes the answers of a loaded checkpoint with `evaluation.speed`, and says what it cannot do."""

from __future__ import annotations

import zlib
from typing import Any

from coord_codec import InputError
from coord_codec.counts import counted
from coord_trainer.answers.speed.decode import Decoded, Grammar, Rules, decode
from coord_trainer.answers.speed.forced import ForcedTokens
from coord_trainer.answers.speed.passes import Passes
from coord_trainer.config.run_config import RunConfig
from coord_trainer.config.sections import DataSection
from coord_trainer.console import say
from coord_trainer.families.family import Family
from coord_trainer.families.registry import FAMILIES
from coord_trainer.model.checkpoint import LoadedCheckpoint

FAST_TOLERANCE = 8
"""The rule of `evaluation.speed: fast`: a coordinate at most this many bins from its draft is verified once."""
DRAFTED_ROWS_ON_A_CPU = {"exact": 8, "fast": 16}
"""The most answers of a pass with draft embeddings on a CPU, which pays for every drafted token of a larger one."""


def check_speed(checkpoint: LoadedCheckpoint, config: RunConfig) -> None:
    """Refuse a speed that a checkpoint cannot be decoded with.

    Raises:
        InputError: its family cannot go back to before a rejected draft, or `fast` lacks its draft embeddings.
    """
    if config.evaluation.speed == "plain":
        return
    family = FAMILIES.get(checkpoint.model.config.model_type)
    if family is not None:
        check_speed_of_family(config, family)
    if config.evaluation.speed == "fast" and checkpoint.drafts_SH is None:
        raise InputError(
            "evaluation.speed is fast but the model has no draft embeddings: train them in a few "
            "minutes (uv run apps/trainer slots MODEL ANNOTATIONS), or use exact"
        )


def check_speed_of_family(config: RunConfig, family: Family) -> None:
    """Refuse a speed that a model family cannot be decoded with.

    Raises:
        InputError: it cannot go back to before a rejected draft.
    """
    if config.evaluation.speed != "plain" and (reason := family.cannot.get("speed")):
        raise InputError(
            f"evaluation.speed is {config.evaluation.speed} but the model is a {family.name}: {reason}; "
            "set evaluation.speed=plain"
        )


def speed_of_answers(checkpoint: LoadedCheckpoint, config: RunConfig) -> str:
    """Return what the answers depend on: `plain` for the speeds that have the same ones, else the speed and the drafts.

    Example:
        >>> from coord_trainer.config.run_config import check_run_config
        >>> speed_of_answers(LoadedCheckpoint(None, None, None), check_run_config({}, "", trains=False))
        'plain'
    """
    if config.evaluation.speed != "fast" or checkpoint.drafts_SH is None:
        return "plain"
    digest = zlib.crc32(checkpoint.drafts_SH.float().cpu().numpy().tobytes())
    rows = _drafted_rows(checkpoint, "fast")
    limit = "" if rows is None else f", up to {rows} answers"
    return f"fast, drafts {digest:08x}, {FAST_TOLERANCE} bins{limit}"


def _drafted_rows(checkpoint: LoadedCheckpoint, speed: str) -> int | None:
    return DRAFTED_ROWS_ON_A_CPU[speed] if checkpoint.model.device.type == "cpu" else None


def has_fixed_shapes(checkpoint: LoadedCheckpoint) -> bool:
    """Return whether a checkpoint answers by passes of fixed shapes: on a GPU, if its family can go back a token."""
    family = FAMILIES.get(checkpoint.model.config.model_type)
    can = checkpoint.vocab is not None and family is not None and "speed" not in family.cannot
    return can and checkpoint.model.device.type == "cuda"


def report_drafts(checkpoint: LoadedCheckpoint) -> None:
    """Print in how many of the passes so far draft embeddings were left out, if they were in any."""
    drafted = checkpoint.drafted
    if left_out := drafted["without drafts"]:
        say(
            f"evaluation.speed: draft embeddings were left out of {left_out:,} of "
            f"{counted(drafted['passes'], 'pass', 'passes')}, those over so many answers that they cost a CPU more "
            "than they save"
        )
    drafted.clear()


def decode_fast(
    checkpoint: LoadedCheckpoint,
    inputs: Any,
    data: DataSection,
    max_new_tokens: int,
    grammar: Grammar | None,
    names: set[str] | None,
    speed: str,
) -> Decoded:
    """Return the answers to a batch of prompts; see `decode`.

    Args:
        checkpoint: the model
        inputs: of the prompts
        data: markers, style and geometry
        max_new_tokens: the longest answer
        grammar: restricts the answers; None for none
        names: the only allowed descriptions; None for any
        speed: `evaluation.speed`; `plain` drafts nothing
    """
    tokenizer, vocab = checkpoint.processor.tokenizer, checkpoint.vocab
    assert vocab is not None  # a rule of the configuration
    plain = speed == "plain"
    if not checkpoint.passes:
        checkpoint.passes.append(Passes(checkpoint.model, tokenizer.pad_token_id, has_fixed_shapes(checkpoint)))
    found = decode(
        checkpoint.passes[0],
        inputs,
        ForcedTokens.none(vocab) if plain else ForcedTokens.for_tokenizer(tokenizer, data, vocab, names),
        Rules(
            end_id=tokenizer.eos_token_id,
            max_new_tokens=max_new_tokens,
            tolerance=FAST_TOLERANCE if speed == "fast" else 0,
            drafted_rows=None if plain else _drafted_rows(checkpoint, speed),
        ),
        grammar,
        None if plain else checkpoint.drafts_SH,
    )
    checkpoint.drafted.update({"passes": found.passes, "without drafts": found.without_drafts})
    return found
