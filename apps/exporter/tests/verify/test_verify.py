"""`--verify`: what it measures, and that it catches a wrong export."""

import shutil
import sys
from dataclasses import replace

import pytest
from safetensors.torch import save_file
from tiny_checkpoint import (
    EMBED,
    HEAD,
    edit_json,
    edit_tensors,
    make_adapter,
    merge_quietly,
    read_all,
    read_json,
    shake,
)

from coord_exporter import ExportError, merge, steps
from coord_exporter.adapter import open_adapter
from coord_exporter.checkpoint.read import open_checkpoint
from coord_exporter.cli import main
from coord_exporter.verify.tensors import verify_tensors

# The package's `merge` is the function; this is the module.
merge_module = sys.modules["coord_exporter.merge"]


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


@pytest.mark.slow
def test_figures_of_a_verification_are_recorded(exported):
    _, _, out, report = exported["float32"]
    assert report.verification["compared"] == report.changed and report.verification["largest_error"] < 1e-4
    assert read_json(out / "export.json")["history"][-1]["verification"] == report.verification


@pytest.mark.slow
def test_merges_of_bases_up_to_a_size_are_verified_by_default(bases, adapters, tmp_path, monkeypatch):
    """In Python and on the command line, to the byte."""
    base = bases(False)
    calls, size = [], open_checkpoint(base).nbytes
    assert merge_module._VERIFIED_BYTES == 1 << 30  # as help and documentation say
    monkeypatch.setattr(merge_module, "_verify", lambda *given: calls.append(given) or ({"compared": 1}, []))
    cases = ((size, None, True), (size - 1, None, False), (size - 1, True, True), (size, False, False))
    for limit, verify, is_verified in cases:
        monkeypatch.setattr(merge_module, "_VERIFIED_BYTES", limit)
        calls.clear()
        merge(base, adapters / "offsets", tmp_path / f"{limit}-{verify}", verify=verify, quiet=True)
        assert bool(calls) == is_verified
        (entry,) = read_json(tmp_path / f"{limit}-{verify}" / "export.json")["history"]
        assert entry.get("verification") == ({"compared": 1} if is_verified else None)
    monkeypatch.setattr(merge_module, "_VERIFIED_BYTES", size)
    with pytest.raises(SystemExit):  # of the command line
        main(["merge", str(base), str(adapters / "offsets"), str(tmp_path / "by-command"), "--quiet"])
    assert calls


