"""Who wrote a file of boxes, by what it has in it, and where the pixels of each writer begin and end: a row a writer.

Pascal VOC counts from 1 and includes the last pixel, but most tools that write its XML do not. A file that names no
writer is judged by what all such files of a set show, and by Pascal VOC's own rule where they show nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple
from xml.etree.ElementTree import Element

from coord_codec.origins import ABOUT, ORIGINS, Origin


class Header(NamedTuple):
    """What a file of Pascal VOC states of its writer.

    Attributes:
        database: text of `source/database`; None without the element
        has_path: whether it has the element `path`
        top: the whole file
    """

    database: str | None
    has_path: bool
    top: Element

    def texts(self) -> set[str]:
        """Return the texts in `source` and `owner`, in small letters."""
        return {(child.text or "").lower() for name in ("source", "owner") for child in self.top.iterfind(f"{name}/*")}

    def has(self, path: str) -> bool:
        """Return whether the file has an element."""
        return self.top.find(path) is not None


class Writer(NamedTuple):
    """A row of the table of writers.

    Attributes:
        name: the tool
        version: the version that was seen; "" for files that were published
        writes: format of the file
        sign: what a file has, in words
        origin: name of the origin in `ORIGINS`; None where its user decides, or nobody outside knows
        rounding: how it makes whole numbers, and what else it does to them
        seen: how it was seen
        is_by: whether a file of Pascal VOC is by it; None for other formats, whose readers know
        raises: whether it writes 1 for a first corner below 1
    """

    name: str
    version: str
    writes: str
    sign: str
    origin: str | None
    rounding: str
    seen: str
    is_by: Callable[[Header], bool] | None = None
    raises: bool = False


def _named(*names: str) -> Callable[[Header], bool]:
    """Return whether a file has one of these names in its source or owner."""
    return lambda header: any(name in text for text in header.texts() for name in names)


def _is_pylabel(header: Header) -> bool:
    empty = [header.top.find(path) for path in ("size/depth", "object/pose", "object/truncated", "object/difficult")]
    sides = [side.tag for side in header.top.iterfind("object/bndbox/*")][:4]
    return all(element is not None and not (element.text or "").strip() for element in empty) and sides == [
        *("xmin", "xmax", "ymin", "ymax")
    ]


def _is_supervisely(header: Header) -> bool:
    return header.database == "" and {"pascal voc", ""} <= header.texts() and header.has("source/image")


def _is_dtlpy(header: Header) -> bool:
    return header.database == "Unknown" and header.has("object/attributes") and not header.has("object/pose")


def _is_writer(header: Header) -> bool:
    """Return whether a file is by pascal_voc_writer, which indents with blanks where labelImg has tabs."""
    return header.has_path and header.database == "Unknown" and (header.top.text or "").startswith("\n    ")


_SCRIPT = "run by hand, a script of its sources"
_RUN, _SOURCE, _FILES = "run in the tests of other tools", "read in its source", "published files"
_WHOLE, _CUT, _AS_IS = "to the nearest", "cut off", "as given"
WRITERS = (
    Writer(
        *("VOC devkit", "", "VOC", "database `The VOC20.. Database`", "from-1", _AS_IS, _FILES),
        lambda header: (header.database or "").startswith("The VOC20"),
    ),
    Writer(
        *("supervision", "0.31.2", "VOC", "folder `VOC`, database `roboflow.ai`, no `path`", "from-1", _CUT, _RUN),
        lambda header: header.database == "roboflow.ai" and not header.has_path,
    ),
    Writer(
        *("Roboflow", "", "VOC", "`path`, database `roboflow.ai` or `roboflow.com`", None, _WHOLE, _FILES),
        lambda header: header.has_path and (header.database or "").startswith("roboflow."),
    ),
    Writer(*("Label Studio", "2.0.19", "VOC", "`owner` Label Studio", "from-0", _CUT, _RUN), _named("label studio")),
    Writer(
        *("darwin-py", "3.6.3", "VOC", "`source` darwin", "from-0", _CUT, _RUN),
        lambda header: "darwin" in header.texts(),
    ),
    Writer(*("X-AnyLabeling", "", "VOC", "`source` X-AnyLabeling", "from-0", _CUT, _SOURCE), _named("x-anylabeling")),
    Writer(
        *("Kili", "1.6.0", "VOC", "`path`, database `Kili Technology`", "from-0", _WHOLE, _RUN),
        _named("kili technology"),
    ),
    Writer(
        *("Supervisely", "6.74.51", "VOC", "empty database, source annotation `PASCAL VOC`", "from-0-to-last"),
        *(_AS_IS, _RUN, _is_supervisely),
    ),
    Writer(
        *("make-sense", "", "VOC", "`path`, database `Unspecified`", "from-0", _WHOLE, _SOURCE),
        lambda header: header.has_path and header.database == "Unspecified",
    ),
    Writer(
        *("dtlpy", "1.126.5", "VOC", "`path`, database `Unknown`, `attributes` and no `pose`", "from-0", _AS_IS, _RUN),
        lambda header: (
            header.database == "Unknown" and header.has("object/attributes") and not header.has("object/pose")
        ),
    ),
    Writer(
        *("FiftyOne", "1.22.1", "VOC", "`path`, empty database, no source annotation", "from-0", _CUT, _SOURCE),
        lambda header: header.has_path and header.database == "" and not header.has("source/annotation"),
    ),
    Writer(
        *("LabelMe (labelme2voc.py)", "6.3.1", "VOC", "`database` and `image` outside of `source`", "from-0", _AS_IS),
        *(_SCRIPT, lambda header: header.has("database") and header.has("image")),
    ),
    Writer(*("pylabel", "0.1.55", "VOC", "empty `depth`, `pose` and `difficult`", "from-0", _CUT, _RUN), _is_pylabel),
    Writer(
        *("pascal-voc-writer", "0.1.4", "VOC", "`path`, database `Unknown`, indented by blanks", None, _AS_IS, _RUN),
        _is_writer,
    ),
    Writer(
        *("labelImg", "1.8.6", "VOC", "`path`, database `Unknown`", "from-0", f"{_CUT}; a first corner of 0 becomes 1"),
        *(_RUN, lambda header: header.has_path and header.database == "Unknown", True),
    ),
    Writer(
        *(
            "CVAT, datumaro, globox, VoTT",
            "",
            "VOC",
            "most files of the set have a decimal point",
            "from-0",
            _AS_IS,
            _RUN,
        )
    ),
    Writer(*("Supervisely", "6.74.51", "COCO", "`area` is (width + 1) x (height + 1)", "from-0-to-last", _AS_IS, _RUN)),
    Writer(
        *("Supervisely", "6.74.51", "YOLO", "`colors` and `train_labels` in data_config.yaml", "from-0"),
        *("centres are cut off, and moved back", _RUN),
    ),
    Writer(*("scalabel", "0.3.1", "COCO", "`scalabel_id` in the annotations", "from-0-past-last", _AS_IS, _RUN)),
)
"""Rows in the order in which they are tried; those that name their writer come first."""
_VOC = tuple(row for row in WRITERS if row.is_by is not None)


class Sides(NamedTuple):
    """What the corners of files show of where pixels begin and end.

    Attributes:
        files: number of files with corners
        decimals: number of those with a decimal point
        at_0: whether a first corner is 0
        at_end: whether a second corner is the width or the height of its image
        before_end: whether one is a pixel less
        past_end: whether one is a pixel more
    """

    files: int = 0
    decimals: int = 0
    at_0: bool = False
    at_end: bool = False
    before_end: bool = False
    past_end: bool = False

    def __add__(self, other: object) -> Sides:
        """Return what both show."""
        assert isinstance(other, Sides)
        return Sides(self.files + other.files, self.decimals + other.decimals, *map(max, self[2:], other[2:]))


def sides_of(boxes: Iterable[tuple[float, ...]], size: tuple[int, int] | None, decimals: bool) -> Sides:
    """Return what the corners x1, y1, x2, y2 of one file show."""
    at_0 = at_end = before_end = past_end = False
    for x1, y1, x2, y2 in boxes:
        at_0 |= x1 == 0 or y1 == 0
        if size is not None:
            beyond = (x2 - size[0], y2 - size[1])
            at_end, before_end, past_end = at_end or 0 in beyond, before_end or -1 in beyond, past_end or 1 in beyond
    return Sides(1, int(decimals), at_0, at_end, before_end, past_end)


class Counted(NamedTuple):
    """How the corners of a file are read.

    Attributes:
        origin: where its pixels begin and end
        note: a note to count for each box; "" where nothing was assumed
        raised: whether a first corner at 1 is one at 0
    """

    origin: Origin
    note: str = ""
    raised: bool = False


def writer_of(top: Element) -> int | None:
    """Return the row in `WRITERS` of the writer of a file of Pascal VOC; None if it is not known."""
    header = Header(top.findtext("source/database"), top.find("path") is not None, top)
    return next((n for n, row in enumerate(_VOC) if row.is_by is not None and row.is_by(header)), None)


def counted_by(writer: int | None, sides: Sides) -> Counted:
    """Return how the files of a set by one writer are read, of which `sides` are all that they show."""
    row = None if writer is None else _VOC[writer]
    if row is not None and row.origin == "from-1":
        return Counted(ORIGINS["from-1"])
    if 2 * sides.decimals >= max(sides.files, 1):
        return Counted(ORIGINS["from-0"], "boxes of files with fractions, which count from 0 and not from 1")
    if row is not None and row.origin is not None:
        raised = row.raises and not sides.at_0
        return Counted(ORIGINS[row.origin], f"boxes by {row.name}, {_told(row.origin)}", raised)
    by = "boxes by an unknown writer" if row is None else f"boxes by {row.name}, which leaves open how pixels count"
    word, shown = _shown(sides)
    return Counted(ORIGINS[word], f"{by}: {shown}, read as {_told(word)}")


def _shown(sides: Sides) -> tuple[str, str]:
    """Return the origin that corners show, and what shows it."""
    if sides.at_0 and sides.before_end and not (sides.at_end or sides.past_end):
        return "from-0-to-last", "some begin at 0, and those at the other border end a pixel before it"
    if sides.at_0:
        return "from-0", "some begin at 0"
    if sides.past_end:
        return "from-1-past-last", "none begins at 0, and some end a pixel past their image"
    return "from-1", "nothing shows it"


def _told(word: str) -> str:
    return f"{ABOUT[word]} (--read-as {' or '.join(other for other in list(ORIGINS)[:3] if other != word)} if not)"


def writer_table() -> str:
    """Return the table of writers in Markdown, as the documentation shows it."""
    lines = [
        "| writer | writes | sign in the file | pixels | whole numbers | how it was seen |",
        "|---|---|---|---|---|---|",
    ]
    for row in WRITERS:
        pixels = ABOUT[row.origin] if row.origin else "what the set shows, else as Pascal VOC"
        cells = (f"{row.name} {row.version}".strip(), row.writes, row.sign, pixels, row.rounding, row.seen)
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"
