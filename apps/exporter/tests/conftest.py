import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(scope="session")
def bases(tmp_path_factory):
    """Tiny bases by (tied, dtype name), made once: nothing may change them."""
    import torch
    from export_tiny import make_base

    made = {}

    def get(tied, dtype="bfloat16"):
        if (tied, dtype) not in made:
            folder = tmp_path_factory.mktemp("base") / f"{'tied' if tied else 'untied'}-{dtype}"
            made[tied, dtype] = make_base(folder, tied, getattr(torch, dtype))
        return made[tied, dtype]

    return get


@pytest.fixture(scope="session")
def qwen_base(tmp_path_factory):
    """Qwen's real vocabulary, saved by transformers, under a model of width 16."""
    import torch
    from export_tiny import make_model, make_qwen_tokenizer

    tokenizer, folder = make_qwen_tokenizer(), tmp_path_factory.mktemp("qwen") / "base"
    make_model(tokenizer, True, torch.bfloat16, rows=151_936, hidden=16).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder
