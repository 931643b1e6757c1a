"""The one decoder: what each kind of file becomes, against arrays made by hand."""

import struct
import zlib

import numpy as np
import pytest

from coord_codec import images
from coord_codec.images import FOURTH_BAND, ImageError, decode_image, facts_and_image, image_facts

Image = pytest.importorskip("PIL.Image")
RAMP = np.arange(256, dtype=np.uint8).reshape(8, 32)
RGB = np.stack([RAMP, RAMP[::-1], 255 - RAMP], axis=2)


def grey(values):
    return np.repeat(np.asarray(values)[:, :, None], 3, axis=2)


def saved(path, image, **options):
    image.save(path, **options)
    return path


# How the eight orientations of EXIF are turned upright, as its specification describes them; it has no 0 and no 9.
UPRIGHT = {
    0: lambda a: a,
    9: lambda a: a,
    1: lambda a: a,
    2: lambda a: a[:, ::-1],
    3: lambda a: a[::-1, ::-1],
    4: lambda a: a[::-1],
    5: lambda a: a.swapaxes(0, 1),
    6: lambda a: a[::-1].swapaxes(0, 1),
    7: lambda a: a[::-1, ::-1].swapaxes(0, 1),
    8: lambda a: a.swapaxes(0, 1)[::-1],
}


@pytest.mark.parametrize("orientation", UPRIGHT)
@pytest.mark.parametrize(
    ("name", "options"),
    [("a.png", {}), ("a.tif", {}), ("a.webp", {"lossless": True}), ("a.jpg", {"quality": 100, "subsampling": 0})],
)
def test_orientation_is_applied(tmp_path, orientation, name, options):
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = saved(tmp_path / name, Image.fromarray(RGB), exif=exif, **options)
    expected = UPRIGHT[orientation](RGB)
    decoded = decode_image(path)
    apart = np.abs(np.asarray(decoded, dtype=int) - expected).max()
    assert apart <= (8 if name == "a.jpg" else 0)  # another turn is more than 100 apart
    facts = image_facts(path)
    assert facts.size == decoded.size == expected.shape[1::-1] and facts.stored_size == (32, 8)
    assert len(facts.notes) == (orientation in range(2, 9))
    assert facts.orientation == (orientation if facts.notes else 1)
    told, image = facts_and_image(path.read_bytes(), at_most=(1, 1) if name != "a.jpg" else None)
    assert told == facts and np.array_equal(np.asarray(image), np.asarray(decoded))


ALPHA = np.dstack([RGB, RAMP])
OVER_WHITE = np.rint(RGB * (RAMP[..., None] / 255.0) + 255 * (1 - RAMP[..., None] / 255.0))
DEEP = RAMP.astype(np.uint16) * 257
BLACK = Image.new("L", (32, 8))
UNIT = RAMP.astype(np.float32) / 255


def palette_image(transparent=False):
    image = Image.frombytes("P", (32, 8), RAMP.tobytes())
    image.putpalette([v for i in range(256) for v in (i, 255 - i, 7)])
    if transparent:
        image.info["transparency"] = 3
    return image


