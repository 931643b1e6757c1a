import json
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def bases(tmp_path_factory):
    """Tiny bases by (tied, dtype name), made once: nothing may change them."""
    import torch
    from tiny_checkpoint import make_base

    made = {}

    def get(tied, dtype="bfloat16"):
        if (tied, dtype) not in made:
            folder = tmp_path_factory.mktemp("base") / f"{'tied' if tied else 'untied'}-{dtype}"
            made[tied, dtype] = make_base(folder, tied, getattr(torch, dtype))
        return made[tied, dtype]

    return get


@pytest.fixture(scope="session")
def adapters(bases, tmp_path_factory):
    """Adapters by name, made once: nothing may change them."""
    from tiny_checkpoint import make_adapter

    folder = tmp_path_factory.mktemp("adapters")
    make_adapter(folder / "offsets", bases(False), "separate")
    make_adapter(folder / "dora", bases(False), "tied", use_dora=True)
    make_adapter(folder / "of-tied", bases(True), "separate")
    return folder


@pytest.fixture
def files(bases, adapters, tmp_path):
    """Copies of a base and an adapter that a test may spoil."""
    shutil.copytree(bases(False), tmp_path / "in" / "base")
    shutil.copytree(adapters / "offsets", tmp_path / "in" / "adapter")
    return tmp_path / "in"


@pytest.fixture(scope="session")
def sharded(tmp_path_factory):
    """A tied base in several files and its adapter: nothing may change them."""
    import torch
    from tiny_checkpoint import make_adapter, make_base

    folder = tmp_path_factory.mktemp("sharded")
    make_base(folder / "base", True, torch.bfloat16, max_shard_size="60KB")
    make_adapter(folder / "adapter", folder / "base", "separate")
    return folder


@pytest.fixture(scope="session")
def qwen_base(tmp_path_factory):
    """Qwen's real vocabulary, saved by transformers, under a model of width 16."""
    import torch
    from tiny_checkpoint import make_model, make_qwen_tokenizer

    tokenizer, folder = make_qwen_tokenizer(), tmp_path_factory.mktemp("qwen") / "base"
    make_model(tokenizer, True, torch.bfloat16, rows=151_936, hidden=16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


@pytest.fixture
def cached(bases, tmp_path, monkeypatch):
    """A hub id whose snapshot lies in a cache of its own."""
    from huggingface_hub import constants
    from tiny_checkpoint import link_base

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    snapshot = link_base(bases(False), tmp_path / "cache" / "models--some--base")
    (snapshot / "README.md").write_text("---\nlicense: apache-2.0\n---\nThe base's own card.\n")
    (tmp_path / "cache" / "models--some--base" / "refs").mkdir()
    (tmp_path / "cache" / "models--some--base" / "refs" / "main").write_text(snapshot.name)
    return snapshot


@pytest.fixture
def run(adapters, tmp_path):
    """The folder of a training run with three checkpoints, the last of them incomplete."""
    folder = tmp_path / "runs" / "mine"
    for steps in (5, 10, 15):
        checkpoint = shutil.copytree(adapters / "offsets", folder / "checkpoints" / f"checkpoint-{steps}")
        files = {path.name: path.stat().st_size + (steps == 15) for path in checkpoint.iterdir()}
        (checkpoint / "complete.json").write_text(json.dumps(files))
    facts = {"checkpoint": "checkpoints/checkpoint-10", "data": {"train": {"digest": "d1ge57"}}, "seed": 7}
    (folder / "manifest.json").write_text(json.dumps(facts))
    (folder / "evaluation.json").write_text(json.dumps({"coco": {"AP": 0.4375, "AP50": 0.5}}))
    return folder
