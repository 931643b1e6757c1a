"""ms-swift templates and model entries of the model families, with coordinate tokens.

All are registered under new names, so that swift's own entries are unchanged; nothing is patched.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import torch
from swift.model import MODEL_MAPPING, register_model
from swift.template import TEMPLATE_MAPPING, Template, register_template
from swift.utils import safe_snapshot_download

from coord_codec import InputError
from coord_codec.files import read_json
from coord_detect.families.family import Family
from coord_detect.families.registry import FAMILIES

_OF_ROWS = ("input_ids", "attention_mask", "mm_token_type_ids", "image_grid_thw")
"""What of a batch decides the positions of its tokens, an entry a row."""


class CoordTemplate(Template):
    """A template of swift with ids from the model's config and images through the checkpoint's image processor.

    swift hard-codes Qwen's image ids, so that with another vocabulary its placeholders would stay unexpanded, and it
    resizes images with another library than inference does. `_register` derives a class of each family from this one
    and from swift's template.
    """

    family: Family
    load_images = True
    skip_bbox_norm = True

    def init_processor(self, processor: Any) -> None:  # noqa: D102
        self.placeholder_tokens = [self.family.image_token]  # swift writes ids into its list, that of the class
        super().init_processor(processor)
        if processor is not None:
            self.image_token_id = self.config.image_token_id
            self.video_token_id = getattr(self.config, "video_token_id", None)

    def normalize_bbox(self, inputs: Any) -> None:
        """Leave boxes unchanged, since they are coordinate tokens in the text already."""
        if not self.skip_bbox_norm:
            super().normalize_bbox(inputs)

    def replace_tag(self, media_type: Any, index: Any, inputs: Any) -> Any:  # noqa: D102
        if media_type != "image":
            raise InputError(f"the coordinate template takes images only, found {media_type}")
        if not hasattr(inputs, "expanded"):  # a server such as vLLM expands it
            return [self.family.placeholder]
        return [f"{self.family.vision_start}{inputs.expanded[index]}{self.family.vision_end}"]

    def _encode(self, inputs: Any) -> Any:
        processor, family, media = self.processor, self.family, {}
        if inputs.images:
            settings = processor.valid_processor_kwargs._defaults.get("images_kwargs", {})
            media = processor.image_processor(images=inputs.images, return_tensors="pt", **settings)
            inputs.expanded = [processor.replace_image_token(media, i) for i in range(len(inputs.images))]
        encoded = Template._encode(self, inputs)
        if family.empty_thought and encoded["labels"] is not None:
            thought = self._tokenize(family.empty_thought)
            encoded["labels"] = without_empty_thoughts(encoded["labels"], thought)
        if inputs.images:
            encoded |= {name: media[name] for name in family.image_inputs}
        self._add_token_types(encoded, encoded["input_ids"])
        return encoded

    def _get_position_ids(self, inputs: Any) -> Any:
        """Compute the positions of rows with equal images and lengths once: transformers does so row by row."""
        ids_BT, grids = inputs["input_ids"], inputs.get("image_grid_thw")
        is_image_BT = ids_BT == self.image_token_id
        mask_BT = inputs.get("attention_mask")
        one_each = grids is not None and len(grids) == len(ids_BT) and bool(is_image_BT.any(dim=1).all())
        if not one_each or mask_BT is None or mask_BT.shape != ids_BT.shape:
            return super()._get_position_ids(inputs)
        facts = torch.cat([is_image_BT.long(), mask_BT.long(), grids], dim=1)
        kinds = [row.tobytes() for row in facts.numpy()]
        first = {kind: row for row, kind in reversed(list(enumerate(kinds)))}
        rows, place = list(first.values()), {kind: n for n, kind in enumerate(first)}
        few = {name: value[rows] for name, value in inputs.items() if name in _OF_ROWS}
        positions_BT = super()._get_position_ids(few)["position_ids"]
        return {"position_ids": positions_BT[:, [place[kind] for kind in kinds]]}

    def _truncate(self, input_ids: Any, labels: Any, encoded: Any, truncation_strategy: Any) -> Any:
        kept, labels = super()._truncate(input_ids, labels, encoded, truncation_strategy)
        self._add_token_types(encoded, kept)
        return kept, labels

    def _add_token_types(self, encoded: Any, input_ids: Any) -> Any:
        """Add the model's token types, also to a sample without images, since all rows of a batch need them."""
        if self.family.token_types is not None:
            is_image_T = torch.tensor(input_ids) == self.image_token_id
            encoded[self.family.token_types] = is_image_T.long()