ADAPTED, OTHER = "model.language_model.layers.1.mlp.down_proj.weight", "model.visual.merger.linear_fc1.weight"
WRONG = {
    "embedding": ("bfloat16", lambda out, base: {EMBED: base[EMBED]}, f"{EMBED} differs from PEFT's by .* changes it"),
    "head": ("float32", lambda out, base: {HEAD: base[HEAD]}, f"{HEAD} differs from PEFT's by"),
    "adapted": ("bfloat16", lambda out, base: {ADAPTED: base[ADAPTED]}, f"{ADAPTED} differs from PEFT's by"),
    "not adapted": ("bfloat16", lambda out, base: {OTHER: out[OTHER] * 2}, f"{OTHER} differs from the base's"),
    "missing": ("bfloat16", lambda out, base: {OTHER: None}, f"{OTHER} is missing in the export"),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", WRONG)
def test_a_wrong_tensor_is_noticed(exported, tmp_path, kind):
    dtype, spoil, message = WRONG[kind]
    base, adapter, out, _ = exported[dtype]
    shutil.copytree(out, tmp_path / "out")
    spoiled = read_all(out) | spoil(read_all(out), read_all(base))
    kept = {name: tensor for name, tensor in spoiled.items() if tensor is not None}
    save_file(kept, tmp_path / "out" / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ExportError, match=f"verify: {message}"):
        verify_tensors(open_checkpoint(base), open_adapter(adapter), open_checkpoint(tmp_path / "out"))


@pytest.mark.slow
def test_a_merge_that_did_nothing_is_noticed_at_any_size(bases, tmp_path, monkeypatch):
    base = bases(True)
    shake(make_adapter(tmp_path / "adapter", base, "tied"), std=0.003, seed=3).save_pretrained(tmp_path / "adapter")
    monkeypatch.setattr(merge_module, "_VERIFIED_BYTES", 0)  # the base is too large to be verified by default
    report = merge(base, tmp_path / "adapter", tmp_path / "out", verify=True, quiet=True)
    figures = report.verification
    assert figures["compared"] == report.changed == 15
    assert 0 <= figures["largest_error"] < 1e-3
    for step in (steps.LoraStep, steps.RowsStep):
        monkeypatch.setattr(step, "open", lambda self: lambda rows, lo, hi: rows)
    with pytest.raises(ExportError, match="differs from PEFT's"):
        merge(base, tmp_path / "adapter", tmp_path / "nothing", verify=True, quiet=True)
    assert not (tmp_path / "nothing").exists()


def test_a_factor_on_disk_that_was_not_read_is_noticed(exported, tmp_path):
    base, adapter, _, _ = exported["bfloat16"]
    shutil.copytree(adapter, tmp_path / "read")
    forgotten = "layers.1.mlp.down_proj"
    edit_tensors(tmp_path / "read", lambda tensors: [tensors.pop(name) for name in [*tensors] if forgotten in name])
    edit_json(tmp_path / "read" / "adapter_config.json", exclude_modules=rf".*{forgotten}")
    merge_quietly(base, tmp_path / "read", tmp_path / "out")
    whole = open_adapter(adapter)
    read = tuple(tensor for tensor in whole.file.tensors if forgotten not in tensor.name)
    with pytest.raises(ExportError, match=rf"verify: .*{forgotten}.* differs from PEFT's"):
        verify_tensors(
            open_checkpoint(base),
            replace(whole, file=replace(whole.file, tensors=read)),
            open_checkpoint(tmp_path / "out"),
        )


@pytest.mark.slow
def test_changes_lost_in_rounding_are_told(bases, tmp_path):
    make_adapter(tmp_path / "adapter", bases(False), None)
    edit_tensors(tmp_path / "adapter", lambda tensors: [t.mul_(1e-4) for n, t in tensors.items() if "layers.0" in n])
    report = merge(bases(False), tmp_path / "adapter", tmp_path / "out", verify=True, quiet=True)
    assert any(
        "7 of 14 changes are lost by rounding" in warning and "the first in model.language_model.layers.0" in warning
        for warning in report.warnings
    )


def test_models_that_cannot_be_run(exported, tmp_path):
    base, adapter, _, _ = exported["float32"]
    shutil.copytree(base, tmp_path / "base")
    edit_json(tmp_path / "base" / "config.json", model_type="of-next-year", architectures=["OfNextYear"])
    with pytest.raises(ExportError, match=r"verify: the models could not be compared .*--no-verify exports"):
        merge(tmp_path / "base", adapter, tmp_path / "out", quiet=True)
    assert [path.name for path in tmp_path.iterdir()] == ["base"]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("target", "tied"), [("embed_tokens", True), ("lm_head", False)])
def test_lora_on_a_table_of_a_16_bit_base_is_verified(bases, tmp_path, target, tied):
    """PEFT saves the table beside its factors, and merges a stored one in 16 bits: rounded twice."""
    make_adapter(tmp_path / "adapter", bases(tied), None, target_modules=[target, "q_proj"])
    assert any(name.endswith("base_layer.weight") for name in read_all(tmp_path / "adapter"))
    report = merge(bases(tied), tmp_path / "adapter", tmp_path / "out", verify=True, quiet=True)
    # An adapted side of a tied pair unties it: PEFT's merge changes both, ours the adapted one.
    assert report.verification["compared"] >= 3 and report.untied is tied