PALETTE = np.stack([RAMP, 255 - RAMP, np.full_like(RAMP, 7)], axis=2)
HOLE = PALETTE.copy()
HOLE[RAMP == 3] = 255
# name of the file, image, what the decoder gives, tolerance, whether there is something to count
KINDS = {
    "rgb": ("a.png", lambda: Image.fromarray(RGB), RGB, 0, False),
    "grey": ("a.png", lambda: Image.fromarray(RAMP), grey(RAMP), 0, False),
    "16 bits, png": ("a.png", lambda: Image.fromarray(DEEP), grey(RAMP), 0, True),
    "16 bits, tiff": ("a.tiff", lambda: Image.fromarray(DEEP), grey(RAMP), 0, True),
    "32 bits within 255": ("a.tiff", lambda: Image.fromarray(RAMP.astype(np.int32)), grey(RAMP), 0, True),
    "32 bits, stretched": ("a.tiff", lambda: Image.fromarray(RAMP.astype(np.int32) * 10**6), grey(RAMP), 0, True),
    "32 bits of 16": ("a.tiff", lambda: Image.fromarray(255 * 257 - RAMP.astype(np.int32) * 16), None, 0, True),
    "32 bits, 0 and 1": ("a.tiff", lambda: Image.fromarray((RAMP > 9).astype(np.int32)), grey(RAMP > 9), 0, True),
    "float within 1": ("a.tiff", lambda: Image.fromarray(UNIT), grey(RAMP), 0, True),
    "float within 255": ("a.tiff", lambda: Image.fromarray(UNIT * 255), grey(RAMP), 0, True),
    "16 bits, big-endian": (
        "a.tiff",
        lambda: Image.frombytes("I;16B", (32, 8), DEEP.astype(">u2").tobytes()),
        grey(RAMP),
        0,
        True,
    ),
    "16 bits, 12 of them, big-endian": (
        "a.tiff",
        lambda: Image.frombytes("I;16B", (32, 8), (DEEP >> 4).astype(">u2").tobytes()),
        None,
        0,
        True,
    ),
    "16 bits, 12 of them": ("a.png", lambda: Image.fromarray(DEEP >> 4), None, 0, True),
    "float, negative": ("a.tiff", lambda: Image.fromarray(UNIT * 4 - 2), grey(RAMP), 0, True),
    "alpha": ("a.png", lambda: Image.fromarray(ALPHA), OVER_WHITE, 1, True),
    "grey with alpha": ("a.png", lambda: Image.merge("LA", [Image.fromarray(RAMP)] * 2), None, 1, True),
    "palette": ("a.png", palette_image, PALETTE, 0, False),
    "transparent colour": ("a.png", lambda: palette_image(True), HOLE, 0, True),
    "cmyk": ("a.tiff", lambda: Image.merge("CMYK", [*[Image.fromarray(RAMP)] * 3, BLACK]), None, 1, False),
    "one bit": ("a.png", lambda: Image.fromarray(RAMP > 99), grey(np.where(RAMP > 99, 255, 0)), 0, False),
}
EXPECTED = {
    "grey with alpha": grey(np.rint(RAMP * (RAMP / 255.0) + 255 * (1 - RAMP / 255.0))),
    "cmyk": grey(255 - RAMP),
    **dict.fromkeys(("16 bits, 12 of them", "16 bits, 12 of them, big-endian"), grey(np.rint((DEEP >> 4) / 257))),
    "32 bits of 16": grey(np.rint(255 - RAMP.astype(int) * 16 / 257)),
}


@pytest.mark.parametrize("kind", KINDS)
def test_kind_of_file_becomes_rgb(tmp_path, kind):
    name, make, expected, tolerance, counted = KINDS[kind]
    path = saved(tmp_path / name, make())
    found = decode_image(path)
    assert found.mode == "RGB"
    expected = EXPECTED.get(kind, expected)
    assert np.abs(np.asarray(found, dtype=float) - expected).max() <= tolerance
    assert bool(image_facts(path).notes) == counted
    facts, image = facts_and_image(path.read_bytes())
    assert np.array_equal(np.asarray(image), np.asarray(found)) and facts.notes == image_facts(path).notes
    deep = kind.startswith(("16", "32", "float"))
    values = np.asarray(make())
    values = values if values.dtype.kind != "V" else DEEP >> 4 * ("12" in kind)
    assert facts.value_range == ((float(values.min()), float(values.max())) if deep else None)


def test_image_of_exactly_the_largest_size_is_decoded(tmp_path):
    for name in ("a.png", "a.jpg"):
        path = saved(tmp_path / name, Image.fromarray(RGB))
        assert decode_image(path, max_pixels=256).size == image_facts(path, max_pixels=256).size == (32, 8)
        for look in (decode_image, image_facts):
            with pytest.raises(ImageError, match="32 x 8 pixels are too many"):
                look(path, max_pixels=255)


def test_animation_gives_its_first_frame(tmp_path):
    frames = [Image.new("RGB", (8, 4), colour) for colour in ("red", "blue")]
    for name in ("a.gif", "a.webp", "a.png", "a.tiff"):
        options = {"lossless": True} if name == "a.webp" else {}
        path = saved(tmp_path / name, frames[0], save_all=True, append_images=frames[1:], **options)
        assert decode_image(path).getpixel((0, 0)) == (255, 0, 0)
        assert "first" in image_facts(path).notes[0]
    # The further images of a telephone's photograph are a preview or a gain map.
    path = saved(tmp_path / "a.jpg", frames[0], format="MPO", save_all=True, append_images=frames[1:])
    assert Image.open(path).n_frames == 2 and image_facts(path).notes == ()


def png_header(width, height):
    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    head = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", b"") + chunk(b"IEND", b"")


