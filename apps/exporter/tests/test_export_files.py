"""What lies in OUT: shards and index, configuration, companions, record; and consumers that load it."""

import hashlib
import json
import shutil
from pathlib import Path

import pytest
import torch
from export_tiny import coord_vocab, load, make_adapter, make_base, read_all, read_json

from coord_exporter import InputError, merge
from coord_exporter.layout import parse_size


@pytest.fixture(scope="module")
def sharded(tmp_path_factory):
    folder = tmp_path_factory.mktemp("sharded")
    make_base(folder / "base", True, torch.bfloat16, max_shard_size="60KB")
    make_adapter(folder / "adapter", folder / "base", "separate")
    return folder


def run(folder, out, **options):
    return merge(folder / "base", folder / "adapter", out, verify=False, quiet=True, **options)


def check_index(out):
    index = read_json(out / "model.safetensors.index.json")
    names = sorted(path.name for path in out.glob("*.safetensors"))
    assert sorted(set(index["weight_map"].values())) == names
    from safetensors import safe_open

    held = {}
    for name in names:
        with safe_open(out / name, "pt") as file:
            assert file.metadata() == {"format": "pt"}
            held |= dict.fromkeys(file.keys(), name)
    assert index["weight_map"] == held
    tensors = read_all(out)
    assert index["metadata"]["total_size"] == sum(t.nbytes for t in tensors.values())
    if "total_parameters" in index["metadata"]:
        assert index["metadata"]["total_parameters"] == sum(t.numel() for t in tensors.values())
    return names


def test_shards_are_those_of_the_base(sharded, tmp_path):
    run(sharded, tmp_path / "out")
    names = check_index(tmp_path / "out")
    assert len(names) > 2 and names == sorted(p.name for p in (sharded / "base").glob("*.safetensors"))
    # A file of which no tensor changes type or shape keeps its header, one that is not adapted every byte.
    same = [n for n in names if (tmp_path / "out" / n).read_bytes() == (sharded / "base" / n).read_bytes()]
    assert 0 < len(same) < len(names)


@pytest.mark.parametrize(("size", "least"), [("90KB", 5), ("1B", None), ("300KB", 2), ("1GB", 1)])
def test_new_shards(sharded, tmp_path, size, least):
    if least is None:
        with pytest.raises(InputError, match="--max-shard-size: expected a size such as 5GB"):
            parse_size(size)
        return
    run(sharded, tmp_path / "out", max_shard_size=parse_size(size))
    run(sharded, tmp_path / "reference")
    one, other = read_all(tmp_path / "out"), read_all(tmp_path / "reference")
    assert one.keys() == other.keys() and all(torch.equal(one[n], other[n]) for n in one)
    if least == 1:
        assert [p.name for p in (tmp_path / "out").glob("model*")] == ["model.safetensors"]
        return
    names = check_index(tmp_path / "out")
    assert len(names) >= least and names[0] == f"model-00001-of-{len(names):05d}.safetensors"
    for name in names:
        file = read_all_of(tmp_path / "out" / name)
        assert len(file) == 1 or sum(t.nbytes for t in file.values()) <= parse_size(size)


def read_all_of(path):
    from safetensors.torch import load_file

    return load_file(path)


def test_mixed_types_stay_aligned(tmp_path, bases):
    from safetensors.torch import save_file

    shutil.copytree(bases(False), tmp_path / "base")
    extra = {"a.odd": torch.ones(3, dtype=torch.uint8), "z.wide": torch.ones(5, dtype=torch.float64)}
    extra |= {"scalar": torch.tensor(2.5), "empty": torch.zeros(0, 4)}
    tensors = read_all(tmp_path / "base") | extra
    save_file(tensors, tmp_path / "base" / "model.safetensors", metadata={"format": "pt"})
    make_adapter(tmp_path / "adapter", bases(False), "tied")
    for size in (None, 200_000):
        run(tmp_path, tmp_path / f"out{size}", max_shard_size=size)
        found = read_all(tmp_path / f"out{size}")
        assert all(torch.equal(found[name], extra[name]) for name in extra)


def test_companions_come_along_unchanged(sharded, tmp_path):
    report = run(sharded, tmp_path / "out")
    base = {p.name: p for p in (sharded / "base").iterdir() if "safetensors" not in p.name}
    for name in (
        "tokenizer.json",
        "tokenizer_config.json",
        "generation_config.json",
        "chat_template.jinja",
        "LICENSE",
    ):
        assert name in base
    for name, path in base.items():
        if name != "config.json":
            assert (tmp_path / "out" / name).read_bytes() == path.read_bytes()
    expected = read_json(sharded / "base" / "config.json")
    expected["tie_word_embeddings"] = expected["text_config"]["tie_word_embeddings"] = False
    assert read_json(tmp_path / "out" / "config.json") == expected
    assert len(report.warnings) == 1 and "tie_word_embeddings is false" in report.warnings[0]


