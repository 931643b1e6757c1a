"""Coordinate offsets in a run: which rows, on which model, in which adapter file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from coord_adapter import (
    MODULE_NAME,
    CoordOffsetConfig,
    check_peft_config,
    install_coord_offset_adapter,
    load_adapter,
)
from coord_codec import CoordVocab

from .config import RunConfig
from .errors import InputError


def offset_ids(config: RunConfig, vocab: CoordVocab, markers: tuple[int, ...] | None, rows: int) -> list[int]:
    """The ids whose rows are trained: the coordinates and, where the run added them, the object markers.

    Args:
        config: the run.
        vocab: the tokenizer's coordinates.
        markers: ids of the markers in use.
        rows: rows of the model's embedding.

    Raises:
        InputError: ids of the config that do not fit the tokenizer or the embedding, with both sides.
    """
    # Qwen's own markers are known to its checkpoints; <obj_start> and <obj_end> are new and untrained.
    added = list(markers or ()) if config.data.markers == "obj" else []
    ids = config.custom.coord_offset.token_ids([*vocab.ids, *added])
    missing = sorted(set(vocab.ids) - set(ids))
    if missing:
        raise InputError(
            f"custom.coord_offset.ids: {len(missing)} coordinates of the tokenizer are not among them (the first is "
            f"{missing[0]}); the tokenizer's are {vocab.ids[0]}..{vocab.ids[-1]}, both ends included"
        )
    if max(ids) >= rows:
        raise InputError(
            f"custom.coord_offset.ids: {max(ids)} lies outside the embedding, which has {rows} rows; expand the "
            "checkpoint's vocabulary first (uv run apps/exporter expand-vocab)"
        )
    return ids


def install_offsets(
    config: RunConfig, pipeline: Any, vocab: CoordVocab, markers: tuple[int, ...] | None
) -> int:
    """Put the tables on the loaded model and name them to swift's tuner; returns how many rows are trained.

    Raises:
        InputError: settings that do not go together with offsets.
    """
    settings: CoordOffsetConfig = config.custom.coord_offset
    arguments = pipeline.args
    ids = offset_ids(config, vocab, markers, pipeline.model.get_input_embeddings().num_embeddings)
    try:
        check_peft_config(
            {
                "modules_to_save": arguments.modules_to_save,
                "target_modules": arguments.target_modules,
                "use_dora": arguments.use_dora,
            },
            use_liger_kernel=bool(arguments.use_liger_kernel),
        )
    except ValueError as error:
        raise InputError(f"custom.coord_offset.enabled is true, but {error}") from None
    install_coord_offset_adapter(
        pipeline.model,
        ids,
        tie_head=settings.tie_head,
        dtype=settings.dtype,
        fingerprint=vocab.fingerprint(markers=markers),
    )
    arguments.modules_to_save = [*arguments.modules_to_save, MODULE_NAME]
    return len(ids)


def is_adapter(path: Path) -> bool:
    """Whether a folder holds a PEFT adapter rather than a whole model."""
    return (path / "adapter_config.json").is_file()


def base_of(path: Path) -> Path:
    """The base checkpoint that the adapter at `path` was trained on.

    Raises:
        InputError: the adapter does not name one, or it is not there any more.
    """
    base = json.loads((path / "adapter_config.json").read_text()).get("base_model_name_or_path")
    if not base or not Path(base).is_dir():
        raise InputError(
            f"{path}: its adapter_config.json names the base {base!r}, and there is no such folder here"
        )
    return Path(base)


def put_on(base_model: Any, path: Path, fingerprint: str | None) -> Any:
    """Load the adapter at `path`, with its offsets where it has any.

    Raises:
        InputError: an adapter that does not fit the base or the vocabulary.
    """
    from peft import PeftModel

    saved = json.loads((path / "adapter_config.json").read_text()).get("modules_to_save") or []
    try:
        if MODULE_NAME in saved:
            return load_adapter(base_model, path, fingerprint=fingerprint)
        return PeftModel.from_pretrained(base_model, path)
    except (OSError, ValueError) as error:
        raise InputError(f"{path}: {error}") from None
