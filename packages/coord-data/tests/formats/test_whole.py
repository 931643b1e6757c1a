"""Sources with all that a format can state, read as a whole: each field of a record, notes by count, problems by place.

What each source means is written out beside it; boxes are in pixels of an image of 200 x 100.
"""

import json

import pytest
from PIL import Image

from coord_data.reading.read import read_source

SIZE = (200, 100)


def written(folder, files, images):
    for name in images:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", SIZE).save(folder / name)
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


def outcome(source, **rules):
    """Return the records, the counts of notes, the problems by the end of their place, and the notes on the source."""
    found = read_source(source, **{"on_bad_box": "drop_box"} | rules)
    records = []
    for record in found.annotations.instances:
        objects = [
            (
                item.desc,
                *(round(value * side, 3) for value, side in zip(item.bbox, SIZE * 2, strict=True)),
                *("ignored",) * item.iscrowd,
                *([] if item.area is None else [f"area {item.area:g}"]),
            )
            for item in record.objects
        ]
        stated = {"image_id": record.image_id} if record.image_id is not None else {}
        stated |= (
            {} if (record.width, record.height) in (SIZE, (None, None)) else {"size": (record.width, record.height)}
        )
        records.append((record.image, stated | (record.model_extra or {}), *objects))
    problems = [(problem.where.rpartition("/")[2], problem.message) for problem in found.annotations.problems]
    return records, dict(found.annotations.notes), problems, [note.partition(": ")[2] for note in found.notes]


CAR, DOG = ("car", 20, 10, 60, 50), ("dog", 100, 30, 180, 90)


def corners(box, names=("x1", "y1", "x2", "y2")):
    return dict(zip(names, box[1:], strict=True))


SCALABEL = {
    "frames": [
        {
            "name": "https://a.example/b/a.jpg?v=1",
            "size": {"width": 400, "height": 200},
            "labels": [
                {"category": "car", "box2d": corners((0, 40, 20, 120, 100)), "attributes": {"crowd": False}},
                {"category": "dog", "box2d": corners((0, 200, 60, 360, 180)), "attributes": {"ignored": True}},
                {"category": "cat", "poly2d": [{"vertices": [[2, 2], [8, 2], [8, 8]]}, [[20, 20], [40, 20], [40, 44]]]},
                {"category": "lane", "poly2d": [{"vertices": [[2, 2], [8, 2], [8, 8]], "closed": False}]},
                {"category": "lane"},
                {"category": "bad", "box2d": {"x1": 1, "y1": 2}},
                {"category": "open", "poly2d": [{"vertices": [[2, 2], [8, 2]]}]},
            ],
        },
        {"name": "b.jpg", "labels": None},
        {"name": "", "labels": []},
        {"name": "gone/b.jpg", "labels": [{"category": "car", "box2d": corners(CAR)}]},
    ],
    "config": {},
}
ODVG = [
    {"filename": "a.jpg", "detection": {"instances": [{"bbox": CAR[1:], "label": 0}, {"bbox": DOG[1:], "label": 7}]}},
    {"filename": "b.jpg", "grounding": {"regions": [{"phrase": ["red", "car"], "bbox": [CAR[1:], DOG[1:]]}]}},
    {"filename": "a.jpg", "detection": {"instances": [{"bbox": CAR[1:], "label": 0}, {"bbox": CAR[1:], "label": 7}]}},
]


def labelbox(row, *annotators):
    labels = [{"annotations": {"objects": objects}} for objects in annotators]
    return {"data_row": {"id": row, "global_key": "a.jpg"}, "projects": {"p": {"labels": labels}}}