def test_links_and_left_overs(sharded, tmp_path):
    base = tmp_path / "base"
    base.mkdir()
    for path in (sharded / "base").iterdir():
        (base / path.name).symlink_to(path)  # as in a download cache
    (base / "optimizer.pt").write_bytes(b"state")
    (base / "original").mkdir()
    (base / "original" / "weights.pth").write_bytes(b"old")
    shutil.copytree(sharded / "adapter", tmp_path / "adapter")
    report = run(tmp_path, tmp_path / "out")
    assert not any(path.is_symlink() for path in (tmp_path / "out").iterdir())
    assert not (tmp_path / "out" / "optimizer.pt").exists()
    assert any("2 files left out: optimizer.pt, original/weights.pth" in w for w in report.warnings)
    assert load(tmp_path / "out").get_output_embeddings().weight is not None


def test_base_without_tokenizer_and_adapter_without_fingerprint(tmp_path):
    make_base(tmp_path / "base", True, torch.float32, companions=False)
    make_adapter(tmp_path / "adapter", tmp_path / "base", "tied", fingerprint=None)
    report = merge(tmp_path / "base", tmp_path / "adapter", tmp_path / "out", quiet=True)
    assert [w.split(": ")[1][:18] for w in report.warnings[:2]] == [
        "no tokenizer files",
        "no processor files",
    ]
    assert "the adapter carries no fingerprint" in report.warnings[2]
    assert report.verification["image"] is False and report.verification["equal_tokens"] == 64


@pytest.mark.parametrize("spelling", [None, "qwen", "obj", "ids"])
def test_fingerprints_of_any_marker_family_are_known(bases, tmp_path, spelling):
    from export_tiny import make_tokenizer

    from coord_codec import MARKERS

    markers = MARKERS["qwen"].ids(make_tokenizer()) if spelling == "ids" else spelling
    make_adapter(
        tmp_path / "adapter", bases(True), "tied", fingerprint=coord_vocab().fingerprint(markers=markers)
    )
    report = merge(bases(True), tmp_path / "adapter", tmp_path / "out", verify=False, quiet=True)
    assert not report.warnings


def test_tokenizer_from_the_adapter(tmp_path, sharded):
    from export_tiny import make_processor, make_tokenizer

    make_base(tmp_path / "base", True, torch.bfloat16, companions=False)
    make_adapter(tmp_path / "adapter", tmp_path / "base", "tied")
    make_processor(make_tokenizer()).save_pretrained(tmp_path / "adapter")
    report = run(tmp_path, tmp_path / "out")
    assert any("taken from the adapter's folder" in w for w in report.warnings)
    for name in ("tokenizer.json", "chat_template.jinja", "processor_config.json"):
        assert (tmp_path / "out" / name).exists()


def test_record(sharded, tmp_path):
    run(sharded, tmp_path / "out")
    content = read_json(tmp_path / "out" / "export.json")
    assert content["format"] == 1
    (entry,) = content["history"]

    def digest(path):
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()

    assert entry["kind"] == "merge" and entry["tied"] is False and entry["changed_tensors"] == 16
    weights = sharded / "adapter" / "adapter_model.safetensors"
    assert entry["adapter"]["adapter_model.safetensors"] == digest(weights)
    for path in (sharded / "base").glob("*.safetensors"):
        assert entry["base"][path.name] == digest(path)
    assert entry["base"]["config.json"] == digest(sharded / "base" / "config.json")
    assert entry["fingerprint"] == coord_vocab().fingerprint("qwen")
    assert set(entry["versions"]) == {"python", "torch", "coord-exporter", "coord-codec"}
    assert str(tmp_path) not in json.dumps(content)


def test_same_inputs_same_bytes(sharded, tmp_path):
    for name in ("one", "other"):
        run(sharded, tmp_path / name)
    one, other = ({p.name: p.read_bytes() for p in (tmp_path / name).iterdir()} for name in ("one", "other"))
    assert one == other


def test_transformers_loads_and_generates(sharded, tmp_path):
    from transformers import AutoModelForImageTextToText, AutoProcessor

    run(sharded, tmp_path / "out")
    model, report = AutoModelForImageTextToText.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not report["missing_keys"] and not report["unexpected_keys"] and not report["mismatched_keys"]
    assert model.get_output_embeddings().weight is not model.get_input_embeddings().weight
    processor = AutoProcessor.from_pretrained(tmp_path / "out")
    inputs = processor(text="<|im_start|>user", return_tensors="pt")
    answer = model.generate(**inputs, max_new_tokens=5, do_sample=False, eos_token_id=None, pad_token_id=0)
    assert answer.shape[1] == inputs["input_ids"].shape[1] + 5


@pytest.mark.slow
def test_swift_infers(sharded, tmp_path):
    pytest.importorskip("swift")
    import os
    import subprocess
    import sys

    run(sharded, tmp_path / "out")
    script = (
        "import sys\n"
        "from swift import InferRequest, RequestConfig\n"
        "from swift.infer_engine import TransformersEngine\n"
        "engine = TransformersEngine(sys.argv[1], model_type='qwen3_vl', template_type='qwen3_vl')\n"
        "request = InferRequest(messages=[{'role': 'user', 'content': 'where?'}])\n"
        "answer = engine.infer([request], RequestConfig(max_tokens=6, temperature=0))\n"
        "print('TOKENS', answer[0].usage.completion_tokens)\n"
    )
    offline = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-c", script, str(tmp_path / "out")]
    done = subprocess.run(command, capture_output=True, text=True, env=os.environ | offline, check=False)
    assert "TOKENS" in done.stdout, done.stderr[-2000:]
