"""A tiny Qwen3-VL checkpoint with tokenizer and processor, and adapters whose every tensor is non-zero."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from safetensors import safe_open
from safetensors.torch import save_file
from transformers import Qwen3VLConfig, Qwen3VLForConditionalGeneration

from coord_adapter import install_coord_offset_adapter, with_offset_modules
from coord_codec import MARKERS, WILDCARD_TOKEN, CoordVocab, coord_tokens
from coord_exporter import InputError, merge
from coord_exporter.checkpoint.read import TensorInfo
from coord_exporter.checkpoint.recipe import Recipe

EMBED, HEAD = "model.language_model.embed_tokens.weight", "lm_head.weight"
ADAPTER_WEIGHTS = "adapter_model.safetensors"

SPECIALS = [
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    *MARKERS["qwen"].tokens,
    "<|vision_start|>",
    "<|vision_end|>",
    "<|vision_pad|>",
    "<|image_pad|>",
    "<|video_pad|>",
]
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{% for part in message.content %}"
    "{% if part.type == 'image' %}<|vision_start|><|image_pad|><|vision_end|>{% else %}{{ part.text }}"
    "{% endif %}{% endfor %}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
TEXT_LINEAR = r".*language_model.*_proj"


def make_tokenizer(expanded=True):
    from tokenizers import AddedToken
    from tokenizers.pre_tokenizers import ByteLevel
    from transformers import Qwen2Tokenizer

    vocab = {token: i for i, token in enumerate(sorted(ByteLevel.alphabet()))}
    tokenizer = Qwen2Tokenizer(vocab=vocab, merges=[], eos_token="<|im_end|>", extra_special_tokens=SPECIALS)
    if expanded:
        plain = [WILDCARD_TOKEN, *coord_tokens()]
        tokenizer.add_tokens([AddedToken(token, special=False, normalized=False) for token in plain])
    return tokenizer


def make_qwen_tokenizer():
    """Qwen's real vocabulary (151,669 entries)."""
    import dashscope
    from transformers import PreTrainedTokenizerFast
    from transformers.convert_slow_tokenizer import TikTokenConverter

    names = "endoftext im_start im_end object_ref_start object_ref_end box_start box_end quad_start quad_end "
    names += "vision_start vision_end vision_pad image_pad video_pad"
    code = "fim_prefix fim_middle fim_suffix fim_pad repo_name file_sep"
    specials = [f"<|{name}|>" for name in names.split()] + ["<tool_call>", "</tool_call>"]
    specials += [f"<|{name}|>" for name in code.split()]
    specials += ["<tool_response>", "</tool_response>", "<think>", "</think>"]
    pattern = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    pattern += r"|\s*[\r\n]+|\s+(?!\S)|\s+"
    vocab = Path(dashscope.__file__).parent / "resources" / "qwen.tiktoken"
    converted = TikTokenConverter(str(vocab), pattern=pattern, extra_special_tokens=specials).converted()
    return PreTrainedTokenizerFast(tokenizer_object=converted, eos_token="<|im_end|>")


def make_processor(tokenizer):
    from transformers import Qwen2VLImageProcessor, Qwen3VLProcessor, Qwen3VLVideoProcessor

    images = Qwen2VLImageProcessor(
        patch_size=16, merge_size=2, temporal_patch_size=2, size={"shortest_edge": 32 * 32, "longest_edge": 64 * 64}
    )
    return Qwen3VLProcessor(images, tokenizer, Qwen3VLVideoProcessor(patch_size=16), chat_template=TEMPLATE)