SIDES = {"left": 20, "top": 10, "width": 40, "height": 40}
LABELBOX = [
    labelbox(0, [{"name": "car", "bounding_box": SIDES}], [{"name": "car", "bounding_box": SIDES}])
    | {"media_attributes": {"width": 200, "height": 100}},
    {"data_row": {"id": "r", "external_id": "b.jpg"}, "projects": {}, "media_attributes": {"width": 0, "height": 9}},
]
MEGADETECTOR = {
    "images": [
        {"file": "a.jpg", "detections": [{"category": "0", "conf": 0.9, "bbox": [0.1, 0.1, 0.2, 0.4]}]},
        {"file": "b.jpg", "failure": "no access", "detections": None},
    ],
    "detection_categories": {"0": "car"},
}
VIA = {
    "a": {
        "filename": "a.jpg",
        "regions": {
            "0": {
                "shape_attributes": {"name": "rect", "x": 20, "y": 10, "width": 40, "height": 40},
                "region_attributes": {"Class": {"car": True, "dog": False}, "hue": 1},
            },
            "1": {
                "shape_attributes": {"name": "ellipse", "cx": 100, "cy": 50, "rx": 40, "ry": 10, "theta": 0.5235987756},
                "region_attributes": {"Class": " dog "},
            },
            "2": {"shape_attributes": {"name": "rect", "deleted": 1}, "region_attributes": {"Class": "x"}},
            "3": {"shape_attributes": {"name": "circle", "cx": 1, "cy": 1, "r": 1, "deleted": True}},
            "4": {
                "shape_attributes": {"name": "rect", "x": 1, "y": 1, "width": 9, "height": 9},
                "region_attributes": {"Class": {"car": True, "dog": True}},
            },
            "5": {"shape_attributes": {"name": "polyline"}, "region_attributes": {"Class": "hen"}},
        },
    },
    "b": {"filename": "b.jpg", "regions": []},
}
OPENIMAGES = (
    "ImageID,LabelName,XMin,XMax,YMin,YMax,IsOccluded,IsTruncated,IsGroupOf,IsDepiction,IsInside,deleted\n"
    "a,/m/1,0.1,0.3,0.1,0.5,1,1,0,0,0,\n"
    "b.jpg,/m/2,0.5,0.9,0.3,0.9,0,0,1,1,1,0\n"
    "a,/m/2,0.5,0.9,0.3,0.9,-1,0,0,0,0,1\n"
    "a,/m/2,0.5,0.9,0.3,0.9,0,0,0,0,0,1\n"
    "a,/m/2,x,0.9,0.3,0.9,0,0,0,0,0,\n"
)
VG = [
    {
        "image_id": 0,
        "objects": [
            {"names": ["car ", "auto"], "x": 20, "y": 10, "w": 40, "h": 40},
            {"names": ["dog", "hound"], "x": 100, "y": 30, "width": 80, "height": 60, "deleted": True},
            {"names": ["dog"], "x": 100, "y": 30, "width": 80, "height": 60, "colour": "red"},
            {"names": ["hen", "fowl"], "x": 100},
        ],
    },
    {"image_id": 2, "objects": []},
    {"image_id": 3},
]
VG_IMAGES = [
    {"image_id": 0, "url": "https://a.example/x/VG_100K_2/0.jpg", "width": 200, "height": 100},
    {"image_id": 2, "width": 9, "height": 0},
]
CSV = (
    "\nFilename,label,class,xmin,ymin,xmax,ymax,width,height,confidence,breed,deleted,label\n"
    "a.jpg,car,7,20,10,60,50,200,100,1.0,,0,x\n"
    "./a.jpg,NA,7,100,30,180,90,200,100,1,big,,x,,\n"
    "a.jpg,old,7,1,1,9,9,200,100,1,,1,x\n"
    "a.jpg,old,7,2,2,9,9,200,100,1,,yes,x\n"
    "b.jpg,,,,,,,0,100,,,,\n"
    "b.jpg,hen,7,20,10,60,,0,100,1,,,x\n"
    "b.jpg,hen,7,20,10,60,50,0,100,1,,,x,9\n"
)
LVIS = {
    "images": [
        {
            "id": 0,
            "coco_url": "http://a.example/coco/val/a.jpg",
            "neg_category_ids": [],
            "not_exhaustive_category_ids": [2],
            "width": 200,
            "height": 100,
        },
        {
            "id": 5,
            "coco_url": "http://a.example/coco/val/b.jpg",
            "neg_category_ids": [1, 2],
            "not_exhaustive_category_ids": [1],
            "width": 200,
            "height": 100,
        },
    ],
    "categories": [{"id": 1, "name": "car"}, {"id": 2, "name": "dog"}],
    "annotations": [{"id": 1, "image_id": 0, "category_id": 1, "bbox": [20, 10, 40, 40], "area": 1600}],
}
REFS = [
    {"ann_id": 1, "split": "train", "sentences": [{"raw": "the Car ", "sent": "the car"}, {"sent": "left one"}]},
    {"ann_id": 2, "split": "testA", "sentences": [{"raw": "", "sent": "a dog"}]},
]
INSTANCES = {
    "images": [{"id": 0, "file_name": "a.jpg", "width": 200, "height": 100}],
    "categories": [{"id": 1, "name": "car"}],
    "annotations": [
        {"id": n, "image_id": 0, "category_id": 1, "bbox": [x1, y1, x2 - x1, y2 - y1]}
        for n, (_, x1, y1, x2, y2) in enumerate((CAR, DOG), 1)
    ],
}
DOTA = (
    "imagesource:x\ngsd:0.1\n20 10 60 10 60 50 20 50 car 2\n100 30 180 30 180 90 100 90 dog\n1 2 3\n\n"
    "20 x 1 2 3 4 5 6 hen 0\n"
)
KITTI = (
    "traffic light 0 0 0 20 10 60 50 0 0 0 0 0 0 0\nDontCare 0 0 0 100 30 180 90 0 0 0 0 0 0 0 0.9\nx 1 2 3\n"
    "car -1 -1 -10 20 10 60 50 -1 -1 -1 -1000 -1000 -1000 -10 .5 1\nhen 0 0 0 20 x 60 50 0 0 0 0 0 0 0\n"
)


