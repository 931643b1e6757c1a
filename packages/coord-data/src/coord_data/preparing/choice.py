"""`Choice`: which of the records that were read are written."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from coord_codec import InputError
from coord_codec.settings import SettingsRecord, setting


@dataclass(frozen=True)
class Choice(SettingsRecord):
    """Which records `prepare` and `merge_prepared` write; the options of both commands.

    Raises:
        InputError: boxes of duplicates are joined that are not left out, or images are chosen from a part.
    """

    split: float | None = setting(
        None, "The share of images for val.jsonl, selected by their content.", least=0, most=1
    )
    drop_duplicates: Literal["exact", "near"] | None = setting(
        None, "Keep the first of equal files, or also of copies of another size or quality.", choices=("exact", "near")
    )
    join_boxes: bool = setting(False, "Give the image that is kept the boxes that only its copies have.")
    count: int | None = setting(
        None, "The number of images to draw from all; the same ones again with the same --seed.", least=1
    )
    seed: int = setting(0, "Decides which images --count draws.")
    as_part: bool = setting(False, "Write a part of a larger set, for `coord-data merge`.")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.join_boxes and self.drop_duplicates is None:
            raise InputError("--join-boxes joins those of duplicates that are left out; add --drop-duplicates exact")
        given = {"--split": self.split, "--drop-duplicates": self.drop_duplicates, "--count": self.count}
        for option, value in given.items() if self.as_part else ():
            if value is not None:
                raise InputError(f"{option}: a part does not know the images of the others; give it to the last merge")

    @property
    def needs_looks(self) -> bool:
        """Whether the images are decoded."""
        return self.as_part or self.split is not None or self.drop_duplicates is not None

    def folder_of(self, out: Path) -> Path:
        """Return the folder of the written files."""
        is_file = out.suffix == ".jsonl"
        if is_file and self.split is not None:
            raise InputError(f"--split writes two files, but --out {out} is one; name a folder")
        if is_file and self.as_part:
            raise InputError(f"--as-part writes a folder, but --out {out} is a file; name a folder")
        return (out.parent if is_file else out).resolve()