def without_empty_thoughts(labels: list[int], thought: list[int]) -> list[int]:
    """Return labels in which a thought without content at the beginning of an answer is not supervised.

    A prompt ends with it, since answers are asked for without thoughts.

    Example:
        >>> without_empty_thoughts([-100, 7, 8, 5], thought=[7, 8])
        [-100, -100, -100, 5]
    """
    labels, length = list(labels), len(thought)
    for start, label in enumerate(labels):
        begins = label != -100 and (start == 0 or labels[start - 1] == -100)
        if begins and labels[start : start + length] == thought:
            labels[start : start + length] = [-100] * length
    return labels


def _register(family: Family) -> None:
    """Register template and model entry of a family, unless they are registered already.

    Raises:
        InputError: ms-swift has no model or template of the names that the family states.
    """
    for key, name, table in (
        ("swift_model", family.swift_model, MODEL_MAPPING),
        ("swift_template", family.swift_template, TEMPLATE_MAPPING),
    ):
        if name not in table:
            raise InputError(
                f"the record of the model family {family.name}: {key}: the installed ms-swift has no {name!r}; use a "
                "name that it lists"
            )
    if family.template not in TEMPLATE_MAPPING:
        source = TEMPLATE_MAPPING[family.swift_template]
        theirs = source.template_cls
        register_template(
            dataclasses.replace(
                source,
                template_type=family.template,
                template_cls=type(f"Coord{theirs.__name__}", (CoordTemplate, theirs), {"family": family}),
                default_system=family.system,
                non_thinking_prefix=family.empty_thought,
                stop_words=list(source.stop_words),
            )
        )
    if family.entry not in MODEL_MAPPING:
        source = MODEL_MAPPING[family.swift_model]
        # Code from a model repository is never executed.
        local = {"default_trust_remote_code": False}
        register_model(
            dataclasses.replace(
                source,
                model_type=family.entry,
                loader=type(f"Local{source.loader.__name__}", (source.loader,), local),
                model_groups=[],
                template=family.template,
                architectures=[],
                model_arch=source.model_arch.arch_name,  # registering replaces the name by the names of the parts
                is_multimodal=True,
            )
        )


def apply_coord_template_adapter(*, coord_tokens: bool = True, skip_bbox_norm: bool = True) -> str:
    """Register templates and model entries of all families (idempotent); returns the name of those of Qwen3-VL.

    Args:
        coord_tokens: whether boxes are coordinate tokens
        skip_bbox_norm: whether swift's own box normalisation is disabled for them

    Example:
        >>> apply_coord_template_adapter()
        'qwen3_vl_coord'
    """
    CoordTemplate.skip_bbox_norm = coord_tokens and skip_bbox_norm
    for family in FAMILIES.values():
        _register(family)
    return FAMILIES["qwen3_vl"].entry


def fetch_checkpoint(name: str, use_hf: bool | None, without_weights: bool) -> Path:
    """Return the folder of a checkpoint from the hub, downloaded if it is not in the cache."""
    try:
        return Path(safe_snapshot_download(name, download_model=not without_weights, use_hf=use_hf))
    except Exception as error:  # each hub has its own exceptions
        reason = " ".join(str(error).split())[:200]
        raise InputError(
            f"model.path: {name!r} cannot be fetched ({reason or type(error).__name__}) from ModelScope, or with "
            "training.use_hf=true from Hugging Face"
        ) from None


def refuse_remote_code(folder: Path) -> None:
    """Raise `InputError` if a checkpoint requires code of its own, which swift would execute to read its config."""
    for name in ("config.json", "tokenizer_config.json", "preprocessor_config.json", "processor_config.json"):
        path = folder / name
        if path.exists() and "auto_map" in read_json(path):
            raise InputError(
                f"{path}: the checkpoint asks to run its own Python code (auto_map), which is never done here; "
                "use a checkpoint of a class that transformers ships"
            )
