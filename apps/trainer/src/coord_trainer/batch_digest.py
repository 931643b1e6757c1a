"""A digest of the batches that a run begins with: proof that two runs saw the same pictures in the same order."""

from __future__ import annotations

import hashlib
from typing import Any

import torch

# Micro-batches that are digested; what they agree on, a shared seed and sampler carry on.
FIRST_BATCHES = 4


class BatchDigest:
    """Hashes pixels and target tokens of the first micro-batches of this rank, apart from each other.

    Groups that write the same pictures in another form agree in `pictures` alone.
    """

    def __init__(self) -> None:
        self._count = 0
        self._hashes = {"pictures": hashlib.sha256(), "targets": hashlib.sha256()}

    def add(self, inputs: dict[str, Any], labels_BT: torch.Tensor) -> None:
        """Take in a micro-batch; does nothing after the first few."""
        if self._count == FIRST_BATCHES:
            return
        self._count += 1
        parts = {"pictures": inputs.get("pixel_values"), "targets": labels_BT}
        for name, tensor in parts.items():
            if tensor is not None:
                whole = tensor.detach().cpu().contiguous()
                self._hashes[name].update(str(tuple(whole.shape)).encode())
                self._hashes[name].update(whole.flatten().view(torch.uint8).numpy().tobytes())

    def values(self) -> dict[str, Any]:
        """What the manifest keeps; empty when nothing was trained."""
        if not self._count:
            return {}
        return {name: sha.hexdigest()[:16] for name, sha in self._hashes.items()} | {"batches": self._count}
