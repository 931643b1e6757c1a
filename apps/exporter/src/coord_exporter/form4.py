"""`--form 4`: the small files of a checkpoint as transformers 4 wrote them, for programs that read no others.

transformers 5 states the rotary embedding as `rope_parameters`, special tokens as a list `extra_special_tokens`, and
image and video processor in processor_config.json. transformers 4.57 and programs that read these files themselves
(mlx-vlm) do not open that. No weight changes.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from coord_codec.files import InputError
from coord_exporter.checkpoint.folder import Export
from coord_exporter.checkpoint.read import read_object

FORMS = (4,)
"""Forms that can be asked for, by the major version of transformers; without one the base's files are kept."""

_QWEN = ("qwen2_vl", "qwen2_5_vl", "qwen3_vl")
"""Families whose vision tower has the family's own `model_type` in form 4."""
_FAMILIES = (*_QWEN, "internvl")
"""Families (`model_type`) whose form 4 is known. The tensors of others have other names, or sides, in transformers 4:
those of SigLIP in Gemma 3, experts; and transformers 4 lacks Qwen3.5."""
_OF_ALL = {f"{name}_token" for name in ("bos", "eos", "unk", "sep", "pad", "cls", "mask")}
"""Special tokens of every tokenizer, as opposed to those of a model, which form 4 lists as `extra_special_tokens`."""
_VISION_THETA = 10000.0
"""The only base of a vision tower's rotary embedding that transformers 4 has, in code."""
_BESIDE = ("rope_theta", "partial_rotary_factor")
"""Values of `rope_parameters` that stand beside `rope_scaling` in form 4."""
_TOKENIZER, _PROCESSOR = "tokenizer_config.json", "processor_config.json"
_NEWER = ("backend", "extra_special_tokens", "model_specific_special_tokens")
"""Fields of tokenizer_config.json that form 4 has not, or in another form."""
_PARTS = {"image_processor": "preprocessor_config.json", "video_processor": "video_preprocessor_config.json"}
"""Files of transformers 4 by the part of processor_config.json that they hold."""
_EDGES = {"min_pixels": "shortest_edge", "max_pixels": "longest_edge"}
"""Older names of the limits of images, which stand beside the newer ones."""


def check_form(form: int | None) -> None:
    """Raise `InputError` if a form is not known."""
    if form is not None and form not in FORMS:
        raise InputError(f"--form: expected {' or '.join(map(str, FORMS))}, found {form}; without it files are kept")


def in_form(export: Export, form: int | None) -> Export:
    """Return an export whose small files have a form; None keeps them.

    Raises:
        InputError: if the form of the model's family is not known, or cannot state a value of its configuration
    """
    if form is None:
        return export
    path = export.base.folder / "config.json"
    if (kind := export.config.get("model_type")) not in _FAMILIES:
        raise InputError(f"{path}: model_type: expected {' or '.join(_FAMILIES)} for --form {form}, found {kind!r}")
    config = dict(export.config)
    for name in ("text_config", "vision_config"):
        if isinstance(config.get(name), dict):
            config[name] = _without_parameters(config[name], f"{path}: {name}", in_vision=name == "vision_config")
    config = _without_parameters(config, str(path), in_vision=False)
    if kind in _QWEN and isinstance(config.get("vision_config"), dict):
        config["vision_config"] |= {"model_type": kind}
    entry = export.entry and export.entry | {"form": form}
    return replace(export, config=config, entry=entry, rewritten=export.rewritten | _small_files(export))


def _without_parameters(section: dict[str, Any], where: str, *, in_vision: bool) -> dict[str, Any]:
    """Return a section of a configuration with `rope_theta` and `rope_scaling` in place of `rope_parameters`."""
    if not isinstance(stated := section.get("rope_parameters"), dict):
        return section
    rest = {key: value for key, value in section.items() if key != "rope_parameters"}
    beside = {key: value for key, value in stated.items() if key in _BESIDE}
    scaling = {key: value for key, value in stated.items() if key not in _BESIDE}
    theta = stated.get("rope_theta")
    if not isinstance(theta, int | float) or (in_vision and theta != _VISION_THETA):
        expected = f"{_VISION_THETA:g}" if in_vision else "a number"
        raise InputError(
            f"{where}: rope_parameters.rope_theta: expected {expected}, which form 4 states, found {theta!r}"
        )
    if in_vision:
        return rest
    if scaling != {"rope_type": "default"}:
        return rest | beside | {"rope_scaling": scaling | {"type": scaling.get("rope_type")}}
    return rest | beside | {"rope_scaling": None}


def _small_files(export: Export) -> dict[str, dict[str, Any]]:
    """Return the files beside config.json whose content differs in form 4, by name."""

    def content(name: str) -> dict[str, Any]:
        known = export.rewritten.get(name)
        return known or (read_object(export.companions[name]) if name in export.companions else {})

    files: dict[str, dict[str, Any]] = {}
    tokenizer = content(_TOKENIZER)
    extra = tokenizer.get("extra_special_tokens")
    if isinstance(extra, list) or "backend" in tokenizer:
        kept = {key: value for key, value in tokenizer.items() if key not in _NEWER}
        of_model = {key: value for key, value in kept.items() if key.endswith("_token") and key not in _OF_ALL}
        kept |= {"extra_special_tokens": of_model} if of_model else {}
        files[_TOKENIZER] = kept | {"additional_special_tokens": extra if isinstance(extra, list) else []}
    processor = content(_PROCESSOR)
    parts = {key: value for key, value in processor.items() if key in _PARTS and isinstance(value, dict)}
    for part, settings in parts.items():
        size = settings.get("size") or {}
        older = {key: size[edge] for key, edge in _EDGES.items() if edge in size}
        files[_PARTS[part]] = older | settings | {"processor_class": processor.get("processor_class")}
    if parts:
        files[_PROCESSOR] = {key: value for key, value in processor.items() if key not in parts}
    return files
