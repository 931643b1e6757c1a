"""A tiny random model of any image-text-to-text class of transformers: its default configuration with small sizes."""

import copy
import inspect

import torch
import transformers
from transformers import AutoConfig
from transformers.models.auto.modeling_auto import MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES as CLASSES

ROWS = 272
"""Rows of the vocabulary: those of the tests' tokenizer, in a multiple of 16."""

SMALL = {
    2: """num_hidden_layers num_layers depth n_layers encoder_layers decoder_layers num_encoder_layers
        num_decoder_layers num_key_value_heads num_experts_per_tok moe_num_experts_per_tok moe_k
        num_experts_per_token""",
    4: """num_attention_heads num_heads n_head n_heads encoder_attention_heads decoder_attention_heads num_experts
        num_local_experts n_routed_experts moe_num_experts""",
    8: "head_dim global_head_dim qk_nope_head_dim qk_rope_head_dim v_head_dim",
    32: """base_channels codebook_size
        hidden_size d_model embed_dim dim out_hidden_size projection_dim n_embd hidden_dim
        vision_hidden_size""",
    48: """intermediate_size ffn_dim encoder_ffn_dim decoder_ffn_dim d_ff moe_intermediate_size
        shared_expert_intermediate_size mlp_dim""",
    256: "max_position_embeddings max_sequence_length",
    ROWS: "vocab_size vocab_size_per_layer_input",
}
SIZE_OF = {name: size for size, names in SMALL.items() for name in names.split()}
PER_LAYER = {"layer_types", "mlp_layer_types", "fullatt_block_indexes", "deepstack_visual_indexes"}


def _shrink(part):
    for name, value in list(part.items()):
        if name == "mrope_section":
            part[name] = [2, 1, 1]
        elif name == "per_layer_config":
            part[name] = {}
        elif isinstance(value, dict) and name not in ("id2label", "label2id"):
            _shrink(value)
        elif name in SIZE_OF and type(value) is int and value > SIZE_OF[name]:
            part[name] = SIZE_OF[name]
        elif name in SIZE_OF and isinstance(value, list):
            part[name] = [min(entry, SIZE_OF[name]) for entry in value[:2]]
        elif name in ("layer_types", "mlp_layer_types") and isinstance(value, list):
            part[name] = [value[0], value[-1]]
        elif name in PER_LAYER and isinstance(value, list):
            part[name] = value[:1] and [0]
        elif str(name).endswith("_token_id") and type(value) is int:
            part[name] = value % 250
    return part


MROPE = "text_config.rope_parameters.mrope_section"
OF_THREE_SECTIONS = "glm46v glm4v glm_ocr glmga paddleocr_vl qwen2_5_omni_thinker qwen2_5_vl qwen2_vl"
CHANGES = {
    **{family: {MROPE: [1, 1, 2]} for family in OF_THREE_SECTIONS.split()},
    "chameleon": {"vocabulary_map": {"<image>": 5}},
    "deepseek_ocr2": {"text_config.mlp_layer_types": ["dense", "dense"]},
    "emu3": {"vocabulary_map": {"<image>": 5, "<|extra_200|>": 6}},
    "ernie4_5_vl_moe": {"text_config.head_dim": 8, MROPE: [1, 1, 2]},
    "glm4v_moe": {MROPE: [1, 1, 0]},
    "hunyuan_vl": {"text_config.head_dim": 8, MROPE: [1, 1, 2]},
    "step3p7": {"text_config.sliding_window": 16},
}
"""What a family needs besides: values of its configuration, `part.name` for what lies inside."""


def small_config(family, **changes):
    kind = getattr(transformers, CLASSES[family])
    default = AutoConfig.for_model(family)
    settings = _shrink(copy.deepcopy(default.to_dict()))
    for name, value in (CHANGES.get(family, {}) | changes).items():
        *parts, last = name.split(".")
        place = settings
        for part in parts:
            place = place.setdefault(part, {})
        if value is None:
            place.pop(last, None)
        else:
            place[last] = value
    config = type(default).from_dict(settings)  # several families share a class of models
    config.architectures = [kind.__name__]
    return kind, config


def with_ties(config, outer, inner):
    """Return a configuration with values of `tie_word_embeddings` at the top and in text_config; None: absent."""
    changed = copy.deepcopy(config)
    for part, value in ((changed, outer), (changed.get("text_config"), inner)):
        if part is not None:
            part["tie_word_embeddings"] = value
            if value is None:
                del part["tie_word_embeddings"]
    return changed


def make_tied(family):
    """Return a model whose embedding and head are tied, under any rule."""
    places = ["text_config.tie_word_embeddings"] if "text_config" in AutoConfig.for_model(family).to_dict() else []
    return make_model(family, **dict.fromkeys(["tie_word_embeddings", *places], True))


def make_model(family, **changes):
    kind, config = small_config(family, **changes)
    torch.manual_seed(0)
    return kind(config).eval()


def takes_text_alone(model):
    return "input_ids" in inspect.signature(model.forward).parameters
