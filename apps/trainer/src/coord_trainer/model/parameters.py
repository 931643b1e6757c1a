"""The parameters of a model that is trained: its head, the rows that are trained, and their numbers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from coord_adapter import offset_parameters
from coord_codec import WILDCARD_TOKEN, CoordVocab, InputError
from coord_codec.files import read_json
from coord_detect.console import say
from coord_trainer.config.run_config import RunConfig


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