def voc(name, *objects, size=SIZE, top=""):
    size = "<size><width>{}</width><height>{}</height></size>".format(*size)
    return f"<annotation><filename>{name}</filename>{top}{size}{''.join(objects)}</annotation>"


def thing(name, box=None, more=""):
    sides = zip(("xmin", "ymin", "xmax", "ymax"), box or (), strict=False)
    box = "".join(f"<{side}>{value}</{side}>" for side, value in sides)
    return f"<object><name>{name}</name>{f'<bndbox>{box}</bndbox>' if box else ''}{more}</object>"


def outline(*values):
    names = (f"{axis}{n}" for n in range(1, len(values)) for axis in "xy")
    return f"<polygon>{''.join(f'<{k}>{v}</{k}>' for k, v in zip(names, values, strict=False))}</polygon>"


DEVKIT = "<source><database>The VOC2007 Database</database></source><folder>x</folder>"
VOC = voc(
    "a.jpg",
    thing("car", (21, 11, 60, 50), "<truncated>1</truncated><occluded>1</occluded>"),
    thing(" dog ", (101, 31, 180, 90), "<difficult> 1 </difficult><truncated>1</truncated><name>hound</name>"),
    thing("old", (21, 11, 60, 50), "<deleted>1</deleted>"),
    thing("zero", (21, 0, 60, 50), "<breed>x</breed><part><name>y</name></part>"),
    thing("poly", None, outline(21, 11, 60, 11, 60, 50)),
    thing("half", (21, 11, 60.5, 50)),
    thing("none"),
    thing("bad", (21, 11, "x", 50)),
    top=DEVKIT + "<layer><n>1</n></layer>",
)
"""Of the devkit: the first pixel is 1, and the last one belongs to the box."""
YOLO = {
    "data.yaml": "names: [car, dog]\npath: /gone\ntrain: [images/train, ../images/train]\nval: images/val\n",
    "labels/train/a.txt": "0 .2 .3 .2 .4\n1 .7 .6 .4 .6 0.5\n\n0 .2 .3 .2 -.4\n0 .2 .3 -.2 .4\n0 .2 .3 1.5 .4\n",
    "labels/train/b.txt": "5 .2 .3 .2 .4\n0.5 .2 .3 .2 .4\n1 .1 .1 .3 .1 .3 .5 .1 .5\n1 .1 .1 .3 .1 .3 .5\n0 1\n"
    "0 40 20 60 80\n",
    "labels/train/d.txt": "0 .2 .3 .2 .4\n",
}
POSES = {
    "data.yaml": "names: [car]\nkpt_shape: [2, 2]\nflip_idx: [1, 0]\n",
    "labels/a.txt": "0 .2 .3 .2 .4 0 .5 .25 0\n0 .2 .3 .2 .4 0 0 .25 .25\n0 .2 .3 .2 .4 .1\n",
}


