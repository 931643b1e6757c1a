"""Generates answers with a loaded checkpoint, free or under the grammar, with the probability of every box side."""

from __future__ import annotations

from collections.abc import Sequence, Set
from typing import Any

import torch
from PIL import Image
from transformers import GenerationConfig, LogitsProcessor, LogitsProcessorList

from coord_codec import InputError
from coord_detect.answers.descriptions import description_fields
from coord_detect.grammar.coord_grammar import CoordGrammar
from coord_detect.model.checkpoint import LoadedCheckpoint
from coord_detect.model.prompt import prompt_tokens
from coord_detect.model.token_statistics import StepRecorder, Unforced
from coord_detect.settings.decoding import Decoding
from coord_detect.settings.sections import Asking
from coord_detect.speed.of_checkpoint import decode_fast, has_fixed_shapes


@torch.inference_mode()
def answer_images(
    checkpoint: LoadedCheckpoint,
    images: Sequence[Image.Image],
    data: Asking,
    decoding: Decoding,
    max_new_tokens: int,
    names: Set[str] | None = None,
    *,
    only: Set[str] = frozenset(),
    prompt: str | None = None,
    pixels: float = 1.0,
    speed: str = "plain",
) -> list[dict[str, Any]]:
    """Generate answers to upright RGB images; returns text, finish reason and probabilities of each.

    For each coordinate token the records also hold `coord_spread` and `coord_mass`, the total probability of
    all coordinate tokens (see `StepRecorder`). `names` are the only allowed descriptions, if the decoding limits them.
    `only` forces descriptions: each object has one of them, and the probability of its name is that among all that the
    decoding allows without them. `prompt` is asked in place of that of `data`; `pixels` is a factor of the processor's
    limits on the size of an image.

    Raises:
        InputError: the decoding limits names and there are none, or the model cannot be decoded with this speed.
    """
    tokenizer = checkpoint.processor.tokenizer
    if decoding.grammar == "names" and not names:
        raise InputError(
            "evaluation.decoding.grammar: names limits answers to the names in the annotations; there are none"
        )
    markers = data.marker_ids(tokenizer)
    inputs = prompt_inputs(checkpoint, list(images), prompt or data.prompt, pixels)
    prompt_length = inputs["input_ids"].shape[1]
    shared = (prompt_length, max_new_tokens)
    grammar, unforced = grammar_of(tokenizer, data, decoding.grammar, *shared, names), None
    if only:
        grammar, unforced = grammar_of(tokenizer, data, "names", *shared, only), Unforced(grammar)
    if speed != "plain" or has_fixed_shapes(checkpoint):
        found = decode_fast(checkpoint, inputs, data, max_new_tokens, grammar, only or names, speed, unforced)
        pairs = zip(found.answers, found.statistics, strict=True)
        return [answer_record(checkpoint, ids, statistics, markers, bool(only)) for ids, statistics in pairs]
    recorder = StepRecorder(checkpoint.vocab, grammar, unforced)
    # As keywords these would have transformers build the default configuration of the model's class for every batch.
    settings = GenerationConfig(
        max_new_tokens=max_new_tokens,
        do_sample=False,
        num_beams=1,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    ids_BT = checkpoint.model.generate(
        **inputs, generation_config=settings, logits_processor=LogitsProcessorList([recorder])
    )
    pairs = zip(ids_BT[:, prompt_length:].tolist(), recorder.read(), strict=True)
    return [answer_record(checkpoint, ids, statistics, markers, bool(only)) for ids, statistics in pairs]


def grammar_of(
    tokenizer: Any, data: Asking, grammar: str, prompt_length: int, max_new_tokens: int, names: Set[str] | None = None
) -> LogitsProcessor | None:
    """Return the logits processor of a batch that keeps answers to a grammar; None for the grammar `none`."""
    if grammar == "none":
        return None
    return CoordGrammar.for_tokenizer(
        tokenizer,
        data.markers,
        prompt_length=prompt_length,
        style=data.style,
        max_new_tokens=max_new_tokens,
        descriptions=names if grammar == "names" else None,
        max_objects=data.max_objects,
        geometry=data.shape,
    )


def prompt_inputs(checkpoint: LoadedCheckpoint, images: list[Image.Image], prompt: str, pixels: float = 1.0) -> Any:
    """Return the model's inputs for `images`: the checkpoint's system message, and each image with the prompt."""
    inputs = prompt_tokens(checkpoint.processor, checkpoint.system, images, prompt, pixels)
    return inputs.to(checkpoint.model.device)


def answer_record(
    checkpoint: LoadedCheckpoint,
    ids: Sequence[int],
    statistics: dict[str, list[Any]],
    marker_ids: tuple[int, ...] | None,
    forced: bool = False,
) -> dict[str, Any]:
    """Return text, finish reason, and the statistics of `StepRecorder` of each coordinate and description.

    The probability of a `forced` description is also that of its end.
    """
    tokenizer = checkpoint.processor.tokenizer
    stopped = tokenizer.eos_token_id in ids
    ids = list(ids[: ids.index(tokenizer.eos_token_id)]) if stopped else list(ids)
    # Qwen's box markers are special tokens but part of the answer, so special tokens are kept.
    record: dict[str, Any] = {
        "text": tokenizer.decode(ids, skip_special_tokens=False),
        "finish_reason": "stop" if stopped else "length",
    }
    if checkpoint.vocab is None:
        return record
    sides = [position for position, token in enumerate(ids) if token in checkpoint.vocab.ids]
    for key, name in (
        ("coord_logprobs", "log_p"),
        ("coord_expected", "expected"),
        ("coord_spread", "spread"),
        ("coord_quantiles", "quantiles"),
        ("coord_mass", "mass"),
    ):
        record[key] = [statistics[name][position] for position in sides]
    if marker_ids is not None:
        log_p, log_ends = statistics["log_p"], None
        if forced:
            pairs = zip(ids, log_p, statistics["log_coord"], strict=False)
            log_ends = [of_any if token in checkpoint.vocab.ids else own for token, own, of_any in pairs]
        record |= description_fields(ids, log_p, marker_ids, checkpoint.vocab.ids, log_ends)
    return record
