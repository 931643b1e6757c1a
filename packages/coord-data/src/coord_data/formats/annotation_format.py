"""The table of annotation formats: one row a format, and how a user adds one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from coord_codec import AnnotationSet, Problem
from coord_codec.registry import Registry
from coord_data.formats.collect import collect
from coord_data.looking.image_paths import Found, found_here
from coord_data.sources.partners import Partners, partners_of
from coord_data.sources.raw import RawImage, Reading
from coord_data.sources.source import Source

if TYPE_CHECKING:
    import numpy as np

    from coord_data.looking.image_file import ImageFolder
    from coord_data.looking.looks import Looks
    from coord_data.sources.object_rules import ObjectRules
    from coord_data.sources.raw_boxes import RawBoxes


def _no_looks() -> Looks:
    from coord_data.looking.looks import Looks  # which needs NumPy, unlike the names of the formats

    return Looks.of(())


@dataclass(frozen=True)
class Evidence:
    """What was read from a source of any format, so that it can be examined without reading anything again.

    Attributes:
        named: the file or folder that the user named
        annotations: the records as read, before images were checked; image paths are relative to its root
        root: folder that image paths are relative to
        base: folder that images must lie in
        format: the format that it was read as
        notes: notes for the user on how it was read
        raw: the numbers as the source states them
        folder: the images that were opened
        files: what a look at each image of `raw` told; empty before `gather_evidence`
        partners: which images and annotation files have no partner, of a format with a file for each image
    """

    named: Path
    annotations: AnnotationSet
    root: Path
    base: Path
    format: str
    notes: tuple[str, ...]
    raw: RawBoxes = field(repr=False)
    folder: ImageFolder = field(repr=False)
    files: Looks = field(default_factory=_no_looks, repr=False)
    partners: Partners = field(default_factory=Partners, repr=False)

    def of_images(self, mask_I: np.ndarray) -> Evidence:
        """Return what was read of some images alone: those of `raw` that a mask [I] of booleans holds true."""
        import numpy as np  # the names of the formats are known without it

        left_out = {name for name, kept in zip(self.raw.files, mask_I.tolist(), strict=True) if not kept}
        instances = [instance for instance in self.annotations.instances if instance.image not in left_out]
        raw = replace(self.raw, table=self.raw.table.of_images(mask_I))
        positions_n = np.flatnonzero(mask_I)
        files = self.files.take(positions_n).numbered(np.arange(len(positions_n)))
        return replace(self, annotations=self.annotations.select(instances), raw=raw, files=files)


@dataclass(frozen=True)
class Example:
    """The smallest source of a format. It shows a cat from (20, 10) to (60, 40) in an image of 100 x 50 pixels.

    Attributes:
        files: text of each file by its path
        named: the path that a user names
        image: path of the image
    """

    files: Mapping[str, str]
    named: str
    image: str = "a.jpg"


Recognise = Callable[[Source], bool]
Read = Callable[[Source, "Path | None"], Reading]
Load = Callable[[Source, "ObjectRules"], Evidence]


@dataclass(frozen=True)
class AnnotationFormat:
    """A row of the table `FORMATS`.

    Attributes:
        name: name of the format in settings and options
        title: its name in words
        about: what it looks like, in the documentation
        examples: an example of each geometry that it can carry
        recognise: whether a file or folder is of this format; None if only its name tells
        read: reads the objects as the source states them, given the source and the folder of images that the
            user named; a source that cannot be read is an `InputError`
        load: reads a source entirely, in place of `read`
        has_label_files: whether a folder holds files of this format, one for each image, as those of several formats
            may lie in one folder
        file_an_image: whether the format has a file for each image, so that one of the two may be missing
    """

    name: str
    title: str
    about: str
    examples: Mapping[str, Example]
    recognise: Recognise | None = None
    read: Read | None = None
    load: Load | None = None
    has_label_files: Recognise | None = None
    file_an_image: bool = False

    @property
    def geometries(self) -> tuple[str, ...]:
        """The geometries that the format can carry."""
        return tuple(self.examples)

    def evidence(self, source: Source, rules: ObjectRules) -> Evidence:
        """Read a source of this format.

        Raises:
            InputError: the source cannot be read.
        """
        # The names of the formats are known without NumPy and Pillow; reading needs both.
        from coord_data.looking.image_file import ImageFolder, problem_of
        from coord_data.sources.raw_boxes import raw_of_reading
        from coord_data.sources.read_as import ReadAs
        from coord_data.sources.reread import reread

        if self.load is not None:
            return self.load(source, rules)
        assert self.read is not None  # each row has one of the two
        reading = self.read(source, rules.images)
        images_read = [image._replace(objects=list(image.objects)) for image in reading.images]
        here = found_here((image.name for image in images_read if image.name and not image.fault), reading.root)
        images_read = [_renamed(image, here) if image.name in here else image for image in images_read]
        images_read = [image._replace(name=_relative(image.name, reading.root)) for image in images_read]
        reading = replace(reading, images=images_read)
        folder = ImageFolder(reading.root)
        if any(image.size is None and image.name for image in images_read):  # all workers look for the sizes
            stated = raw_of_reading(reading, self.name)
            base = None if rules.allow_outside else reading.root
            folder.look_at_all(stated.files, stated.compared_images(), base)
        if rules.read_as is not None:
            reading = reread(reading, ReadAs.parse(rules.read_as), folder.look_at)

        def image_fault(name: str) -> Problem | None:
            return problem_of(folder.look_at(name), reading.root / name, (None, None), Counter(), None)

        annotations = collect(reading, rules.on_bad_box, folder.size, rules.geometry, image_fault)
        raw = raw_of_reading(reading, self.name)
        partners = partners_of(reading, source.is_dir) if self.file_an_image else Partners()
        return Evidence(
            source.named,
            annotations,
            reading.root,
            reading.root,
            self.name,
            (*source.notes, *reading.notes),
            raw,
            folder,
            partners=partners,
        )


def _renamed(image: RawImage, here: Mapping[str, Found]) -> RawImage:
    return image._replace(name=here[image.name].name, notes=(*image.notes, *here[image.name].notes))


def _relative(name: str, root: Path) -> str:
    """Return a path as records contain it: an absolute path below `root` becomes relative to it."""
    path = Path(name.replace("\\", "/"))
    if path.is_absolute():
        for base in (root, root.resolve()):
            if path.is_relative_to(base):
                return path.relative_to(base).as_posix()
    return path.as_posix() if name else ""


FORMATS: Registry[AnnotationFormat] = Registry("annotation format")
"""Formats by name in the order in which they are tried, those of `register_reader` first."""