EPS = b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 8 8\n%%EndComments\n"
BROKEN = {
    "missing": (None, "does not exist"),
    "empty": (b"", "the file is empty"),
    "text": (b"no image", "cannot be decoded .expected JPEG, PNG, .*; convert"),
    "bomb": (png_header(20_000, 10_000), "too many pixels"),
    "bomb of Pillow": (png_header(60_000, 60_000), "too many"),
    "runs a program to decode": (EPS, "cannot be decoded"),
    "no pixels": (png_header(8, 8), "cannot be decoded"),
}


@pytest.mark.parametrize("kind", BROKEN)
def test_file_that_cannot_be_decoded(tmp_path, kind):
    content, message = BROKEN[kind]
    path = tmp_path / "a.png"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ImageError, match=message) as error:
        decode_image(path)
    assert str(tmp_path) not in str(error.value)


def test_name_that_no_file_can_have_is_that_of_none(tmp_path):
    with pytest.raises(ImageError, match="does not exist"):
        image_facts(tmp_path / ("a" * 300 + ".png"))


def test_truncated_file_is_refused_when_decoded(tmp_path):
    path = saved(tmp_path / "a.jpg", Image.effect_noise((64, 64), 50))
    path.write_bytes(path.read_bytes()[:-200])
    assert image_facts(path).size == (64, 64)
    with pytest.raises(ImageError, match=r"cannot be decoded \(image file is truncated"):
        decode_image(path)


def test_jpeg_is_reduced_in_its_upright_proportions(tmp_path):
    exif = Image.Exif()
    exif[0x0112] = 6
    path = saved(tmp_path / "a.jpg", Image.new("RGB", (800, 400)), exif=exif)
    assert decode_image(path).size == (400, 800)
    assert decode_image(path, at_most=(100, 200)).size == (100, 200)


