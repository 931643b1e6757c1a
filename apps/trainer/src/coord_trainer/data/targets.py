"""The target text of a sample: prompt, and objects in training order."""

from __future__ import annotations

import zlib
from dataclasses import dataclass

from coord_codec import CoordVocab, Instance, Object, coordinates_of, select_objects
from coord_codec.geometry import Coordinates
from coord_trainer.config.sections import DataSection
from coord_trainer.data.queries import LONGEST_LIST, draw_query


@dataclass(frozen=True)
class TargetWriter:
    """Turns an instance into prompt and target text; `classes` are the classes that queries may ask for."""

    data: DataSection
    coord_tokens: bool
    seed: int
    vocab: CoordVocab | None
    classes: tuple[str, ...] = ()

    def ask(self, instance: Instance, epoch: int = 0) -> tuple[str, Instance]:
        """Return the prompt of a sample in an epoch, and the instance with only the objects that answer it."""
        query = draw_query(instance, self.data, self.classes, self.seed_of(instance, epoch))
        return query.prompt, query.answer(instance)

    def objects(self, instance: Instance, epoch: int = 0) -> tuple[list[Object], int]:
        """Return the objects in training order, and the number beyond `data.max_objects`."""
        seed = self.seed_of(instance, epoch)
        kept, dropped = select_objects(instance, self.data.order, self.data.max_objects, seed)
        return list(kept), dropped

    def text(self, instance: Instance, epoch: int = 0) -> str:
        """Return the target text; with `order: random` it differs between epochs."""
        kept, _ = self.objects(instance, epoch)
        return self.data.target_text(instance.model_copy(update={"objects": tuple(kept)}), self.coord_tokens)

    def true_coordinates(self, instance: Instance, epoch: int = 0) -> list[Coordinates]:
        """Return the unrounded ground-truth coordinates of each object in the target text."""
        return [coordinates_of(target, self.data.shape) for target in self.objects(instance, epoch)[0]]

    def longest(self, instance: Instance) -> str:
        """Return a text with at least as many tokens as any answer plus the longest addition to `data.prompt`."""
        if self.data.queries == "all":
            return self.text(instance)
        names = ", ".join(sorted(self.classes, key=len)[-LONGEST_LIST:])
        return self.text(instance) + self.data.class_prompt.replace("{classes}", names)

    def seed_of(self, instance: Instance, epoch: int) -> int:
        """Return the seed of all random choices for an image in an epoch."""
        return zlib.crc32(f"{self.seed} {epoch} {instance.image_id} {instance.image}".encode())
