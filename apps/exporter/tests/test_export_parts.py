"""Small parts: chunks of rows, pattern rules, headers as written by the safetensors library."""

import torch
from hypothesis import given
from hypothesis import strategies as st
from peft.utils.other import get_pattern_key
from safetensors.torch import save_file

from coord_exporter import recipe
from coord_exporter.adapter_config import AdapterConfig
from coord_exporter.checkpoint import TensorInfo, read_safetensors
from coord_exporter.lora import LoraStep
from coord_exporter.offsets import OffsetStep
from coord_exporter.recipe import Recipe, row_chunks
from coord_exporter.workspace import Workspace


def plain(rows, width, steps=()):
    info = TensorInfo("t", "F32", (rows, width), None, 0)
    return Recipe("t", "F32", (rows, width), info, steps)


@given(rows=st.integers(0, 5000), width=st.integers(1, 100_000))
def test_chunks_cover_all_rows_in_whole_blocks(rows, width):
    chunks = list(row_chunks(plain(rows, width)))
    assert [row for lo, hi in chunks for row in range(lo, hi)] == list(range(rows))
    assert all(lo % 64 == 0 and hi - lo >= min(64, rows) for lo, hi in chunks)
    assert all((hi - lo) * width < 2 * max(1 << 21, 64 * width) for lo, hi in chunks)


def test_a_product_in_chunks_has_the_bits_of_the_whole(tmp_path, monkeypatch):
    generator = torch.Generator().manual_seed(0)
    weight, a, b, m = (
        torch.randn(s, generator=generator) for s in ((2100, 700), (12, 700), (2100, 12), (2100,))
    )
    save_file({"a": a, "b": b, "m": m}, tmp_path / "f.safetensors")
    infos = {t.name: t for t in read_safetensors(tmp_path / "f.safetensors").tensors}
    monkeypatch.setattr(recipe, "_CHUNK_VALUES", 128 * 700)
    for magnitude in (None, infos["m"]):
        change = LoraStep(infos["a"], infos["b"], 0.3, magnitude).open(Workspace())
        chunks = list(row_chunks(plain(2100, 700)))
        assert len(chunks) == 16
        found = torch.cat([change(weight[lo:hi].clone(), lo, hi) for lo, hi in chunks])
        expected = weight + (b @ a) * 0.3
        if magnitude is not None:
            expected = (m / torch.linalg.norm(expected, dim=1)).view(-1, 1) * expected
        assert torch.equal(found, expected)


@given(
    ids=st.lists(st.integers(0, 400), unique=True, max_size=30),
    lo=st.integers(0, 400),
    size=st.integers(0, 100),
)
def test_offsets_touch_exactly_the_chunks_with_their_ids(ids, lo, size):
    step = OffsetStep(tuple(ids), None)
    assert step.touches(lo, lo + size) == any(lo <= i < lo + size for i in ids)


NAMES = ["model.layers.1.q_proj", "model.layers.11.q_proj", "q_proj", "model.q_proj.k_proj", "xq_proj"]
PATTERNS = [
    "q_proj",
    r"layers\.1\.q_proj",
    r"1\.q_proj",
    "k_proj",
    "model.*q_proj",
    r"^model\.layers\.\d\.q_proj",
]


@given(name=st.sampled_from(NAMES), keys=st.lists(st.sampled_from(PATTERNS), unique=True))
def test_patterns_match_as_in_peft(name, keys):
    ranks = {key: i + 2 for i, key in enumerate(keys)}
    config = AdapterConfig(None, r=1, lora_alpha=1.0, rank_pattern=ranks)
    assert config.rank(name) == ranks.get(get_pattern_key(ranks, name), 1)


@given(
    shapes=st.lists(st.lists(st.integers(0, 5), max_size=3), min_size=1, max_size=6),
    dtypes=st.lists(
        st.sampled_from([torch.float32, torch.bfloat16, torch.uint8, torch.int64]), min_size=6, max_size=6
    ),
)
def test_headers_of_the_library_are_read(tmp_path_factory, shapes, dtypes):
    path = tmp_path_factory.mktemp("h") / "f.safetensors"
    tensors = {
        f"t{i}": torch.ones(s, dtype=d) * i for i, (s, d) in enumerate(zip(shapes, dtypes, strict=False))
    }
    save_file(tensors, path, metadata={"format": "pt"})
    file = read_safetensors(path)
    assert file.metadata == {"format": "pt"} and file.size == path.stat().st_size
    data = path.read_bytes()
    for info in file.tensors:
        tensor = tensors[info.name]
        assert info.shape == tuple(tensor.shape) and info.nbytes == tensor.nbytes
        assert data[info.start : info.start + info.nbytes] == bytes(
            tensor.flatten().view(torch.uint8).tolist()
        )
