"""Records in an Arrow file: mapped from disk, written whole or not at all, and measured without being read."""

import pickle
import random
from collections import Counter

import numpy as np
import pytest

from coord_codec import Instance
from coord_codec.instance_file import instance_line
from coord_data.records import Records, batch_of, write_records
from coord_trainer.data.lengths import Lengths, longer_than

BOX = {"desc": "cat", "bbox": [0.1, 0.1, 0.5, 0.5]}


def dumped(instances):
    return [instance.model_dump(exclude_unset=True) for instance in instances]


@pytest.mark.slow
def test_records_are_mapped_and_a_copy_maps_the_same_file(tmp_path):
    instances = [Instance(image=f"{n}.png", objects=[BOX] * (n % 3)) for n in range(10_000)]
    write_records(tmp_path / "a.arrow", [batch_of(instances)])
    records = Records.open(tmp_path / "a.arrow")
    copy = pickle.loads(pickle.dumps(records))
    assert len(pickle.dumps(records)) < 400
    assert dumped(copy[5000:5003]) == dumped(instances[5000:5003]) and dumped(records) == dumped(instances)
    assert records.target_counts.tolist() == [n % 3 for n in range(10_000)]
    with pytest.raises(IndexError):
        records[10_000]


def test_records_keep_shapes(tmp_path):
    triangle = {"type": "polygon", "coordinates": [0.5, 0.1, 0.9, 0.5, 0.1, 0.5]}
    instance = Instance(image="a.png", objects=[{"desc": "a", "geometry": triangle}, BOX])
    write_records(tmp_path / "a.arrow", [batch_of([instance])])
    (back,) = Records.open(tmp_path / "a.arrow")
    assert [o.geometry for o in back.objects] == [o.geometry for o in instance.objects]


def test_lines_are_those_of_the_records_one_by_one():
    draw = random.Random(5)
    instances = []
    for n in range(60):
        objects = []
        for _ in range(draw.randrange(4)):
            x, y = draw.choice([0, draw.random() / 2, 5e-5]), draw.random() / 2
            item = {"desc": draw.choice(["cat", 'a "ü" \\ dog', "a \u2028"]), "bbox": [x, y, x + 0.25, y + 0.4]}
            item |= draw.choice(
                [{}, {}, {"iscrowd": True}, {"area": draw.choice([0, 4, 0.1, 1e22])}, {"colour": [1, None]}]
            )
            if draw.random() < 0.2:
                item["geometry"] = {"type": "point", "coordinates": [0.5, 0.1]}
            objects.append(item)
        stated = {
            "width": 40,
            "height": 30,
            "image_id": draw.choice([n, str(n), "ü"]),
            "query": 'the "cat"',
            "absent": [],
        }
        chosen = {key: value for key, value in stated.items() if draw.random() < 0.5}
        instances.append(Instance(image=draw.choice(["a/b.png", "ä\\b.png"]), objects=objects, **chosen))
    records = Records.of(instances)
    assert list(records.lines()) == list(map(instance_line, instances))
    assert dumped(records) == dumped(records[:]) == dumped(instances)
    targets = [target.desc for instance in instances for target in instance.targets]
    assert list(records.class_counts.items()) == list(Counter(targets).items())


def test_failed_writing_leaves_nothing(tmp_path):
    def broken():
        yield batch_of([Instance(image="a.png", objects=[])])
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError):
        write_records(tmp_path / "a.arrow", broken())
    assert not list(tmp_path.iterdir())


def test_long_samples_of_a_large_set_are_those_of_a_small_one(tmp_path):
    """Only records that may be too long are read; the bound holds for every target text."""
    from coord_codec import encode_target

    draw = np.random.default_rng(3)
    names = ["cat", "a very long description of a thing " * 3, "ü" * 20]
    instances = [
        Instance(
            image=f"{n}.png",
            width=int(draw.integers(10, 60)),
            height=50,
            objects=[{"desc": names[k], "bbox": [0.1, 0.1, 0.5, 0.5]} for k in draw.integers(0, 3, n % 9)],
        )
        for n in range(60)
    ]
    write_records(tmp_path / "a.arrow", [batch_of(instances)])
    records = Records.open(tmp_path / "a.arrow")
    for style, markers in (("markers", "qwen"), ("markers", "obj"), ("json", "qwen")):

        def write(instance, style=style, markers=markers):
            return encode_target(instance, style=style, markers=markers)

        assert all(len(write(i).encode()) <= bound for i, bound in zip(instances, records.text_bounds, strict=True))
        lengths = Lengths(around=5, answer=lambda text: len(text.encode()), image=lambda width, height: width * height)
        assert [(i.image, n) for i, n in longer_than(2500, lengths, records, write)] == [
            (i.image, n) for i, n in longer_than(2500, lengths, instances, write)
        ]


def test_records_of_one_image_are_told_however_its_path_is_written():
    names = ["a.jpg", "./a.jpg", "x/../b.jpg", "b.jpg", "c.jpg", "d.jpg"]
    instances = [Instance(image=name, objects=[BOX]) for name in names]
    instances += [Instance(image="d.jpg", objects=[BOX], query="left")]  # a question of its own
    assert sorted(Records.of(instances).repeated) == ["a.jpg", "b.jpg"]