def shape(kind, *points, label="car", **more):
    return {"label": label, "points": points, "shape_type": kind, **more}


LABELME = {
    "imagePath": "..\\x\\a.jpg",
    "imageWidth": 0,
    "imageHeight": 100,
    "shapes": [
        shape("rectangle", [60, 50], [20, 10], group_id=0),
        shape("rectangle", [70, 10], [80, 60], group_id=0),
        shape("rectangle", [90, 10], [95, 60], label="dog", group_id=0, score=0.5),
        shape("circle", [100, 50], [103, 54]),
        shape("rectangle", [1, 1], [9, 9], label="__ignore__"),
        shape("rectangle", [1, 1], [9, 9], deleted=True),
        shape("point", [5, 5]),
        shape("", [20, 10], [60, 10], [60, 50], label="poly", group_id=""),
        shape("rectangle", [20, 10], [60, 10], [60, 50], [20, 50], label="four"),
        shape("polygon", [20, 10], [60, 10], label="short"),
        shape("rectangle", [1, 1], [9, 9], label=3),
    ],
}


def turns(*answers, question="<image>?"):
    said = [{"role": "user", "content": question}]
    for answer in answers:
        said += [{"role": "assistant", "content": answer}, {"role": "user", "content": "And <ref>hen</ref>?"}]
    return said


def found(*boxes, key="bbox_2d", **more):
    return json.dumps([{key: box, "label": label, **more} for label, *box in boxes])


QWEN = [
    {
        "images": ["file://a.jpg"],
        "query": "which ones?",
        "messages": turns(
            f"<think>{found(('x', 1, 2, 3, 4))}<box>(1,2),(3,4)</box></think>" + found(("car", 100, 100, 300, 500)),
            "```json\n" + found(("dog", 500, 300, 900, 900), colour="red") + "\n```",
        ),
    },
    {
        "image": "b.jpg",
        "messages": turns(
            '[{"bbox_2d": null, "label": "car"}, {"bbox_2d": [0, 0, 0, 0], "label": "car"}, '
            '{"bbox_2d": [100, 100, 300, 500], "label": 0}, {"bbox_2d": [100, 100, 300, 500], "label": null}, '
            '{"bbox_2d": [1, 2, 3], "label": "dog"}, {"bbox_2d": [0, 0, 1000, 1000], "label": "all", "deleted": 1}]'
        ),
    },
    {"images": ["a.jpg"], "messages": turns("There is no car."), "query": "<image>Find <ref-object>"},
    {"images": ["a.jpg", "b.jpg"], "messages": turns(found(("car", 1, 2, 3, 4)))},
    {"images": ["a.jpg"], "messages": turns("It is red."), "videos": []},
    {"images": ["a.jpg"], "messages": turns(found(("car", 1, 2, 3, 4))), "video": "v.mp4"},
]
MARKED = [
    {
        "image": "a.jpg",
        "conversations": [
            {"from": "human", "value": "<img>b.jpg</img> Is <box>(1,1),(9,9)</box> a <ref>car</ref>?"},
            {"from": "gpt", "value": "<box>(100,100),(300,500)</box>"},
            {"from": "gpt", "value": "<ref>dog</ref><box>(500,300),(900,900)</box><box>none</box><box>(1,2)</box>"},
        ],
    }
]
MARKED[0]["conversations"][0]["value"] = MARKED[0]["conversations"][0]["value"].replace("<img>b.jpg</img>", "<image>")


def swift(text, images=("a.jpg",), thought="", **objects):
    return {
        "messages": [{"role": "user", "content": "<image>?"}, {"role": "assistant", "content": text}],
        "images": list(images),
        "objects": objects,
    }


