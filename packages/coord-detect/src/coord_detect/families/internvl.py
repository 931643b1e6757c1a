"""The row of InternVL3 and InternVL3.5, in the form that transformers ships (`OpenGVLab/InternVL3-1B-hf`)."""

from types import MappingProxyType

from coord_detect.families.family import Family

ROWS = (
    Family(
        "InternVL3",
        "internvl",
        swift_model="internvl",
        swift_template="internvl_hf",
        sizes="1B, 2B, 8B, 14B, 38B, 78B, in transformers' form (`-hf`)",
        vision_start="",
        image_token="<IMG_CONTEXT>",
        vision_end="\n",
        image_inputs=("pixel_values",),
        token_types=None,
        vision_tower="model.vision_tower",
        merger="model.multi_modal_projector",
        patch_size=14,
        max_side_ratio=None,
        native_markers=None,
        cannot=MappingProxyType(
            {
                "packing": "its position ids do not tell where the samples of a row begin; set data.packing=false",
                "pixels": "its image processor cuts every image into tiles of one size",
            }
        ),
    ),
)
