"""The digest of weights: which checkpoints it tells apart, and what does not change it."""

import json

import torch
from safetensors.torch import save_file

from coord_adapter import weights_digest

TENSORS = {"table": torch.randn(4000, 128, generator=torch.Generator().manual_seed(0)), "norm": torch.ones(7)}


def digest_of(folder, tensors):
    folder.mkdir(exist_ok=True)
    save_file(tensors, folder / "model.safetensors")
    return weights_digest(folder)


def test_weights_digest_tells_other_coordinate_rows_a_value_and_a_name_apart(tmp_path):
    rows = TENSORS["table"].clone()
    rows[1234:2234] += 1e-3
    others = [TENSORS | {"table": rows}, TENSORS | {"norm": torch.arange(7.0)}, TENSORS | {"more": torch.ones(1)}]
    digests = [digest_of(tmp_path / "one", tensors) for tensors in (TENSORS, *others)]
    assert len(set(digests)) == 4 and weights_digest(tmp_path) is None


def test_weights_digest_does_not_depend_on_the_files_of_the_tensors(tmp_path):
    weight_map = {}
    (tmp_path / "sharded").mkdir()
    for name, tensor in TENSORS.items():
        save_file({name: tensor}, tmp_path / "sharded" / f"of-{name}.safetensors", {"format": "pt"})
        weight_map[name] = f"of-{name}.safetensors"
    (tmp_path / "sharded" / "model.safetensors.index.json").write_text(json.dumps({"weight_map": weight_map}))
    assert weights_digest(tmp_path / "sharded") == digest_of(tmp_path / "one", TENSORS)
