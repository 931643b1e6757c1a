"""The samples of reinforcement learning: images with their prompts, and the objects that answers are compared with."""

from __future__ import annotations

from io import BytesIO
from typing import Any

from PIL import Image

from coord_trainer.data.samples import Samples
from coord_trainer.data.workers import leave_signals_to_the_parent


class RewardSamples(Samples):
    """The samples of a mixture as rows of ms-swift's rollouts, which encode them together with each answer."""

    def __getitem__(self, index: int) -> dict[str, Any]:
        leave_signals_to_the_parent()
        number, record, passes = self.mixture.plan.locate(range(len(self))[index], self._epoch)
        image, prompt, instance = self.drawn(record, passes, number)
        taught, _ = self._writers[number].objects(instance, passes)
        objects = [*taught, *(item for item in instance.objects if item.iscrowd)]
        return {
            "messages": [{"role": "user", "content": f"<image>{prompt}"}],
            "images": [{"bytes": _lossless(image), "path": None}],
            "solution": [
                {"desc": item.desc, "bbox": list(item.bbox), "iscrowd": bool(item.iscrowd)} for item in objects
            ],
            "sample": str(instance.image if instance.image_id is None else instance.image_id),
            "source": number,
        }

    def keeps(self, images: int, number: int = 0) -> bool:
        """Return False: nothing is encoded before its answers are known."""
        return False


def _lossless(image: Image.Image) -> bytes:
    """Return an image as PNG, as ms-swift's rollouts take no open images."""
    stream = BytesIO()
    image.save(stream, "PNG", compress_level=1)
    return stream.getvalue()
