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
