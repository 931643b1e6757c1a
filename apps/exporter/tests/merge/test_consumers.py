"""Programs that load an export: transformers and ms-swift."""

import pytest
from tiny_checkpoint import merge_in


@pytest.mark.slow
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


@pytest.mark.slow
def test_swift_infers(sharded, tmp_path, forked):
    merge_in(sharded, tmp_path / "out")
    (tmp_path / "infer.py").write_text(INFER)
    done = forked(tmp_path / "infer.py", tmp_path / "out", HF_HUB_OFFLINE="1", CUDA_VISIBLE_DEVICES="")
    assert "TOKENS" in done.stdout, done.stderr[-2000:]
