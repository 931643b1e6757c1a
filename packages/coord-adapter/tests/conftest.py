import sys
from pathlib import Path

import pytest

# Test modules are imported by path; the tiny model they share stands beside them.
sys.path.insert(0, str(Path(__file__).parent))

COMBINATIONS = [(base, head) for base in (True, False) for head in (True, False)]
NAMES = [f"base_{'tied' if base else 'untied'}-head_{'tied' if head else 'own'}" for base, head in COMBINATIONS]


@pytest.fixture(scope="module", params=COMBINATIONS, ids=NAMES)
def combination(request):
    """(base ties embedding and head, the offsets tie them)."""
    return request.param
