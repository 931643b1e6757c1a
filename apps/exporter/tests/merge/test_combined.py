"""Several adapters with weights, and weights of another type."""

import pytest
import torch
from tiny_checkpoint import EMBED, HEAD, load, make_adapter, read_all, read_json

from coord_exporter import InputError, merge
from coord_exporter.cli import parse_weighted


@pytest.mark.parametrize("tied", [True, False], ids=["tied", "untied"])
def test_merge_of_two_adapters_adds_their_weighted_changes(bases, tmp_path, tied):
    base = bases(tied, "float32")
    make_adapter(tmp_path / "a", base, "tied")
    make_adapter(tmp_path / "b", base, None, target_modules=["q_proj", "qkv"], r=3, use_rslora=True)
    for name in ("a", "b"):
        merge(base, tmp_path / name, tmp_path / f"{name}-out", verify=False, quiet=True)
    report = merge(
        base, tmp_path / "a", tmp_path / "out", weight=0.5, add=[(tmp_path / "b", -2.0)], verify=True, quiet=True
    )
    before, one, other = (read_all(folder) for folder in (base, tmp_path / "a-out", tmp_path / "b-out"))
    for name, found in read_all(tmp_path / "out").items():
        expected = before[name] + 0.5 * (one[name] - before[name]) - 2 * (other[name] - before[name])
        assert (found - expected).abs().max() < 1e-5
    assert (report.verification["compared"] == report.changed and HEAD in before) or tied
    (entry,) = read_json(tmp_path / "out" / "export.json")["history"]
    assert (entry["adapter"]["weight"], [one["name"] for one in entry["added"]]) == (0.5, ["b"])
    assert "adapters and weights | a 0.5, b -2" in (tmp_path / "out" / "README.md").read_text()
    with pytest.raises(InputError, match=r"is merged into .*out already"):
        merge(tmp_path / "out", tmp_path / "b", tmp_path / "again", quiet=True)


@pytest.mark.parametrize("lora", [{"use_dora": True}, {"modules_to_save": ["merger"]}])
@pytest.mark.parametrize("options", [{"weight": 0.5}, {"add": True}])
def test_merge_refuses_weights_of_changes_that_are_no_sums(bases, adapters, tmp_path, lora, options):
    make_adapter(tmp_path / "a", bases(False), None, **lora)
    if "add" in options:
        options = {"add": [(adapters / "offsets", 1.0)]}
    with pytest.raises(InputError, match="replace weights instead of adding to them"):
        merge(bases(False), tmp_path / "a", tmp_path / "out", quiet=True, **options)


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "float32"])
def test_dtype_is_that_of_all_weights_and_of_the_configuration(bases, adapters, tmp_path, dtype):
    merge(bases(False), adapters / "offsets", tmp_path / "out", dtype=dtype, verify=True, quiet=True)
    merge(bases(False), adapters / "offsets", tmp_path / "kept", verify=False, quiet=True)
    kept = read_all(tmp_path / "kept")
    for name, found in read_all(tmp_path / "out").items():
        assert found.dtype == getattr(torch, dtype)
        assert (
            (found.float() - kept[name].float()).abs().max() < 0.02 if dtype != "bfloat16" else found.equal(kept[name])
        )
    config = read_json(tmp_path / "out" / "config.json")
    assert config["dtype"] == dtype and config["text_config"].get("dtype", dtype) == dtype
    assert load(tmp_path / "out").get_input_embeddings().weight.dtype == getattr(torch, dtype)
    assert EMBED in kept


def test_parse_weighted():
    assert parse_weighted("runs/x") == ("runs/x", 1.0) and parse_weighted("a=b=-0.5") == ("a=b", -0.5)
    with pytest.raises(InputError, match=r"--add: expected ADAPTER=WEIGHT"):
        parse_weighted("a=much")


@pytest.mark.parametrize("name", ["lr=1e-4", "lr=1e-4/adapter"])
def test_parse_weighted_takes_a_folder_that_is_named_with_an_equals_sign(tmp_path, monkeypatch, name):
    monkeypatch.chdir(tmp_path)
    (tmp_path / name).mkdir(parents=True)
    assert parse_weighted(name) == (name, 1.0) and parse_weighted(f"{name}=0.5") == (name, 0.5)
