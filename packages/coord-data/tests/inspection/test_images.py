"""Copies of an image are told from images that look alike."""

import hashlib
import io
import re
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image, ImageDraw

from coord_codec import Instance
from coord_data.inspection import duplicates
from coord_data.inspection.duplicates import duplicate_images, leakage
from coord_data.looking import alike
from coord_data.looking.alike import alike_images, are_copies, duplicates_in, is_same_object, records_of
from coord_data.looking.look import look_at_images
from coord_data.looking.looks import ImageFile, Looks
from coord_data.preparing.selection import without_duplicates
from coord_data.sources.raw_boxes import RawBoxes


def form(seed):
    """Return a form with a heading and fields of words, in which little differs from any other of its kind."""
    image, rng = Image.new("RGB", (700, 900), "white"), np.random.default_rng(seed)
    draw = ImageDraw.Draw(image)
    draw.rectangle((30, 30, 670, 110), fill=(30, 60, 140))
    for y in range(132, 828, 58):
        draw.rectangle((180, y, 660, y + 38), outline="black")
        draw.text((190, y + 8), "word " * rng.integers(1, 9), fill="black")
    return image


@pytest.fixture
def files(tmp_path):
    """A form, another one, and copies of the first: smaller, and of low quality."""
    first = form(0)
    stored = io.BytesIO()
    first.save(stored, "JPEG", quality=25)
    for k, image in enumerate([first, form(4), first.resize((350, 450)), Image.open(stored)]):
        image.save(tmp_path / f"{k}.png")
    return look_at_images([f"{k}.png" for k in range(4)], tmp_path)


def test_copies_are_the_same_and_another_form_is_alike(files):
    found = {(pair.first, pair.second): pair.kind != "alike" for pair in alike_images(files[:1], files)}
    assert found == {(0, 0): True, (0, 1): False, (0, 2): True, (0, 3): True}


def raw(count):
    nothing = np.zeros((0, 4))
    names = tuple(f"{k}.png" for k in range(count))
    return RawBoxes.of(names, np.full((count, 2), np.nan), np.zeros(0, int), nothing, (), "xyxy", "unit")


def test_images_that_look_alike_are_no_leak_and_no_duplicate(files):
    alike, copied = (
        leakage(raw(1).files, files[:1], raw(1).files, files[1:2]),
        leakage(raw(1).files, files[:1], raw(3).files, files[1:]),
    )
    assert [f.severity for f in alike] == ["warning"] and "look like" in alike[0].message
    assert [(f.severity, f.count) for f in copied] == [("error", 2), ("warning", 1)]
    twice = duplicate_images(raw(2).files, files[:2], [])
    assert [f.severity for f in twice] == ["note"] and "1 pair" in twice[0].message
    assert [f.severity for f in duplicate_images(raw(3).files, files.take(np.array([0, 2, 3])), [])] == ["error"]


def test_held_out_image_that_only_looks_like_one_is_named_beside_another_that_is_a_copy(files):
    # The first training image is a copy of the second held-out image, and looks like the first one.
    found = leakage(raw(2).files, files[:2], ("a", "b"), files.take(np.array([1, 2])))
    assert [(f.severity, f.count, f.pairs) for f in found] == [("error", 2, (("0.png", "b"), ("1.png", "a")))]
    found = leakage(raw(1).files, files[:1], ("a", "b"), files.take(np.array([1, 2])))
    assert [(f.severity, f.pairs) for f in found] == [("error", (("0.png", "b"),)), ("warning", (("0.png", "a"),))]
    found = leakage(raw(2).files, files.take(np.array([0, 2])), ("a", "b"), files.take(np.array([1, 3])))
    of_b, of_a = ((("0.png", name), ("1.png", name)) for name in "ba")
    assert [(f.severity, f.pairs) for f in found] == [("error", of_b), ("warning", of_a)]


def test_copies_are_told_however_many_pairs_there_are(files):
    is_copy_P = are_copies(files, files, np.array([(0, 1)] * 1100 + [(0, 2)]))
    assert is_copy_P.tolist() == [False] * 1100 + [True]


GREY = {name: np.random.default_rng(n).integers(0, 255, (64, 64), np.uint8) for n, name in enumerate("abcd")}


def made(name, size=(64, 48), hash_bits=0):
    """Return a look: the letter says which pixels, the number which file, `~` a part that differs."""
    grey = GREY[name[0]].copy()
    if "~" in name:
        grey[::9, ::9] += 99
    digest = hashlib.sha256(name.encode()).hexdigest()
    return ImageFile(size, digest=digest, look=(ord(name[0]) * 0x9E3779B97F4A7C15) % 2**63 ^ hash_bits, grey=grey)


def of_set(files):
    """Return names, looks, and instances of files `(name, look, boxes)`."""
    objects = [[{"desc": d, "bbox": b} for d, b in found] for _, _, found in files]
    records = [Instance(image=name, objects=rows) for (name, _, _), rows in zip(files, objects, strict=True)]
    return [name for name, *_ in files], Looks.of(enumerate(look for _, look, _ in files)), records


