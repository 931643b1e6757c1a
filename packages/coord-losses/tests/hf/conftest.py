import sys
from pathlib import Path

import pytest

# Test modules and worker processes share the tiny models beside them.
sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture(autouse=True)
def stock_callbacks(monkeypatch):
    """Hugging Face's own callbacks: ms-swift, imported by another test of this process, puts its own in their place."""
    try:
        from transformers import DefaultFlowCallback, PrinterCallback, ProgressCallback, trainer
    except ImportError:
        return
    monkeypatch.setattr(trainer, "DEFAULT_CALLBACKS", [DefaultFlowCallback])
    monkeypatch.setattr(trainer, "DEFAULT_PROGRESS_CALLBACK", ProgressCallback)
    monkeypatch.setattr(trainer, "PrinterCallback", PrinterCallback)
