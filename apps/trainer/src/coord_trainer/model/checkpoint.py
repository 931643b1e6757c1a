"""Loads a checkpoint from disk for inference: a model, or an adapter with its base."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from transformers import AutoModelForImageTextToText, AutoProcessor

from coord_adapter import MODULE_NAME, load_adapter, offset_parameters
from coord_codec import WILDCARD_TOKEN, CoordVocab, InputError
from coord_codec.files import read_json
from coord_trainer.config.run_config import RunConfig
from coord_trainer.config.sections import DataSection
from coord_trainer.console import say
from coord_trainer.data.targets import marker_ids
from coord_trainer.families.family import Family
from coord_trainer.families.registry import FAMILIES
from coord_trainer.model.attention import attend_by_sample
from coord_trainer.model.card import read_card, system_text
from coord_trainer.model.patch_embedding import multiply_patches
from coord_trainer.model.prompt import end_answers_as_asked, prompt_text


def refuse_random_head(model: Any, folder: Path) -> None:
    """Raise `InputError` for a head neither stored nor tied: transformers filled it with random values."""
    head = model.get_output_embeddings()
    if head is None or head.weight is model.get_input_embeddings().weight:
        return
    name = next(name for name, module in model.named_modules() if module is head).rpartition(".")[2] + ".weight"
    stored = _stored_names(folder)
    if stored and not any(other.endswith(name) for other in stored):
        raise InputError(
            f"{folder / 'config.json'}: tie_word_embeddings does not tie the head of {type(model).__name__} to its "
            f"embedding, and {name} is not stored, so that training would start from random values and every later "
            "load from others; set it to true at the top and in text_config if the model was trained tied, else fetch "
            "the missing weights"
        )


def _stored_names(folder: Path) -> set[str]:
    """Return the names of all tensors in a checkpoint's files; empty if it has none on this machine."""
    single, index = folder / "model.safetensors", folder / "model.safetensors.index.json"
    if single.is_file():
        with safe_open(single, "pt") as file:
            return set(file.keys())
    return set(read_json(index)["weight_map"]) if index.is_file() else set()


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


def open_checkpoint(path: Path, config: RunConfig) -> LoadedCheckpoint:
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
    try:
        processor = AutoProcessor.from_pretrained(source, local_files_only=True, trust_remote_code=False)
        family = FAMILIES.get(read_json(Path(source) / "config.json").get("model_type"))
        end_answers_as_asked(processor, family.answer_end if family is not None else "")
        vocab, fingerprint = _vocabulary(config, processor.tokenizer)
        if card is not None:
            card.check_fingerprint(fingerprint, Path(source))
            if adapter is not None:
                card.check_base(Path(source))
            card.check_rendered_prompt(prompt_text(processor, card.system, card.prompt), Path(source))
            if (note := card.other_pixels(type(processor.image_processor).__name__)) is not None:
                say(f"note: {path}: {note}")
        model = AutoModelForImageTextToText.from_pretrained(
            source,
            dtype=getattr(torch, config.model.dtype),
            attn_implementation=config.model.attention,
            local_files_only=True,
            trust_remote_code=False,
        )
        if family := FAMILIES.get(model.config.model_type):
            attend_by_sample(model, family.vision_tower)
    except InputError:
        raise
    except (OSError, ValueError, SafetensorError) as error:
        raise InputError(f"{source}: not a complete checkpoint ({str(error).splitlines()[0]})") from None
    set_pixels(processor, config.data)
    if adapter is not None:
        try:
            if MODULE_NAME in (adapter.get("modules_to_save") or []):
                model = load_adapter(model, path, fingerprint=fingerprint)
            else:
                from peft import PeftModel

                model = PeftModel.from_pretrained(model, path)
        except (OSError, ValueError, SafetensorError, RuntimeError) as error:  # PEFT's for sizes of another base
            raise InputError(f"{path}: {' '.join(str(error).split()):.400}") from None
    multiply_patches(model)
    device = f"cuda:{os.environ.get('LOCAL_RANK', '0')}" if torch.cuda.is_available() else "cpu"  # one per rank
    system = card.system if card is not None else system_text(config)
    return LoadedCheckpoint(model.eval().to(device), processor, vocab, system)