@pytest.mark.drawn(8)
@pytest.mark.parametrize("mode", ["L", "RGB", "CMYK"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"progressive": True, "quality": 30},
        {"optimize": True, "subsampling": 0, "dpi": (72, 72)},
        {"comment": b"x" * 50, "restart_marker_rows": 1},
        {"orientation": 6},
        {"icc_profile": b"x" * 300},
        {"qtables": [[1] * 64]},
        {"comment": b"x" * 5000},
    ],
)
def test_jpeg_header_is_what_pillow_says_also_when_cut_off(tmp_path, monkeypatch, mode, options):
    path = tmp_path / "a.jpg"
    if turn := options.get("orientation"):
        exif = Image.Exif()
        exif[0x0112] = turn
        options = {"exif": exif}
    Image.new(mode, (37, 21), 90 if mode == "L" else "red").save(path, **options)
    whole = path.read_bytes()
    for length in (len(whole), *range(0, len(whole), 1 + len(whole) // 120)):
        path.write_bytes(whole[:length])
        told = []
        for plain in (images._plain_jpeg_size, lambda _: None):
            with monkeypatch.context() as patched:
                patched.setattr(images, "_plain_jpeg_size", plain)
                try:
                    told.append(image_facts(path))
                except ImageError:
                    told.append(None)
        assert told[0] == told[1], length


def test_plain_jpeg_is_told_without_pillow(tmp_path):
    Image.new("RGB", (37, 21)).save(tmp_path / "a.jpg")
    assert images._plain_jpeg_size(tmp_path / "a.jpg") == (37, 21)
    Image.new("CMYK", (37, 21)).save(tmp_path / "b.jpg")
    assert images._plain_jpeg_size(tmp_path / "b.jpg") is None
    content = (tmp_path / "a.jpg").read_bytes()
    frame = content[content.index(b"\xff\xc0") :][: 2 + 17]
    assert images._plain_jpeg_size(content.replace(frame, frame * 2)) is None  # a frame of each size: Pillow decides


def tiff(data, *directories):
    """Return a little-endian TIFF of directories `{tag: values}`, whose tag 273 gives places in the data."""
    content, link = bytearray(b"II*\0" + bytes(4) + data), 4
    for tags in directories:
        rows = b""
        for tag, values in sorted(tags.items()):
            stated = [value + 8 for value in values] if tag == 273 else values
            packed = struct.pack(f"<{len(stated)}I", *stated)
            if len(stated) > 1:
                packed, place = struct.pack("<I", len(content)), packed
                content += place
            rows += struct.pack("<HHI", tag, 4, len(stated)) + packed
        content[link : link + 4] = struct.pack("<I", len(content))
        content += struct.pack("<H", len(tags)) + rows
        link = len(content)
        content += bytes(4)
    return bytes(content)


def tags_of(photometric=2, bits=(8, 8, 8), planar=1, places=(0,), counts=(24,), **more):
    tags = {256: [4], 257: [2], 258: bits, 259: [1], 262: [photometric], 273: places, 277: [len(bits)], 278: [2]}
    return tags | {279: counts, 284: [planar]} | {int(tag[1:]): values for tag, values in more.items()}


COLOURS = (1000, 30000, 60000)
PLANES = b"".join(struct.pack("<8H", *[value] * 8) for value in COLOURS)
BANDS = bytes([30, 90, 200, 60, 30, 90, 200, 220] * 4)
FILES = {
    "16 bits by plane": (
        tiff(PLANES, tags_of(bits=(16,) * 3, planar=2, places=(0, 16, 32), counts=(16,) * 3)),
        (3, 117, 234),
    ),
    "16 bits by pixel": (tiff(struct.pack("<24H", *COLOURS * 8), tags_of(bits=(16,) * 3, counts=(48,))), (3, 117, 234)),
    "infrared": (tiff(BANDS, tags_of(bits=(8,) * 4, counts=(32,), t338=(2,), t33550=(1, 1, 0))), (30, 90, 200)),
    "transparency": (
        tiff(bytes([30, 90, 200, 0] * 8), tags_of(bits=(8,) * 4, counts=(32,), t338=(2,), t33550=(1, 1, 0))),
        (255, 255, 255),
    ),
    "transparency in part": (
        tiff(
            bytes([30, 90, 200, 0] + [30, 90, 200, 255] * 7),
            tags_of(bits=(8,) * 4, counts=(32,), t338=(2,), t33550=(1, 1, 0)),
        ),
        (255, 255, 255),
    ),
    "colours of a place": (tiff(bytes([30, 90, 200] * 8), tags_of(t33550=(1, 1, 0))), (30, 90, 200)),
    "a mask of GDAL": (tiff(BANDS[:24], tags_of(), {**tags_of(4, (1,), counts=(2,)), 254: [4]}), (30, 90, 200)),
}


@pytest.mark.parametrize("case", FILES)
def test_tiff_of_remote_sensing_has_its_colours(tmp_path, case):
    content, colour = FILES[case]
    (tmp_path / "a.tif").write_bytes(content)
    facts, image = facts_and_image(content)
    for decoded in (image, decode_image(content), decode_image(tmp_path / "a.tif")):
        assert decoded.size == (4, 2) == facts.size and decoded.getpixel((0, 0)) == colour
    assert (images.DEEP in facts.notes, facts.value_range) == ("16" in case, (768, 60159) if "16" in case else None)
    assert len(facts.notes) == (not case.startswith(("a mask", "colours")))
    assert (FOURTH_BAND in facts.notes) == (case.startswith(("infrared", "transparency")))


def test_values_of_12_bits_in_a_png_of_16_are_told(tmp_path):
    values = np.full((2, 4, 3), 4095, ">u2")
    rows = b"".join(b"\0" + row.tobytes() for row in values)
    chunks = ((b"IHDR", struct.pack(">IIBBBBB", 4, 2, 16, 2, 0, 0, 0)), (b"IDAT", zlib.compress(rows)), (b"IEND", b""))
    parts = [struct.pack(">I", len(data)) + k + data + struct.pack(">I", zlib.crc32(k + data)) for k, data in chunks]
    facts, _ = facts_and_image(b"\x89PNG\r\n\x1a\n" + b"".join(parts))
    assert images.DEEP in facts.notes and facts.value_range == (15 * 256, 4095)


def test_values_that_are_no_numbers_have_no_part_in_the_range(tmp_path):
    values = np.linspace(10, 200, 256, dtype=np.float32).reshape(8, 32)
    values[0, :3] = np.nan, np.inf, -np.inf
    facts, image = facts_and_image(saved(tmp_path / "a.tiff", Image.fromarray(values)).read_bytes())
    assert facts.value_range == (0, 200) and image.getpixel((31, 7)) == (200, 200, 200)


def test_data_url_is_a_jpeg_of_the_quality_asked_for():
    image = Image.effect_noise((64, 64), 90).convert("RGB")
    lengths = [len(images.data_url(image, quality)) for quality in (20, 75, 80, 95)]
    assert lengths == sorted(set(lengths)) and lengths[2] == len(images.data_url(image))
