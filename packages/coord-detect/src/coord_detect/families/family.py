"""The record of a model family: everything that the trainer has to know about one architecture."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

_REFUSED = {"merger", "packing", "pixels", "speed"}
"""Keys of `Family.cannot`."""


@dataclass(frozen=True)
class Family:
    """What distinguishes one architecture from another.

    Attributes:
        name: in messages
        model_type: of the checkpoint's config.json
        swift_model: name of ms-swift's model entry, whose loader is used
        swift_template: name of ms-swift's template, from which ours is derived
        sizes: published sizes, for the guide
        shared_template: name of another family's template of ours that is used; None for one of its own
        vision_start: text before the placeholder in a prompt
        image_token: the token of the model's input that the processor repeats for each merged patch; it may put text of
            its own around them
        placeholder_token: the token that stands for an image in a prompt; None for `image_token`
        vision_end: text after the placeholder
        answer_end: token that ends an answer, also where the chat template writes nothing after it
        vision_tower: name of the vision tower's module in the model
        merger: name of the module that projects merged patches to the language model's width, in the tower or beside it
        language_model: name of the language model's module
        head: name of the output head's module
        patch_size: side of a patch in pixels
        merge_size: side of a square of patches that become one token
        max_side_ratio: largest ratio of the sides of an image that the image processor takes; None for any
        native_markers: family of object markers that pretrained checkpoints know; None for none
        system: system message that the published chat template adds if none is given; None for none
        empty_thought: text that begins an answer without thoughts; empty for models that do not think
        cannot: what the family cannot do, with the reason: `packing`, `pixels` (limits of the image size), `speed`
            (drafted tokens), `merger` (an adapter on that module)
        image_inputs: what the image processor outputs for the model, of all images of a batch one after the other
        whole_tile: of a processor that cuts images into tiles, the one that shows the whole image: -1 for the last, 0
            for the first
        token_types: name of the model's input that is 1 at image tokens and 0 elsewhere; None for none

    Raises:
        ValueError: `cannot` has another key.
    """

    name: str
    model_type: str
    swift_model: str
    swift_template: str
    sizes: str = ""
    shared_template: str | None = None
    vision_start: str = "<|vision_start|>"
    image_token: str = "<|image_pad|>"
    placeholder_token: str | None = None
    vision_end: str = "<|vision_end|>"
    answer_end: str = "<|im_end|>"
    vision_tower: str = "model.visual"
    merger: str = "model.visual.merger"
    language_model: str = "model.language_model"
    head: str = "lm_head"
    patch_size: int = 16
    merge_size: int = 2
    max_side_ratio: float | None = 200
    native_markers: str | None = "qwen"
    system: str | None = None
    empty_thought: str = ""
    cannot: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    image_inputs: tuple[str, ...] = ("pixel_values", "image_grid_thw")
    whole_tile: int = -1
    token_types: str | None = "mm_token_type_ids"

    def __post_init__(self) -> None:
        if unknown := set(self.cannot) - _REFUSED:
            raise ValueError(f"{self.name}: cannot: expected {' or '.join(sorted(_REFUSED))}, found {min(unknown)!r}")

    @property
    def entry(self) -> str:
        """Name of our model entry in ms-swift."""
        return f"{self.model_type}_coord"

    @property
    def template(self) -> str:
        """Name of our template in ms-swift, which checkpoints state."""
        return self.shared_template or self.entry

    @property
    def placeholder(self) -> str:
        """Text of one image in a prompt."""
        return f"{self.vision_start}{self.placeholder_token or self.image_token}{self.vision_end}"