HALVES = ("a", "0" * 64), ("b", "0" * 48 + "1" * 16)
CAT, DOG, BESIDE = ("cat", (0.1, 0.1, 0.5, 0.5)), ("dog", (0.1, 0.1, 0.5, 0.5)), ("cat", (0.1, 0.13, 0.5, 0.5))


@pytest.mark.parametrize(
    ("files", "wanted"),
    [
        ([("a", made("a1"), [CAT]), ("b", made("b1"), [CAT])], []),
        ([("a", made("a1"), [CAT]), ("b", made("a1"), [CAT])], [("duplicate_images", "error", "exact", [("a", "b")])]),
        (
            [("a", made("a1"), [CAT]), ("b", made("a1"), [DOG])],
            [
                ("conflicting_boxes", "error", "exact", [("a", "b")]),
                ("duplicate_images", "error", "exact", [("a", "b")]),
            ],
        ),
        (
            [("a", made("a1"), [CAT]), ("b", made("a1"), [BESIDE]), ("c", made("a2", (32, 24), 5), [CAT])],
            [
                ("conflicting_boxes", "error", "exact", [("a", "b")]),
                ("duplicate_images", "error", "near", [("a", "b"), ("a", "c")]),
                ("duplicate_images", "note", "", [("b", "c")]),  # which its boxes tell apart
            ],
        ),
        (
            [("a", made("a1"), [CAT]), ("b", made("a2", hash_bits=15), [CAT])],
            [("duplicate_images", "error", "near", [("a", "b")])],
        ),
        ([("a", made("a1"), [CAT]), ("b", made("a2", hash_bits=31), [CAT])], []),
        ([("a", made("a1"), [CAT]), ("b", made("a2~"), [CAT])], [("duplicate_images", "note", "", [("a", "b")])]),
        ([("a", made("a1"), [CAT]), ("b", made("a2"), [DOG])], [("duplicate_images", "note", "", [("a", "b")])]),
        (
            [
                (n, replace(made("a~"), digest=digest, grey=made(f"a{'~' * k}").grey), [CAT])
                for k, (n, digest) in enumerate(HALVES)
            ],
            [("duplicate_images", "note", "", [("a", "b")])],
        ),
        ([("a", ImageFile(None, "gone"), [CAT]), ("b", ImageFile(None, "gone"), [CAT])], []),
        (
            [("a", made("a1"), [CAT, DOG]), ("b", made("a1"), [DOG, CAT])],
            [("duplicate_images", "error", "exact", [("a", "b")])],
        ),
        (
            [("a", made("a1"), [CAT]), ("a", made("a1"), [CAT]), ("a", made("a1"), [DOG])],
            [(code, "error", "exact", [("a", "a")] * 3) for code in ("conflicting_boxes", "duplicate_images")],
        ),
        ([("a", made("a1"), [CAT]), ("a", made("a1"), [CAT])], [("duplicate_images", "error", "exact", [("a", "a")])]),
    ],
)
def test_images_that_are_there_twice_are_listed_by_what_differs(files, wanted):
    found = duplicate_images(*of_set(files))
    told = [(f.code, f.severity, "".join(re.findall(r"--drop-duplicates (\w+)", f.fix)), [*f.pairs]) for f in found]
    assert told == wanted and [f.count for f in found] == [len(pairs) for *_, pairs in wanted]


def test_pairs_that_are_many_are_few_of_many_images_and_not_all_listed(monkeypatch):
    monkeypatch.setattr(duplicates, "_LISTED", 2)
    apart = [
        (
            f"{n}",
            ImageFile(
                (9, 9), digest=f"{n:064}", look=n * 0x0F0F1E2D3C4B5A69 % 2**64, grey=np.full((64, 64), n, np.uint8)
            ),
            [CAT],
        )
        for n in range(60)
    ]
    (found,) = duplicate_images(*of_set([*apart, ("a", made("a1"), [CAT]), ("b", made("a1"), [CAT])]))
    assert (found.severity, found.count, found.pairs) == ("warning", 1, (("a", "b"),))
    three = [
        ("a", made("a1"), [CAT]),
        ("b", made("a1"), [CAT]),
        ("c", made("a1"), [DOG]),
        ("d", made("b1"), [CAT]),
        ("e", made("b1"), [DOG]),
    ]
    grades = {f.code: (f.severity, f.count) for f in duplicate_images(*of_set([*apart[:57], *three]))}
    assert grades == {"conflicting_boxes": ("warning", 3), "duplicate_images": ("error", 4)}
    grades = {f.code: f.severity for f in duplicate_images(*of_set([*apart[:56], *three[3:]]))}
    assert grades == {"conflicting_boxes": "warning", "duplicate_images": "warning"}
    (found,) = duplicate_images(*of_set([(f"{n}", made("a1"), [CAT]) for n in range(4)]))
    assert (
        found.count == 6
        and found.pairs == (("0", "1"), ("0", "2"))
        and "the first 2 pairs are listed" in found.evidence
    )
    monkeypatch.setattr(alike, "_MOST", 4)
    (found,) = duplicate_images(*of_set([(f"{n}", made("a1"), [CAT]) for n in range(4)]))
    assert found.evidence.endswith("further pairs with similar hashes were not compared")
    names, files, _ = of_set([(f"{n}", made("a1"), [CAT]) for n in range(4)])
    (leak,) = leakage(names, files, names, files)
    assert (leak.count, leak.severity) == (4, "error") and "; 12 further pairs" in leak.evidence


