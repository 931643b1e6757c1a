"""The same boxes in every format, written as others write them, and what COCO JSON says of them."""

import csv
import json

from coord_codec import read_annotations, write_instances

SIZES = {"a": (200, 100), "b": (64, 48), "c": (50, 50)}
BOXES = {"a": [("red cat", 20, 10, 120, 60), ("dog", 0, 0, 200, 100)], "b": [("dog", 63, 47, 64, 48)], "c": []}
NAMES = ["red cat", "dog"]


def coco():
    images, rows = [], []
    for n, (stem, (width, height)) in enumerate(SIZES.items(), start=1):
        images.append({"id": n, "file_name": f"{stem}.jpg", "width": width, "height": height})
        for name, x, y, a, b in BOXES[stem]:
            rows.append({"id": 9, "image_id": n, "category_id": 1 + NAMES.index(name), "bbox": [x, y, a - x, b - y]})
    categories = [{"id": n, "name": name} for n, name in enumerate(NAMES, start=1)]
    return {"images": images, "annotations": rows, "categories": categories}


TWIN = {i.image: (i.width, i.height, [(o.desc, o.bbox) for o in i.objects]) for i in read_annotations(coco()).instances}


def write_coco(place):
    (place / "a.json").write_text(json.dumps(coco()))
    return place / "a.json"


def write_jsonl(place):
    found = read_annotations(coco()).instances
    write_instances(place / "a.txt", [i.model_copy(update={"image": f"images/{i.image}"}) for i in found])
    return place / "a.txt"


def voc_object(name, box, extra=""):
    x1, y1, x2, y2 = box
    sides = {"xmin": x1 + 1, "ymin": y1 + 1, "xmax": x2, "ymax": y2}
    inner = "".join(f"<{k}>{v}</{k}>" for k, v in sides.items())
    return f"<object><name>{name}</name>{extra}<bndbox>{inner}</bndbox></object>"


def write_voc(place):
    (place / "Annotations").mkdir()
    (place / "images").rename(place / "JPEGImages")
    for stem, (width, height) in SIZES.items():
        objects = "".join(voc_object(name, box) for name, *box in BOXES[stem])
        size = f"<size><width>{width}</width><height>{height}</height><depth>3</depth></size>"
        text = f"<annotation><filename>{stem}.jpg</filename>{size}{objects}</annotation>"
        (place / "Annotations" / f"{stem}.xml").write_text(text)
    return place


def write_yolo(place):
    (place / "labels").mkdir()
    (place / "data.yaml").write_text("train: images\nnames: [red cat, dog]\n")
    for stem, (width, height) in SIZES.items():
        lines = (
            f"{NAMES.index(name)} {(x + a) / 2 / width!r} {(y + b) / 2 / height!r} "
            f"{(a - x) / width!r} {(b - y) / height!r}\n"
            for name, x, y, a, b in BOXES[stem]
        )
        (place / "labels" / f"{stem}.txt").write_text("".join(lines))
    return place


def write_csv(place):
    with (place / "a.data").open("w", newline="") as file:
        table = csv.writer(file)
        table.writerow(["filename", "width", "height", "class", "xmin", "ymin", "xmax", "ymax"])
        for stem, boxes in BOXES.items():
            for row in boxes or [("", "", "", "", "")]:
                table.writerow([f"{stem}.jpg", *SIZES[stem], *row])
    return place / "a.data"


def write_bare_csv(place):
    with (place / "a.csv").open("w", newline="") as file:
        for stem, boxes in BOXES.items():
            rows = [[f"{stem}.jpg", x, y, a, b, name] for name, x, y, a, b in boxes]
            csv.writer(file).writerows(rows or [[f"{stem}.jpg", "", "", "", "", ""]])
    return place / "a.csv"


def write_lvis(place):
    document = coco()
    for row in document["images"]:
        row["coco_url"] = f"http://images.cocodataset.org/train2017/{row.pop('file_name')}"
        row["not_exhaustive_category_ids"] = []
    (place / "a.json").write_text(json.dumps(document))
    (place / "images").rename(place / "train2017")
    return place / "a.json"


def write_vg(place):
    records, facts = [], []
    for n, (stem, (width, height)) in enumerate(SIZES.items(), start=1):
        objects = [{"names": [name], "x": x, "y": y, "w": a - x, "h": b - y} for name, x, y, a, b in BOXES[stem]]
        records.append({"image_id": n, "objects": objects})
        facts.append({"image_id": n, "width": width, "height": height, "url": f"https://x/rak/images/{stem}.jpg"})
    (place / "objects.json").write_text(json.dumps(records))
    (place / "image_data.json").write_text(json.dumps(facts))
    return place


def write_openimages(place):
    lines = [
        "ImageID,Source,LabelName,Confidence,XMin,XMax,YMin,YMax,IsOccluded,IsTruncated,IsGroupOf,IsDepiction,IsInside"
    ]
    for stem, (w, h) in SIZES.items():
        for name, x, y, a, b in BOXES[stem]:
            label = f"/m/0{NAMES.index(name)}"
            lines.append(f"{stem},x,{label},1,{x / w!r},{a / w!r},{y / h!r},{b / h!r},0,0,0,0,0")
    (place / "train-annotations-bbox.csv").write_text("\n".join(lines))
    (place / "class-descriptions-boxable.csv").write_text("/m/00,red cat\n/m/01,dog\n")
    return place / "train-annotations-bbox.csv"


def write_swift(place):
    lines = []
    for stem, boxes in BOXES.items():
        text = "".join("<ref-object><bbox>" for _ in boxes)
        objects = {"ref": [name for name, *_ in boxes], "bbox": [box for _, *box in boxes]}
        turns = [{"role": "user", "content": "<image>Where?"}, {"role": "assistant", "content": text}]
        lines.append(json.dumps({"messages": turns, "images": [f"images/{stem}.jpg"], "objects": objects}))
    (place / "a.jsonl").write_text("\n".join(lines))
    return place / "a.jsonl"


def write_qwen(place):
    records = []
    for stem, boxes in BOXES.items():
        found = [{"bbox_2d": box, "label": name} for name, *box in boxes]
        answer = f"```json\n{json.dumps(found)}\n```"
        turns = [{"from": "human", "value": "<image>\nDetect."}, {"from": "gpt", "value": answer}]
        records.append({"image": f"images/{stem}.jpg", "conversations": turns})
    (place / "a.json").write_text(json.dumps(records))
    return place / "a.json"


WRITERS = {
    "coco": write_coco,
    "jsonl": write_jsonl,
    "voc": write_voc,
    "yolo": write_yolo,
    "csv": write_csv,
    "csv without header": write_bare_csv,
    "lvis": write_lvis,
    "vg": write_vg,
    "openimages": write_openimages,
    "swift": write_swift,
    "qwen": write_qwen,
}
