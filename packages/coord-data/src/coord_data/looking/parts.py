"""Looks at the images of a set in parts, by all workers; parts that are done can be kept, and are not done again."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from tqdm import tqdm

from coord_codec import InputError, RunError
from coord_codec.counts import counted
from coord_data.looking.engines import execution, run_jobs
from coord_data.looking.look import look_at_images, stamp_of
from coord_data.looking.looks import VERSION, Looks, merge

_LOG = logging.getLogger(__name__)

PART = 128
"""Number of images of a part."""


class _Job(NamedTuple):
    """Images of a part: the position of the first, all names, and the positions of those whose thumbnails are kept."""

    first: int
    names: tuple[str, ...]
    kept: frozenset[int]


def look_at_set(
    names: Sequence[str], root: Path, base: Path | None = None, kept: Collection[int] = (), label: str = "images"
) -> Looks:
    """Return what a look at each image of a set tells, whatever the number of workers.

    Args:
        names: paths of the images, relative to `root`
        root: their folder
        base: folder that images must lie in; None for any
        kept: positions of the images whose thumbnails are kept
        label: name of the images, for the progress bar

    Raises:
        InputError: parts of other settings or of another version lie where parts are kept.
        RunError: a part cannot be written, or a worker was killed.
    """
    positions = np.array(sorted(kept), np.int64)

    def job(first: int) -> _Job:
        low, high = np.searchsorted(positions, (first, first + PART))
        return _Job(first, tuple(names[first : first + PART]), frozenset(positions[low:high].tolist()))

    with execution().next_set() as folder:
        starts = range(0, len(names), PART)
        stored = None if folder is None or len(starts) == 1 else _Stored.of(folder, root, base, names, positions)
        done = [] if stored is None else stored.usable(starts, root, names)
        jobs = [job(first) for first in np.setdiff1d(starts, done).tolist()]

        def parts() -> Iterator[Looks]:
            with tqdm(desc=f"checking {label}", total=len(names), unit="img", leave=False, disable=None) as bar:
                for looks in map(stored.read, done) if stored is not None else ():
                    bar.update(len(looks))
                    yield looks
                for part, looks in run_jobs(partial(_look, root=root, base=base), jobs):
                    if stored is not None:
                        stored.write(part.first, looks)
                    bar.update(len(looks))
                    yield looks

        try:
            return merge(parts())
        except KeyboardInterrupt as error:
            if stored is not None:
                error.args = (f"interrupted: {stored.kept_of(len(starts))}; the same command continues",)
            raise
        except OSError as error:
            message = f"grey values of the images cannot be written ({error.strerror}); free some space, or set TMPDIR"
            raise RunError(message) from None


def _look(job: _Job, root: Path, base: Path | None) -> Looks:
    return look_at_images(job.names, root, base, job.kept, job.first)


@dataclass(frozen=True)
class _Stored:
    """Parts that are kept in a folder."""

    folder: Path
    settings: str

    @classmethod
    def of(cls, folder: Path, root: Path, base: Path | None, names: Sequence[str], kept: np.ndarray) -> _Stored:
        """Return the parts of a set of images in a folder, which is created.

        Raises:
            RunError: it cannot be created.
        """
        places = [VERSION, PART, str(root.resolve()), None if base is None else str(base.resolve())]
        sha = hashlib.sha256(json.dumps(places).encode())
        for name in names:
            sha.update(name.encode(errors="surrogateescape") + b"\0")
        sha.update(kept.tobytes())
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"{folder}: cannot be created ({error.strerror}); choose another --out") from None
        return cls(folder, sha.hexdigest()[:24])

    def _path(self, first: int) -> Path:
        return self.folder / f"{first:09d}.parquet"

    def kept_of(self, total: int) -> str:
        """Return how many parts are kept, and where."""
        count = sum(1 for _ in self.folder.glob("*.parquet"))
        return f"{count} of {counted(total, 'part')} are kept in {self.folder.parent}"

    def read(self, first: int) -> Looks:
        """Return a part."""
        return Looks.read(self._path(first), self.settings)

    def usable(self, firsts: Sequence[int], root: Path, names: Sequence[str]) -> list[int]:
        """Return which parts are there, and whose images have not changed since.

        Raises:
            InputError: a part has another version or other settings.
        """
        found, damaged, changed = list[int](), list[Path](), 0
        for first in firsts:
            path = self._path(first)
            if not path.is_file():
                continue
            try:
                looks = self.read(first)
            except InputError as error:
                raise InputError(f"{error}; remove {self.folder.parent} or choose another --out") from None
            except (OSError, ValueError):
                damaged.append(path)
                continue
            if [stamp_of(root, name) for name in names[first : first + PART]] == [*map(tuple, looks.stamps.tolist())]:
                found.append(first)
            else:
                changed += 1
        if damaged:
            parts = counted(len(damaged), "part")
            _LOG.info(f"{parts} cannot be read, for example {damaged[0]}: their images are looked at again")
        if changed:
            _LOG.info(f"images of {counted(changed, 'part')} have changed since, and are looked at again")
        if found:
            _LOG.info(f"continuing with {counted(len(found), 'part')} of {len(firsts)} from {self.folder}")
        return found

    def write(self, first: int, looks: Looks) -> None:
        """Keep a part.

        Raises:
            RunError: it cannot be written.
        """
        try:
            looks.write(self._path(first), self.settings)
        except OSError as error:
            reason = f"cannot be written ({error.strerror or error}); free some space and repeat the command, which"
            raise RunError(f"{self._path(first)}: {reason} continues with the parts that are there") from None