ONE, TWO = list(CAR[1:]), list(DOG[1:])
SWIFT = [
    swift("<ref-object><bbox> <ref-object><bbox><bbox>", ref=["car", "dog"], bbox=[ONE, TWO, ONE]) | {"query": "all?"},
    swift("<bbox><bbox> a <ref-object>", ref=["dog"], bbox=[ONE, TWO], bbox_type="real"),
    swift(
        "<ref-object><bbox><ref-object><bbox><ref-object><bbox>",
        ("a.jpg", "b.jpg"),
        ref=["car", "dog", "hen"],
        bbox=[[100, 100, 300, 500], [500, 300, 900, 900], []],
        bbox_type="norm_1000",
        image_id=[0, 1, 1],
    ),
    swift("<think><ref-object><bbox></think><ref-object><bbox>", ref=["x", "car"], bbox=[[1, 2, 3, 4], ONE]),
    swift("<bbox><bbox>", ref=["car", "dog"], bbox=[ONE, TWO]),
    swift("<ref-object><bbox>", ref=["car"], bbox=[[0.1, 0.1, 0.3, 0.5]], bbox_type="norm1", image_id=["x"]),
    swift("<ref-object><bbox>", ref=["car"], bbox=[ONE], bbox_type="norm2"),
    swift("<ref-object><bbox>", ref=["car"], bbox=[["x", 1, 2, 3]]),
    swift("<ref-object><bbox>", ref=["car"], bbox=[ONE], angle=30),
    swift("<bbox>", ref=[], bbox=[ONE]),
]
SCREENS = [
    {"img_filename": "a.jpg", "instruction": "car", "bbox": [20, 10, 40, 40], "platform": "web"},
    {"img_filename": "a.jpg", "instruction": "dog", "bbox": {"cx": 140, "cy": 60, "w": 80, "h": 60}},
    {"img_filename": "b.jpg", "instruction": "dog", "bbox": {"left": 100, "top": 30, "width": 80, "height": 60}},
    {"img_filename": "b.jpg", "instruction": "hen", "bbox": {"xmin": 0.1, "ymin": 0.1, "xmax": 0.3, "ymax": 0.5}},
    {"img_filename": "b.jpg", "instruction": "", "bbox": [1, 2, 3]},
    {"img_filename": 0, "instruction": "x", "bbox": [1, 2, 3, 4]},
]
COCO = {
    "images": [{"id": 0, "file_name": "a.jpg", "width": 200, "height": 100}, {"id": "x", "file_name": "./b.jpg"}],
    "categories": [{"id": 0, "name": "car"}, {"id": 1, "name": "dog"}],
    "annotations": [
        {"id": 0, "image_id": 0, "category_id": 0, "bbox": [20, 10, 40, 40], "area": 0},
        {"id": 1, "image_id": 0, "category_id": 1, "bbox": [100, 30, 80, 60], "iscrowd": 1, "area": 9},
        {"id": 2, "image_id": "x", "category_id": 1, "bbox": [100, 30, 80, 60]},
    ],
}
LINES = [
    {
        "image": "a.jpg",
        "image_id": 0,
        "width": 200,
        "height": 100,
        "source": "web",
        "objects": [
            {"desc": "car", "bbox": [0.1, 0.1, 0.3, 0.5], "area": 0},
            {"desc": "dog", "bbox": [0.5, 0.3, 0.9, 0.9], "iscrowd": 1, "colour": "red"},
            {"desc": "bad", "bbox": [0.5, 0.3, 0.4, 0.9]},
        ],
    },
    {"image": "b.jpg", "query": "the one", "objects": []},
]


def lines(rows):
    return "".join(json.dumps(row) + "\n" for row in rows)