def make_model(tokenizer, tied, dtype=torch.float32, rows=None, seed=0, hidden=64):
    token_id = tokenizer.convert_tokens_to_ids
    torch.manual_seed(seed)
    config = Qwen3VLConfig(
        text_config={
            "vocab_size": rows or -(-len(tokenizer) // 64) * 64,
            "hidden_size": hidden,
            "intermediate_size": 96,
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 2,
            "head_dim": 16,
            "max_position_embeddings": 512,
            "initializer_range": 0.2,
            "tie_word_embeddings": tied,
            "rope_parameters": {
                "rope_type": "default",
                "rope_theta": 10000.0,
                "mrope_section": [4, 2, 2],
                "mrope_interleaved": True,
            },
        },
        vision_config={
            "depth": 1,
            "hidden_size": 32,
            "intermediate_size": 64,
            "num_heads": 2,
            "out_hidden_size": hidden,
            "patch_size": 16,
            "num_position_embeddings": 16,
            "deepstack_visual_indexes": [0],
            "initializer_range": 0.2,
        },
        tie_word_embeddings=tied,
        image_token_id=token_id("<|image_pad|>"),
        video_token_id=token_id("<|video_pad|>"),
        vision_start_token_id=token_id("<|vision_start|>"),
        vision_end_token_id=token_id("<|vision_end|>"),
    )
    model = Qwen3VLForConditionalGeneration(config)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() == 1:
                parameter.add_(torch.randn_like(parameter) * 0.1)  # norms and biases that differ from 1 and 0
    return model.to(dtype).eval()


def make_base(folder, tied=False, dtype=torch.float32, max_shard_size="5GB", expanded=True, companions=True, **kwargs):
    tokenizer = make_tokenizer(expanded)
    make_model(tokenizer, tied, dtype, **kwargs).save_pretrained(folder, max_shard_size=max_shard_size)
    if companions:
        make_processor(tokenizer).save_pretrained(folder)
        (Path(folder) / "LICENSE").write_text("a licence\n")
    return Path(folder)


def load(folder, dtype=None):
    return Qwen3VLForConditionalGeneration.from_pretrained(folder, dtype=dtype or "auto").eval()


def shake(model, std=0.05, seed=5):
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                noise = torch.randn(parameter.shape, generator=generator) * std
                parameter.copy_((parameter.float() + noise).to(parameter.dtype))
    return model


def coord_vocab():
    return CoordVocab.from_tokenizer(make_tokenizer())


def make_adapter(folder, base, offsets=None, fingerprint="right", **lora):
    """Save an adapter for a base; `offsets` is None, "tied" or "separate". Returns the live PEFT model."""
    vocab, model = coord_vocab(), load(base)
    torch.manual_seed(1)
    arguments = {"r": 8, "lora_alpha": 12, "target_modules": TEXT_LINEAR, **lora}
    if offsets:
        text = vocab.fingerprint("qwen") if fingerprint == "right" else fingerprint
        ids = list(vocab.ids)[::-1] if offsets == "separate" else list(vocab.ids)
        install_coord_offset_adapter(model, ids, tie_head=offsets == "tied", fingerprint=text)
        arguments = with_offset_modules(arguments)
    peft_model = shake(get_peft_model(model, LoraConfig(**arguments)))
    peft_model.save_pretrained(folder)
    return peft_model.eval()


def read_all(folder):
    """Every tensor of a checkpoint by name, read by the safetensors library."""
    tensors = {}
    for path in sorted(Path(folder).glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            tensors |= {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    return tensors


def read_json(path):
    return json.loads(Path(path).read_text())


def edit_json(path, **changes):
    path.write_text(json.dumps(read_json(path) | changes))


def edit_tensors(folder, change):
    tensors = read_all(folder)
    change(tensors)
    save_file(tensors, folder / ADAPTER_WEIGHTS)


def offset_key(name):
    return f"base_model.model.coord_offset_adapter.{name}"


def link_base(base, folder):
    """Make a checkpoint as the hub's cache holds it: a snapshot of links to blobs."""
    snapshot, blobs = folder / "snapshots" / "0123", folder / "blobs"
    shutil.copytree(base, blobs)
    snapshot.mkdir(parents=True)
    for path in blobs.iterdir():
        (snapshot / path.name).symlink_to(Path("../../blobs") / path.name)
    return snapshot


def merge_quietly(base, adapter, out, **options):
    return merge(base, adapter, out, verify=False, quiet=True, **options)


def merge_in(folder, out, **options):
    return merge_quietly(folder / "base", folder / "adapter", out, **options)


def refused(files, match, adapter=None, out=None):
    """Check that a merge of `files/base` and `files/adapter` is refused in one line and nothing written."""
    out = out or files.parent / "out"
    before = sorted(p.relative_to(files.parent) for p in files.parent.rglob("*"))
    with pytest.raises(InputError, match=match) as caught:
        merge_quietly(files / "base", adapter or files / "adapter", out)
    assert "\n" not in str(caught.value)
    assert sorted(p.relative_to(files.parent) for p in files.parent.rglob("*")) == before


def plain_recipe(rows, width):
    return Recipe("t", "F32", (rows, width), TensorInfo("t", "F32", (rows, width), None, 0))


def same_files(one, other):
    contents = [{path.name: path.read_bytes() for path in folder.iterdir()} for folder in (one, other)]
    return contents[0] == contents[1]
