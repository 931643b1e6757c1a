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