AB = ("a.jpg", "b.jpg")
IGNORED, DELETED, NO_FILE = "are ignored in scoring", "marks as deleted", "without a label file"
UNREAD, BAD_SIZE, ABSENT = "with the field {}, which is not read", "stated image sizes", "states as absent"
A_CAR, A_DOG = (("a.jpg", {}, CAR), ("a.jpg", {}, DOG))
IGNORED_DOG = (*DOG, "ignored")
OF_YOLO = (
    [
        ("images/train/a.jpg", {"uncertain": ["car"]}, CAR, DOG),
        ("images/train/b.jpg", {"uncertain": ["car"]}, ("dog", *CAR[1:]), ("dog", *CAR[1:])),
        ("images/train/c.jpg", {}),
    ],
    {NO_FILE: 1, "a sixth number, which": 1, "polygons or rotated": 1, "rows of four corners": 1},
    {
        "a.txt:4": "found 0.2 x -0.4",
        "a.txt:5": "found -0.2 x 0.4",
        "a.txt:6": "lies outside its image",
        "b.txt:1": "class 5 has no name: there are 2",
        "b.txt:2": "class 0.5 has no name",
        "b.txt:5": "found 2 numbers",
        "b.txt:6": "pixels?",
    },
    ["/gone does not exist", "train: 3 images are named more than once", "name the folder of val"],
)
OF_IMAGES = ("images/train/a.jpg", "images/train/b.jpg", "images/train/c.jpg", "images/val/x.jpg")
CASES = {
    "scalabel": (
        *({"a.json": SCALABEL}, AB),
        [
            (
                *("a.jpg", {"size": (400, 200), "uncertain": ["bad", "open"]}, CAR, IGNORED_DOG),
                *(("cat", 1, 1, 4, 4), ("cat", 10, 10, 20, 22)),
            ),
            ("b.jpg", {}, CAR),
        ],
        {IGNORED: 1, "closed outline": 2, UNREAD.format("attributes"): 2, "outlines, read as the box": 2},
        {"frames[0]: object 5": "four named", "frames[0]: object 6": "vertices", "frames[2]": "name: expected"},
        [],
    ),
    "odvg": (
        *({"a.jsonl": lines(ODVG), "my_label_map.json": {"0": "car"}}, AB),
        [("a.jpg", {}, CAR, ("7", *DOG[1:]), ("7", *CAR[1:])), ("b.jpg", {}, ("red car", *ONE), ("red car", *TWO))],
        *({"class numbers without": 2}, {}, []),
    ),
    "odvg with two maps": (
        *({"a.jsonl": lines(ODVG[:1]), "a_label_map.json": {"0": "car"}, "b_label_map.json": {"0": "car"}}, AB),
        [("a.jpg", {}, ("0", *ONE), ("7", *TWO))],
        *({"class numbers without": 2}, {}, []),
    ),
    "labelbox": (
        *({"a.ndjson": lines(LABELBOX)}, AB),
        [("a.jpg", {"image_id": 0}, CAR, CAR), ("b.jpg", {"image_id": "r"})],
        *({"labelled several times": 1, BAD_SIZE: 1}, {}, []),
    ),
    "megadetector": (
        *({"a.json": MEGADETECTOR}, AB, [A_CAR], {UNREAD.format("conf"): 1}),
        *({"images[1]": "no access"}, []),
    ),
    "via": (
        *({"a.json": VIA}, AB),
        [("a.jpg", {"uncertain": ["hen"]}, CAR, ("dog", 65, 28.206, 135, 71.794)), ("b.jpg", {})],
        *({"circles and ellipses": 1, DELETED: 2}, {"regions[2]": "Class: expected one", "regions[3]": "polyline"}),
        ["attribute Class"],
    ),
    "openimages": (
        *({"a.csv": OPENIMAGES, "class-descriptions-x.csv": "/m/1,car\n/m/2,dog\nx\n"}, AB),
        [("a.jpg", {"image_id": "a", "uncertain": ["dog"]}, CAR), ("b.jpg", {"image_id": "b.jpg"}, IGNORED_DOG)],
        {DELETED: 2, IGNORED: 1} | dict.fromkeys(("IsDepiction", "IsInside", "IsOccluded", "IsTruncated"), 1),
        *({"a.csv:6": "expected a number, found 'x'"}, []),
    ),
    "vg": (
        *({"objects.json": VG, "image_data.json": VG_IMAGES}, ("VG_100K_2/0.jpg", "0.jpg", "2.jpg")),
        [("VG_100K_2/0.jpg", {"image_id": 0, "uncertain": ["hen"]}, CAR, DOG), ("2.jpg", {"image_id": 2})],
        {DELETED: 1, "several names": 1, UNREAD.format("colour"): 1, BAD_SIZE: 1},
        *({"record 0: box 2": "expected names or phrase", "record 2": "expected image_id and objects"}, []),
    ),
    "csv": (
        *({"a.csv": CSV}, AB),
        [("a.jpg", {}, CAR, ("NA", *TWO)), ("b.jpg", {"uncertain": ["hen"]})],
        {"boxes labelled NA": 1, DELETED: 2, BAD_SIZE: 1},
        {"a.csv:8": "expected a number, found ''", "a.csv:9": "expected 13 cells"},
        ["pixels", "from the column label, not from class", "not read: breed"],
    ),
    "lvis": (
        *({"a.json": LVIS}, ("val/a.jpg", "val/b.jpg")),
        [
            ("val/a.jpg", {"absent": [], "image_id": 0, "uncertain": ["dog"]}, (*CAR, "area 1600")),
            ("val/b.jpg", {"absent": ["dog"], "image_id": 5, "uncertain": ["car"]}),
        ],
        *({"not annotated exhaustively": 2}, {}, []),
    ),
    "refcoco": (
        *({"refs.json": REFS, "instances.json": INSTANCES}, AB),
        [
            ("a.jpg", {"query": "the Car", "split": "train"}, ("the Car", *ONE)),
            ("a.jpg", {"query": "left one", "split": "train"}, ("left one", *ONE)),
            ("a.jpg", {"query": "a dog", "split": "testA"}, ("a dog", *TWO)),
        ],
        *({}, {}, ["train 1, testA 1"]),
    ),
    "dota": (
        *({"set/a.txt": DOTA, "set/classes.txt": "1 2 3"}, ("set/images/a.jpg", "set/images/b.jpg")),
        [("a.jpg", {"uncertain": ["hen"]}, (*CAR, "ignored"), DOG), ("b.jpg", {})],
        {IGNORED: 1, NO_FILE: 1, "four corners": 2},
        *({"a.txt:5": "eight numbers", "a.txt:7": "expected a number, found 'x'"}, []),
    ),
    "kitti": (
        *({"set/a.txt": KITTI}, ("set/images/a.jpg", "set/images/b.jpg")),
        [("a.jpg", {"uncertain": ["hen"]}, ("traffic light", *ONE), ("DontCare", *TWO, "ignored")), ("b.jpg", {})],
        *({IGNORED: 1, NO_FILE: 1}, {"a.txt:3": "14 or 15", "a.txt:4": "14 or 15", "a.txt:5": "found 'x'"}, []),
    ),
    "voc": (
        *({"a.xml": VOC}, AB),
        [
            (
                *("a.jpg", {"uncertain": ["bad", "none"]}, CAR, IGNORED_DOG, ("zero", 20, 0, 60, 50)),
                *(("poly", *ONE), ("half", 20, 10, 60.5, 50)),
            )
        ],
        {
            **{"clipped": 1, "with a side at 0": 1, "boxes with fractions": 1, "difficult": 1, "element layer": 1},
            **{DELETED: 1, "several names": 1, UNREAD.format("breed"): 1, UNREAD.format("part"): 1, "occluded": 1},
            **{"polygons": 1, IGNORED: 1, "truncated": 2},
        },
        *({"object 6": "expected bndbox", "object 7": "bndbox.xmax: expected a number"}, []),
    ),
    "yolo": (YOLO, OF_IMAGES, *OF_YOLO),
    "yolo of data.yaml": (YOLO, OF_IMAGES, *OF_YOLO),
    "yolo of poses": (
        *(POSES, ("images/a.jpg",), [("images/a.jpg", {"uncertain": ["car"]}, CAR, CAR)]),
        *({"keypoints left out": 4}, {"a.txt:3": "(9 numbers), found 6"}, []),
    ),
    "labelme": (
        *({"a.json": LABELME}, AB),
        [
            (
                *("a.jpg", {"uncertain": ["car", "short"]}, ("car", 20, 10, 80, 60), ("dog", 90, 10, 95, 60)),
                *(("car", 95, 45, 105, 55), ("poly", *ONE), ("four", *ONE)),
            )
        ],
        {
            **{"circles": 1, DELETED: 1, UNREAD.format("score"): 1, "outlines": 1, "labelled __ignore__": 1},
            **{"group_id": 1, BAD_SIZE: 1},
        },
        {"shapes[5]": "a point", "shapes[8]": "with 2 points", "shapes[9]": "label: expected text"},
        [],
    ),
    "qwen": (
        *({"a.jsonl": lines(QWEN)}, AB),
        [("a.jpg", {"query": "which ones?"}, CAR, DOG), ("b.jpg", {"uncertain": ["dog"]}, ("0", *ONE)), ("a.jpg", {})],
        {"in a thought": 2, ABSENT: 2, DELETED: 1, UNREAD.format("colour"): 1},
        {
            **{"2: bbox_2d 3": "an empty one", "2: bbox_2d 4": "four numbers", "4": "one image, found 2"},
            **{"5": "an answer with bbox_2d", "6": "about a video"},
        },
        ["the largest number is 900"],
    ),
    "qwen in markers": (
        *({"a.jsonl": lines(MARKED)}, AB, [("a.jpg", {}, CAR, DOG)], {ABSENT: 1}),
        *({"1: bbox_2d 3": 'found "(1,2)"'}, ["the largest number is 900"]),
    ),
    "swift": (
        *({"a.jsonl": lines(SWIFT)}, AB),
        [
            ("a.jpg", {"query": "all?"}, CAR, DOG, ("dog", *ONE)),
            ("a.jpg", {}, ("dog", *ONE), DOG),
            *(A_CAR, ("b.jpg", {}, DOG), A_CAR, ("a.jpg", {}, CAR, DOG), A_CAR),
            *(("a.jpg", {"uncertain": ["car"]}), ("a.jpg", {"uncertain": ["car"]}), ("a.jpg", {})),
        ],
        {"in a thought": 1, ABSENT: 1},
        {
            **{"7: objects.bbox[0]": "bbox_type: expected", "8: objects.bbox[0]": 'found ["x"'},
            **{"9": "objects.angle: expected no angle", "10: objects.bbox[0]": "0 names for 1 boxes"},
        },
        [],
    ),
    "screenspot": (
        *({"a.jsonl": lines(SCREENS)}, AB),
        [("a.jpg", {}, CAR, DOG), ("b.jpg", {}, DOG, ("hen", *ONE))],
        *({}, {"5: object 0": "four numbers", "6": "the name of an image"}, ["(xywh) in pixels"]),
    ),
    "coco": (
        *({"a.json": COCO}, AB),
        [
            ("a.jpg", {"image_id": 0}, (*CAR, "area 0"), (*DOG, "ignored", "area 9")),
            ("./b.jpg", {"image_id": "x"}, DOG),
        ],
        *({"crowd regions": 1}, {}, []),
    ),
    "jsonl": (
        *({"a.jsonl": lines(LINES)}, AB),
        [
            ("a.jpg", {"image_id": 0, "source": "web", "uncertain": ["bad"]}, (*CAR, "area 0"), (*DOG, "ignored")),
            ("b.jpg", {"query": "the one"}),
        ],
        *({}, {"a.jsonl:1": "no area or swapped"}, []),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_all_that_a_source_states_is_read_told_or_a_problem(tmp_path, case):
    files, images, records, notes, problems, told = CASES[case]
    place = written(tmp_path, files, images)
    source = place if case == "yolo" else place / next(iter(files))
    if case in ("dota", "kitti"):
        source = place / "set"
    found, counts, faults, said = outcome(source)
    assert found == [(*record[:2], *map(tuple, record[2:])) for record in records]
    assert {words: [n for note, n in counts.items() if words in note] for words in notes} == {
        words: [n] for words, n in notes.items()
    }
    assert len(counts) == len(notes)
    assert len(faults) == len(problems)
    for (where, message), (place, words) in zip(faults, problems.items(), strict=True):
        assert where.endswith(place) and words in message
    assert len(said) == len(told) and all(words in line for words, line in zip(told, said, strict=True))
