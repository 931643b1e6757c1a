"""`--verify`: what it measures, and that it catches a wrong export."""

import shutil

import pytest
import torch
from safetensors.torch import save_file
from tiny_checkpoint import EMBED, make_adapter, read_all, read_json

from coord_exporter import ExportError, merge
from coord_exporter.adapter import open_adapter
from coord_exporter.checkpoint.read import open_checkpoint
from coord_exporter.verify import verify_export


@pytest.fixture(scope="module")
def exported(bases, tmp_path_factory):
    """(base, adapter, out) for bf16 and fp32, with small offsets on the coordinates."""
    made = {}
    for dtype in ("bfloat16", "float32"):
        folder = tmp_path_factory.mktemp(dtype)
        make_adapter(folder / "adapter", bases(False, dtype), "separate")
        report = merge(bases(False, dtype), folder / "adapter", folder / "out", quiet=True)
        made[dtype] = (bases(False, dtype), folder / "adapter", folder / "out", report)
    return made


def test_default_for_small_bases_with_an_image(exported):
    figures = exported["float32"][3].verification
    assert figures["image"] is True and figures["tokens"] == figures["equal_tokens"] == 64
    assert 0 < figures["max_difference"] < 1e-4 < figures["tolerance"] < 1e-2
    record = read_json(exported["float32"][2] / "export.json")["history"][-1]
    assert record["verification"] == figures


def test_tolerance_follows_the_type(exported):
    figures = exported["bfloat16"][3].verification
    assert 1e-3 < figures["max_difference"] < figures["tolerance"] < 1


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
@pytest.mark.parametrize("forgotten", [EMBED, "lm_head.weight", "model.language_model.layers.1.mlp.down_proj.weight"])
def test_a_forgotten_tensor_is_noticed(exported, tmp_path, dtype, forgotten):
    base, adapter, out, _ = exported[dtype]
    shutil.copytree(out, tmp_path / "out")
    spoiled = read_all(out) | {forgotten: read_all(base)[forgotten]}
    save_file(spoiled, tmp_path / "out" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ExportError, match=r"verify: logits differ from PEFT's by .* nothing was written"):
        verify_export(open_checkpoint(base), open_adapter(adapter), tmp_path / "out")


def test_failed_verification_leaves_nothing(exported, tmp_path, monkeypatch):
    from coord_exporter import steps

    base, adapter, _, _ = exported["float32"]
    monkeypatch.setattr(steps, "read_float", lambda tensor: torch.zeros(tensor.shape))
    with pytest.raises(ExportError, match="verify"):
        merge(base, adapter, tmp_path / "out", verify=True, quiet=True)
    assert not list(tmp_path.iterdir())


def test_models_that_cannot_be_run(exported, tmp_path):
    import json

    base, adapter, _, _ = exported["float32"]
    shutil.copytree(base, tmp_path / "base")
    config = read_json(base / "config.json") | {"model_type": "of-next-year", "architectures": ["OfNextYear"]}
    (tmp_path / "base" / "config.json").write_text(json.dumps(config))
    with pytest.raises(ExportError, match=r"verify: the models could not be compared .*--no-verify exports"):
        merge(tmp_path / "base", adapter, tmp_path / "out", quiet=True)
    assert [path.name for path in tmp_path.iterdir()] == ["base"]
