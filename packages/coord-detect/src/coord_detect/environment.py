"""The variables that swift and Hugging Face's libraries read while they are imported."""

from __future__ import annotations

import os

_DEFAULTS = {
    # Network access only if a configuration enables it.
    "HF_HUB_OFFLINE": "1",
    "HF_DATASETS_OFFLINE": "1",
    "TOKENIZERS_PARALLELISM": "false",
    "LOG_LEVEL": "WARNING",  # of swift's logger during its import
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "KINETO_LOG_LEVEL": "99",  # the profiler warns when there is no GPU
}
_SPIN = "3000"
"""Number of spins for which a thread of PyTorch waits actively for others (300,000 by default). If another program uses
one of two cores, the first run's steps take .5 s instead of 3 to 8 s; on an idle machine their time is unchanged."""


def set_environment(download: bool = False) -> None:
    """Set the variables that are not set yet, before the libraries are imported; `download` allows the network."""
    for name, value in _DEFAULTS.items():
        os.environ.setdefault(name, value)
    if "OMP_WAIT_POLICY" not in os.environ:
        os.environ.setdefault("GOMP_SPINCOUNT", _SPIN)
    if os.environ.get("RANK", "0") != "0":
        os.environ["TQDM_DISABLE"] = "1"  # only the first rank shows progress bars
    if download:
        os.environ["HF_HUB_OFFLINE"] = "0"
