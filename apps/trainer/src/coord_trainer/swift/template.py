"""ms-swift template and model entries of Qwen3-VL, dense or mixture-of-experts, with coordinate tokens.

All are registered under new names, so that swift's own `qwen3_vl` is unchanged; nothing is patched.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path

from swift.model import MODEL_MAPPING, register_model
from swift.model.models.qwen import Qwen3VLLoader, Qwen3VLMoeLoader
from swift.template import TEMPLATE_MAPPING, Template, register_template
from swift.template.templates.qwen import Qwen3VLTemplate, QwenTemplateMeta
from swift.utils import safe_snapshot_download

from coord_codec import InputError
from coord_codec.files import read_json

MODEL_TYPE = TEMPLATE_TYPE = "qwen3_vl_coord"


class CoordTemplate(Qwen3VLTemplate):
    """Qwen3-VL's template with ids from the model's config and images through the checkpoint's image processor.

    swift hard-codes Qwen's image ids, so that with another vocabulary its placeholders would stay unexpanded, and it
    resizes images with another library than inference does.
    """

    load_images = True
    skip_bbox_norm = True

    def init_processor(self, processor) -> None:  # noqa: D102
        super().init_processor(processor)
        if processor is not None:
            self.image_token_id = self.config.image_token_id
            self.video_token_id = self.config.video_token_id

    def normalize_bbox(self, inputs) -> None:
        """Leave boxes unchanged, since they are coordinate tokens in the text already."""
        if not self.skip_bbox_norm:
            super().normalize_bbox(inputs)

    def replace_tag(self, media_type, index, inputs):  # noqa: D102
        if media_type != "image":
            raise InputError(f"the coordinate template takes images only, found {media_type}")
        return ["<|vision_start|><|image_pad|><|vision_end|>"]

    def _encode(self, inputs):
        encoded = Template._encode(self, inputs)
        ids, labels, scale = encoded["input_ids"], encoded["labels"], encoded.get("loss_scale")
        mask = [False] * len(ids)
        if inputs.images:
            media = self.processor.image_processor(images=inputs.images, return_tensors="pt")
            patches = media["image_grid_thw"].prod(dim=1) // self.processor.image_processor.merge_size**2
            places = [i for i, token in enumerate(ids) if token == self.image_token_id]
            ids, labels, scale, mask = self._extend_tokens(
                ids, labels, scale, places, lambda i: [self.image_token_id] * int(patches[i]), mm_mask=mask
            )
            encoded.update(media)
        encoded.update(input_ids=ids, labels=labels, loss_scale=scale)
        if self.requires_mm_token_type_ids and any(mask):
            encoded["mm_token_type_ids"] = self.create_mm_token_type_ids(ids, mask)
        return encoded


class _LocalLoader(Qwen3VLLoader):
    """Loads without executing code from a model repository."""

    default_trust_remote_code = False


class _LocalMoeLoader(Qwen3VLMoeLoader):
    """The same for a mixture-of-experts model."""

    default_trust_remote_code = False


_ENTRIES = {"qwen3_vl": (MODEL_TYPE, _LocalLoader), "qwen3_vl_moe": ("qwen3_vl_moe_coord", _LocalMoeLoader)}
"""Name of our model entry and its loader, by `model_type` of config.json."""


def apply_coord_template_adapter(*, coord_tokens: bool = True, skip_bbox_norm: bool = True) -> str:
    """Register template and model entries (idempotent); returns the name of the template and of the dense entry.

    Args:
        coord_tokens: whether boxes are coordinate tokens
        skip_bbox_norm: whether swift's own box normalisation is disabled for them

    Example:
        >>> apply_coord_template_adapter()
        'qwen3_vl_coord'
    """
    CoordTemplate.skip_bbox_norm = coord_tokens and skip_bbox_norm
    if TEMPLATE_TYPE not in TEMPLATE_MAPPING:
        register_template(QwenTemplateMeta(TEMPLATE_TYPE, template_cls=CoordTemplate, default_system=None))
    for kind, (name, loader) in _ENTRIES.items():
        if name not in MODEL_MAPPING:
            register_model(
                dataclasses.replace(
                    MODEL_MAPPING[kind],
                    model_type=name,
                    loader=loader,
                    model_groups=[],
                    template=TEMPLATE_TYPE,
                    architectures=[],
                    model_arch="qwen3_vl",
                    is_multimodal=True,
                )
            )
    return MODEL_TYPE


def fetch_checkpoint(name: str, use_hf: bool | None, outline: bool) -> Path:
    """Return the folder of a checkpoint from the hub, downloaded if it is not in the cache.

    Args:
        name: hub id
        use_hf: download from Hugging Face, not from ModelScope; None for ms-swift's default
        outline: download without weights

    Raises:
        InputError: the checkpoint cannot be downloaded.
    """
    try:
        return Path(safe_snapshot_download(name, download_model=not outline, use_hf=use_hf))
    except Exception as error:  # each hub has its own exceptions
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"model.path: {name!r} cannot be fetched ({reason or type(error).__name__}) from ModelScope, or with "
            "training.use_hf=true from Hugging Face"
        ) from None


def model_entry(folder: Path) -> str:
    """Return the name of our model entry for a checkpoint.

    Raises:
        InputError: it is not a Qwen3-VL.
    """
    path = folder / "config.json"
    kind = read_json(path).get("model_type")
    if kind not in _ENTRIES:
        raise InputError(
            f"{path}: model_type: expected {' or '.join(_ENTRIES)}, found {kind!r}; use a checkpoint of Qwen3-VL"
        )
    return _ENTRIES[kind][0]


def refuse_remote_code(folder: Path) -> None:
    """Raise `InputError` if a checkpoint requires code of its own, which swift would execute to read its config."""
    for name in ("config.json", "tokenizer_config.json", "preprocessor_config.json", "processor_config.json"):
        path = folder / name
        if path.exists() and "auto_map" in read_json(path):
            raise InputError(
                f"{path}: the checkpoint asks to run its own Python code (auto_map), which is never done here; "
                "use a checkpoint of a Qwen3-VL class that transformers ships"
            )
