"""A checkpoint on disk, loaded to answer: whole, or an adapter on its base."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from transformers import AutoModelForImageTextToText, AutoProcessor

from coord_codec import CoordVocab

from .config import RunConfig
from .errors import InputError
from .offsets import base_of, is_adapter, put_on
from .pixels import set_pixels
from .samples import marker_ids


@dataclass(frozen=True)
class Checkpoint:
    """A model ready to answer, with the processor and vocabulary that belong to it."""

    model: Any
    processor: Any
    vocab: CoordVocab | None


def open_checkpoint(path: Path, config: RunConfig) -> Checkpoint:
    """Load a whole checkpoint, or an adapter and its base, from disk: no network and none of its own code.

    Raises:
        InputError: when there is no complete checkpoint at `path`.
    """
    adapter = is_adapter(path)
    source = base_of(path) if adapter else path
    try:
        processor = AutoProcessor.from_pretrained(source, local_files_only=True, trust_remote_code=False)
        model = AutoModelForImageTextToText.from_pretrained(
            source,
            dtype=getattr(torch, config.model.dtype),
            attn_implementation=config.model.attention,
            local_files_only=True,
            trust_remote_code=False,
        )
    except (OSError, ValueError) as error:
        raise InputError(f"{source}: not a complete checkpoint ({str(error).splitlines()[0]})") from None
    set_pixels(processor, config.data)
    vocab = CoordVocab.from_tokenizer(processor.tokenizer) if config.custom.coord_tokens.enabled else None
    if adapter:
        markers = marker_ids(config.data, processor.tokenizer)
        model = put_on(model, path, vocab.fingerprint(markers=markers) if vocab is not None else None)
    device = "cuda" if torch.cuda.is_available() else "cpu"
    return Checkpoint(model.eval().to(device), processor, vocab)
