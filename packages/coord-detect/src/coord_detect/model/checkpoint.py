"""Loads a checkpoint from disk for inference: a model, or an adapter with its base."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import torch
import transformers
from safetensors import SafetensorError
from transformers import CONFIG_MAPPING, AutoModelForImageTextToText, AutoProcessor

from coord_codec import CoordVocab, InputError
from coord_codec.counts import counted
from coord_codec.files import read_json
from coord_detect.console import say
from coord_detect.families.family import Family
from coord_detect.families.registry import FAMILIES
from coord_detect.model.attention import attend_by_sample
from coord_detect.model.card import read_card, system_text
from coord_detect.model.patch_embedding import multiply_patches
from coord_detect.model.prompt import end_answers_as_asked, prompt_text
from coord_detect.settings.record import Given, Settings
from coord_detect.settings.sections import Asking


@dataclass(frozen=True)
class LoadedCheckpoint:
    """A model ready for inference, with its processor, coordinate tokens and system message.

    `passes` keeps buffers and recorded passes from one batch to the next.
    """

    model: Any
    processor: Any
    vocab: CoordVocab | None
    system: str | None = None
    passes: list[Any] = field(default_factory=list, init=False, compare=False, repr=False)

    @property
    def family(self) -> Family | None:
        """The family of the model; None for one that is not in the table."""
        return FAMILIES.get(self.model.config.model_type)


def open_checkpoint(path: Path, config: Settings) -> LoadedCheckpoint:
    """Load a model, or an adapter and its base, from disk, without network access and without executing its own code.

    Raises:
        InputError: there is no complete checkpoint at `path`, the adapter's base is missing or does not fit it, or
            the tokenizer is not the one of its training.
    """
    adapter = read_json(path / "adapter_config.json") if (path / "adapter_config.json").is_file() else None
    source = path if adapter is None else adapter.get("base_model_name_or_path")
    if adapter is not None and path.parent.name == "checkpoints" and (own := path.parent.parent / "base").is_dir():
        source = own  # of a run that built its base; the folder that the adapter names may be another run's by now
    if adapter is not None and not (source and Path(source).is_dir()):
        raise InputError(
            f"{path}: its adapter_config.json names the base {source!r}, and there is no such folder here; move the "
            "base back, or state its folder there as base_model_name_or_path"
        )
    card = read_card(path)
    _check_architecture(Path(source))
    try:
        processor = AutoProcessor.from_pretrained(source, local_files_only=True, trust_remote_code=False)
        family = FAMILIES.get(str(_config_of(Path(source)).get("model_type")))
        end_answers_as_asked(processor, family.answer_end if family is not None else "")
        vocab, fingerprint = _vocabulary(config, processor.tokenizer)
        if card is not None:
            card.check_fingerprint(fingerprint, Path(source))
            if adapter is not None:
                card.check_base(Path(source))
            card.check_rendered_prompt(prompt_text(processor, card.system, card.prompt), Path(source))
            if (note := card.other_pixels(type(processor.image_processor).__name__)) is not None:
                say(f"note: {path}: {note}")
        with _without_report():
            model, loaded = AutoModelForImageTextToText.from_pretrained(
                source,
                dtype=getattr(torch, config.model.dtype),
                attn_implementation=config.model.attention,
                local_files_only=True,
                trust_remote_code=False,
                ignore_mismatched_sizes=True,
                output_loading_info=True,
            )
        _check_weights(Path(source), type(model).__name__, loaded)
        if family := FAMILIES.get(model.config.model_type):
            attend_by_sample(model, family.vision_tower)
    except InputError:
        raise
    except (OSError, ValueError, SafetensorError) as error:
        raise InputError(f"{source}: not a complete checkpoint ({str(error).splitlines()[0]})") from None
    set_pixels(processor, config.data)
    if adapter is not None:
        from peft import PeftModel

        from coord_adapter import MODULE_NAME, load_adapter

        try:
            if MODULE_NAME in (adapter.get("modules_to_save") or []):
                model = load_adapter(model, path, fingerprint=fingerprint)
            else:
                model = PeftModel.from_pretrained(model, path)
        except (OSError, ValueError, SafetensorError, RuntimeError) as error:  # PEFT's for sizes of another base
            raise InputError(f"{path}: {' '.join(str(error).split()):.400}") from None
    multiply_patches(model)
    own_device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if torch.cuda.is_available() else "cpu"  # one per rank
    device = config.evaluation.device or own_device
    system = card.system if card is not None else system_text(config)
    return LoadedCheckpoint(model.eval().to(device), processor, vocab, system)


@contextmanager
def _without_report() -> Iterator[None]:
    """Keep transformers from printing its table of weights that do not fit, which `_check_weights` tells.

    Another level of the logger would have it check plans of tensor parallelism.
    """

    def is_other(record: logging.LogRecord) -> bool:
        return "LOAD REPORT" not in record.getMessage()

    log = logging.getLogger("transformers.modeling_utils")
    log.addFilter(is_other)
    try:
        yield
    finally:
        log.removeFilter(is_other)


def _check_weights(source: Path, kind: str, loaded: Mapping[str, Any]) -> None:
    """Tell the weights of a checkpoint that its architecture has no place for.

    Raises:
        InputError: weights are missing or have another shape, in whose place transformers draws random ones
    """
    shapes = [f"{name} {list(stored)}, expected {list(own)}" for name, stored, own in loaded["mismatched_keys"]]
    by = f"{kind} of transformers {transformers.__version__}"
    for faults, fault in ((sorted(loaded["missing_keys"]), "missing"), (sorted(shapes), "of another shape")):
        if faults:
            raise InputError(
                f"{source}: {counted(len(faults), 'weight')} of {by} {'is' if len(faults) == 1 else 'are'} {fault} "
                f"({faults[0]}): the checkpoint is incomplete, or needs another transformers{_saved_by(source)}"
            )
    if extra := sorted(loaded["unexpected_keys"]):
        say(f"note: {source}: {counted(len(extra), 'weight')} that {by} does not have, left out: {extra[0]}")


def _check_architecture(source: Path) -> None:
    """Raise `InputError` if the installed transformers does not know the architecture of a checkpoint."""
    file = source / "config.json"
    kind = _config_of(source).get("model_type")
    if kind is None or kind in CONFIG_MAPPING:
        return
    raise InputError(
        f"{file}: model_type: transformers {transformers.__version__} has no {kind!r}{_saved_by(source)}; "
        "install a newer one"
    )


def _config_of(source: Path) -> dict[str, Any]:
    file = source / "config.json"
    return cast("dict[str, Any]", read_json(file)) if file.is_file() else {}


def _saved_by(source: Path) -> str:
    """Return which transformers saved a checkpoint, as the end of a sentence; nothing if it does not say."""
    version = _config_of(source).get("transformers_version")
    return f" (it was saved by {version})" if version else ""


def _vocabulary(config: Settings, tokenizer: Any) -> tuple[CoordVocab | None, str | None]:
    """Return the coordinate tokens and their fingerprint with the configured markers; None if coordinates are text."""
    if not config.custom.coord_tokens.enabled:
        return None, None
    vocab = CoordVocab.from_tokenizer(tokenizer)
    return vocab, vocab.fingerprint(markers=config.data.marker_ids(tokenizer))


def set_pixels(processor: Any, data: Asking) -> None:
    """Set the run's pixel limits in the processor, which is saved with the checkpoint, so that inference uses them."""
    limits = {"shortest_edge": data.min_pixels, "longest_edge": data.max_pixels}
    limits = {name: value for name, value in limits.items() if value is not None}
    if not limits:
        return
    size = {**dict(processor.image_processor.size), **limits}
    processor.image_processor.size = {key: value for key, value in size.items() if value is not None}


def with_usable_attention(config: Given) -> Given:
    """Return `config` with sdpa if flash-attention is configured but cannot run, and print the reason."""
    asked = config.model.attention
    if not asked.startswith("flash"):
        return config
    package = "flash_attn" if asked == "flash_attention_2" else "flash_attn_interface"
    if find_spec(package) is None:
        reason = f"{package} is not installed"
    elif not torch.cuda.is_available():
        reason = "there is no GPU"
    elif config.model.dtype == "float32":
        reason = "it does not support float32, which is set in model.dtype"
    else:
        return config
    say(f"model.attention: sdpa instead of {asked}, since {reason}")
    return config.model_copy(update={"model": config.model.model_copy(update={"attention": "sdpa"})})