def _vocabulary(config: RunConfig, tokenizer: Any) -> tuple[CoordVocab | None, str | None]:
    """Return the coordinate tokens and their fingerprint with the configured markers; None if coordinates are text."""
    if not config.custom.coord_tokens.enabled:
        return None, None
    vocab = CoordVocab.from_tokenizer(tokenizer)
    return vocab, vocab.fingerprint(markers=marker_ids(config.data, tokenizer))


def set_pixels(processor: Any, data: DataSection) -> None:
    """Set the run's pixel limits in the processor, which is saved with the checkpoint, so that inference uses them."""
    limits = {"shortest_edge": data.min_pixels, "longest_edge": data.max_pixels}
    limits = {name: value for name, value in limits.items() if value is not None}
    if not limits:
        return
    size = {**dict(processor.image_processor.size), **limits}
    processor.image_processor.size = {key: value for key, value in size.items() if value is not None}


def with_usable_attention(config: RunConfig) -> RunConfig:
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


def offset_ids(
    config: RunConfig,
    vocab: CoordVocab,
    markers: tuple[int, ...] | None,
    rows: int,
    native_markers: str | None = "qwen",
    wildcard: int | None = None,
) -> list[int]:
    """Return the ids of trained rows: coordinate tokens, and markers that the checkpoint has not learnt.

    `rows` is the number of rows of the embedding, `wildcard` the id of `<|coord_*|>` if the tokenizer has it.

    Raises:
        InputError: the configured ids do not fit the tokenizer or the embedding.
    """
    added = [] if config.data.markers == native_markers else list(markers or ())
    ids = config.custom.coord_offset.token_ids([*vocab.ids, *added])
    missing = sorted(set(vocab.ids) - set(ids))
    if missing:
        raise InputError(
            f"custom.coord_offset.ids: {len(missing)} coordinates of the tokenizer are not among them (the first is "
            f"{missing[0]}); the tokenizer's are {vocab.ids[0]}..{vocab.ids[-1]}, both ends included"
        )
    if wildcard in ids and not config.custom.coord_offset.allow_wildcard:
        raise InputError(
            f"custom.coord_offset.ids: {wildcard} is the wildcard {WILDCARD_TOKEN}, which is no coordinate; start at "
            f"{vocab.ids[0]}, or set custom.coord_offset.allow_wildcard: true to train its row as well"
        )
    if max(ids) >= rows:
        raise InputError(
            f"custom.coord_offset.ids: {max(ids)} is outside the embedding, which has {rows} rows; expand the "
            "checkpoint's vocabulary first (uv run apps/exporter expand-vocab)"
        )
    if config.custom.coord_offset.ids is None and added:
        say(
            f"custom.coord_offset: {len(ids):,} rows are trained, {len(vocab.ids):,} coordinates (the specification's) "
            f"and {len(added)} markers that data.markers: {config.data.markers} adds"
        )
    if others := sorted(set(ids) - {*vocab.ids, *added}):
        say(
            f"custom.coord_offset.ids: {len(others)} of {len(ids):,} ids are no coordinates of the tokenizer "
            f"({vocab.ids[0]}..{vocab.ids[-1]}), the first {others[0]}; their rows are trained too, in every text"
        )
    return ids


def count_parameters(model: torch.nn.Module) -> dict[str, int]:
    """Return the number of all parameters, of trained ones, and of coordinate offsets."""
    offsets = offset_parameters(model)
    return {
        "all": sum(p.numel() * _numbers_in(p) for p in model.parameters()),
        "trained": sum(p.numel() for p in model.parameters() if p.requires_grad),
        "offsets": sum(table.numel() for tables in offsets.values() for table in tables),
    }


def report_quantised(model: torch.nn.Module) -> None:
    """Print how much of a base is in 4 bits; an `InputError` if nothing is."""
    quantised = sum(2 * p.numel() for p in model.parameters() if _numbers_in(p) == 2)
    if not quantised:
        raise InputError("training.quant_bits: no layer of the model can be loaded in 4 bits; leave it out")
    say(
        f"training.quant_bits: {quantised:,} of {count_parameters(model)['all']:,} parameters are in 4 bits while "
        "training: linear layers of the language model. Answers, scores and exports use the base as it is on disk"
    )


def _numbers_in(parameter: torch.nn.Parameter) -> int:
    """Return how many numbers an element holds: bitsandbytes packs two of 4 bits into a byte."""
    return 2 if type(parameter).__name__ == "Params4bit" else 1
