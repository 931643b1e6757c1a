"""Pairs of images that look alike are those of a comparison of all with all."""

import numpy as np
import pytest
from PIL import Image

from coord_codec import Instance
from coord_data.looking import alike
from coord_data.looking.alike import are_copies, near_duplicates
from coord_data.looking.hashes import grey_values, perceptual_hashes
from coord_data.looking.looks import ImageFile, Looks


def flipped(value, count, rng):
    """Return a hash with some of its bits flipped."""
    return value ^ np.uint64(sum(1 << int(bit) for bit in rng.choice(64, count, replace=False)))


def drawn(rng, count):
    """Return hashes, of which two thirds differ in 0 to 6 bits from an earlier one."""
    hashes = list(rng.integers(0, 2**64, count // 3, dtype=np.uint64))
    while len(hashes) < count:
        hashes.append(flipped(hashes[rng.integers(len(hashes))], rng.integers(7), rng))
    return rng.permutation(np.array(hashes))


def naive(one, other, bits):
    counts = [[int(a ^ b).bit_count() for b in other.tolist()] for a in one.tolist()]
    return [(i, j, counts[i][j]) for i in range(len(one)) for j in range(len(other)) if counts[i][j] <= bits]


@pytest.mark.parametrize("at_once", [100, 1 << 20])
@pytest.mark.parametrize("sizes", [(700, 300), (3, 900), (0, 5), (5, 0)])
def test_near_duplicates_are_those_of_a_naive_count(sizes, at_once, monkeypatch):
    monkeypatch.setattr(alike, "_AT_ONCE", at_once)
    rng = np.random.default_rng(sum(sizes))
    every = drawn(rng, sum(sizes))
    one, other = every[: sizes[0]], every[sizes[0] :]
    for bits in (0, 3, 4):
        expected = naive(one, other, bits)
        assert near_duplicates(one, other, bits).tolist() == [list(row) for row in expected]
    within = [list(row) for row in naive(every, every, 4) if row[0] < row[1]]
    assert near_duplicates(every, every, within=True).tolist() == within


def test_pairs_beyond_the_limit_are_counted(monkeypatch):
    hashes = np.zeros(40, np.uint64)
    monkeypatch.setattr(alike, "_MOST", 200)
    found, left_out = alike._near_pairs(hashes, hashes, 4, within=True)
    assert 0 < len(found) <= 200 and len(found) + left_out == 40 * 39 // 2


def test_images_have_the_same_boxes_in_any_order_and_in_all_their_records(monkeypatch):
    monkeypatch.setattr(alike, "_BOXES_AT_ONCE", 100)
    rng, corners = np.random.default_rng(0), np.array([0.1, 0.2, 0.6, 0.7])
    names = [f"{n}.png" for n in range(60)]
    records = []
    for name in rng.choice(names[:50], 70).tolist():  # some have several records, others none
        boxes = corners + 0.1 * rng.integers(0, 2, (rng.integers(3), 1)) + rng.uniform(0, 0.012, 4)
        objects = [{"desc": str(rng.choice(["a", "b"])), "bbox": box} for box in boxes.tolist()]
        records.append(Instance(image=name, objects=objects))
    targets = alike.Targets(records, names[:40])
    pairs = np.argwhere(np.ones((60, 60), bool))

    def of(name):
        found = [o for record in records if record.image == name and name in names[:40] for o in record.objects]
        return [(o.desc, np.array(o.bbox)) for o in found]

    def covers(one, other):
        return all(any(a == b and np.abs(x - y).max() <= 0.02 for b, y in other) for a, x in one)

    wanted = [
        sorted(d for d, _ in one) == sorted(d for d, _ in other) and covers(one, other) and covers(other, one)
        for one, other in ((of(names[i]), of(names[j])) for i, j in pairs.tolist())
    ]
    assert targets.are_the_same(names, pairs).tolist() == wanted and 100 < sum(wanted) < 3500


@pytest.mark.parametrize(
    ("fields", "difference", "step", "is_copy"),
    [
        (3, 10, 0, True),  # as much as quality and size change
        (3, 11, 0, False),
        (2, 255, 0, True),  # a scratch or a date
        (3, 14, 8, True),  # beside half of what neighbouring fields differ by
        (3, 15, 8, False),
    ],
)
def test_images_are_copies_up_to_a_difference_of_few_grey_values(fields, difference, step, is_copy):
    one = np.zeros((64, 64), np.uint8)
    one[:, 1::2] = step
    other = one.copy()
    other[np.arange(fields) * 20 + 1, 10] += difference
    looks = Looks.of(enumerate([ImageFile((9, 9), grey=one), ImageFile((9, 9), grey=other)]))
    assert are_copies(looks, looks, np.array([[0, 1]])).tolist() == [is_copy]


def test_fields_at_the_rim_have_neighbours_inside_the_image_alone():
    one, other = (np.full((64, 64), 200, np.uint8) for _ in range(2))
    other[[0, 63, 20, 40], [20, 40, 0, 63]] -= 11
    looks = Looks.of(enumerate([ImageFile((9, 9), grey=one), ImageFile((9, 9), grey=other)]))
    assert are_copies(looks, looks, np.array([[0, 1]])).tolist() == [False]


def test_perceptual_hash_survives_compression_and_resizing(tmp_path):
    rng = np.random.default_rng(3)

    def picture(seed):
        coarse = np.random.default_rng(seed).integers(0, 255, (6, 8, 3), dtype=np.uint8)
        return Image.fromarray(coarse).resize((200, 150), Image.Resampling.BICUBIC)

    photograph = picture(1)
    photograph.save(tmp_path / "a.jpg", quality=60)
    with Image.open(tmp_path / "a.jpg") as saved:
        same = [saved.copy(), photograph.resize((100, 75))]
    others = [picture(int(n)) for n in rng.integers(2, 99, 18)]
    hashes = perceptual_hashes([grey_values(image)[0] for image in (photograph, *same, *others)])
    assert near_duplicates(hashes[:1], hashes[1:])[:, 1].tolist() == [0, 1]


def test_perceptual_hash_is_the_definition():
    image = Image.fromarray(np.random.default_rng(0).integers(0, 255, (32, 32), dtype=np.uint8))
    grey = np.asarray(image, np.float64)
    lowest = [
        sum(
            grey[y, x] * np.cos(np.pi / 32 * v * (y + 0.5)) * np.cos(np.pi / 32 * u * (x + 0.5))
            for y in range(32)
            for x in range(32)
        )
        for v in range(8)
        for u in range(8)
    ]
    bits = "".join("01"[int(value > np.median(lowest))] for value in lowest)
    assert perceptual_hashes([grey_values(image)[0]]).tolist() == [int(bits, 2)]


def test_groups_are_those_of_a_naive_spread_over_near_and_mirrored_hashes():
    rng = np.random.default_rng(4)
    hashes = drawn(rng, 60)
    hashes[40:50] = [flipped(value ^ np.uint64(0x5555555555555555), 3, rng) for value in hashes[:10]]
    near = {(i, j) for other in (hashes, hashes ^ np.uint64(0x5555555555555555)) for i, j, _ in naive(hashes, other, 4)}
    group = list(range(60))
    for _ in range(60):
        for i, j in near:
            group[i] = group[j] = min(group[i], group[j])
    found = alike.groups_of_alike(hashes).tolist()
    same = [(found[i] == found[j]) == (group[i] == group[j]) for i in range(60) for j in range(60)]
    assert all(same) and 12 < len(set(group)) < 50 and set(found) == set(range(len(set(group))))
