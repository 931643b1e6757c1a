"""The row of Gemma 3 with vision.

Where it differs from Qwen's families: the token of a prompt that stands for an image is not the one that is repeated; a
text begins with a token that the chat template and the tokenizer both write; an answer ends with `<end_of_turn>`, which
is not the tokenizer's end of a text; rows of the embedding are scaled; image tokens attend to each other both ways.
"""

from types import MappingProxyType

from coord_detect.families.family import Family

ROWS = (
    Family(
        "Gemma 3",
        "gemma3",
        swift_model="gemma3_vision",
        swift_template="gemma3_vision",
        sizes="4B, 12B, 27B",
        vision_start="",
        placeholder_token="<start_of_image>",
        image_token="<image_soft_token>",
        vision_end="",
        answer_end="<end_of_turn>",
        image_inputs=("pixel_values",),
        token_types="token_type_ids",
        vision_tower="model.vision_tower",
        merger="model.multi_modal_projector",
        patch_size=14,
        merge_size=4,
        max_side_ratio=None,
        native_markers=None,
        cannot=MappingProxyType(
            {
                "packing": "its attention within images does not tell where the samples of a row begin; set "
                "data.packing=false",
                "speed": "its layers of sliding windows cannot go back to before a rejected draft",
                "merger": "it is a bare matrix, which takes no adapter",
                "pixels": "its image processor resizes every image to one square",
            }
        ),
    ),
)