def test_leaks_count_held_out_images_once():
    names, files, _ = of_set([("a", made("a1"), []), ("b", made("a1"), []), ("c", made("b1"), [])])
    held, held_files, _ = of_set([("x", made("c1"), []), ("y", made("a1"), []), ("z", made("b2", (32, 24)), [])])
    (leak,) = leakage(names, files, held, held_files)
    assert (leak.severity, leak.count) == ("error", 2) and leak.message.startswith("2 of 3 held-out images")
    assert set(leak.pairs) == {("a", "y"), ("b", "y"), ("c", "z")}
    assert leak.evidence == "the first: y, and a of the training set (equal files)"


@pytest.mark.parametrize(
    ("one", "other", "told"),
    [
        (made("a1"), made("a1"), "equal files"),
        (
            made("a1"),
            made("a2", hash_bits=1),
            "copies of another quality or frames without motion, 1 of 64 bits of their perceptual hashes differ",
        ),
        (made("a1"), made("a2", (32, 24)), "copies of another size, 0 of 64 bits of their perceptual hashes differ"),
        (made("a1"), made("a2~", (64, 50), 3), "parts of them differ, 2 of 64 bits of their perceptual hashes differ"),
    ],
)
def test_pair_says_why_it_is_one(one, other, told):
    files = Looks.of(enumerate([one, other]))
    (pair,) = alike_images(files, files, within=True)
    assert pair.how == told


HASHES = {"a": 0, "b": 0b111, "c": 0b111111, "d": 0b111111}
"""b is near to all others, and a to b alone."""


@pytest.mark.parametrize(
    ("boxes", "kept"),
    [
        ({"a": [CAT], "b": [CAT], "c": [CAT]}, {"a": [CAT], "c": [CAT]}),  # a copy of a copy may be none
        ({"a": [CAT], "b": [CAT], "c": [CAT], "d": [CAT]}, {"a": [CAT], "c": [CAT]}),
        ({"c": [CAT], "a": [CAT], "b": [CAT]}, {"c": [CAT], "a": [CAT]}),
    ],
)
def test_copies_of_a_copy_that_is_left_out_are_kept(boxes, kept):
    names, looks, instances = of_set([(n, made(f"a{n}", hash_bits=HASHES[n]), own) for n, own in boxes.items()])
    for join in (False, True):
        found, dropped = without_duplicates(instances, names, looks, "near", join=join)
        assert {i.image: [(o.desc, o.bbox) for o in i.objects] for i in found} == kept
        assert {row.image for row in dropped} == boxes.keys() - kept.keys()


def test_object_that_several_copies_add_is_joined_once_and_to_records_without_a_phrase():
    owl, hen = ("owl", (0.6, 0.6, 0.9, 0.9)), ("hen", (0.6, 0.1, 0.9, 0.4))
    near = ("owl", (0.61, 0.6, 0.9, 0.9))
    files = [("a", made("a1"), [CAT]), ("b", made("a1"), [owl, DOG]), ("c", made("a1"), [CAT, near, hen])]
    names, looks, instances = of_set(files)
    asked = instances[0].model_copy(update={"query": "the cat"})
    (first, kept, phrase), dropped = without_duplicates([asked, *instances, asked], names, looks, "exact", join=True)
    assert [(o.desc, o.bbox) for o in kept.objects] == [CAT, owl, DOG, hen]
    assert first == phrase == asked and [(row.image, row.kept, row.same_boxes) for row in dropped] == [
        ("b", "a", False),
        ("c", "a", False),
    ]


def test_pair_whose_boxes_differ_says_so():
    names, files, records = of_set([("a", made("a1"), [CAT]), ("b", made("a2", (32, 24), 7), [DOG])])
    pairs, _ = duplicates_in(names, files, records)
    assert [(p.kind, p.how) for p in pairs] == [
        ("alike", "3 of 64 bits of their perceptual hashes differ, and their boxes differ")
    ]


@pytest.mark.parametrize(
    ("other", "same"),
    [
        (CAT, True),
        (DOG, False),
        *(
            (("cat", tuple(v + (k == side) * step for k, v in enumerate(CAT[1]))), step < 0.02)
            for side in range(4)
            for step in (0.019, 0.021)
        ),
    ],
)
def test_object_of_two_copies_has_one_name_and_place(other, same):
    one, two = (Instance(image="a", objects=[{"desc": d, "bbox": b}]).objects[0] for d, b in (CAT, other))
    assert is_same_object(one, two) == same == is_same_object(two, one)
    assert records_of(of_set([("a", made("a1"), [CAT]), ("b", made("a1"), [])])[2], {"b"})[0].image == "b"
