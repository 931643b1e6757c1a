"""A drafted set as the files of YOLO: images, labels, data.yaml."""

import json


def write_yolo(draft, root, split="", first=0):
    """Write images and labels below `images/SPLIT` and `labels/SPLIT`; classes are counted from `first`."""
    pictures, texts = root / "images" / split, root / "labels" / split
    for folder in (pictures, texts):
        folder.mkdir(parents=True, exist_ok=True)
    names = sorted({label for labels in draft.labels for label in labels})
    if not (root / "data.yaml").exists():
        (root / "data.yaml").write_text(json.dumps({"names": names}))
    draft.write_images(pictures)
    for name, boxes, labels in zip(draft.images, draft.numbers(), draft.labels, strict=True):
        rows = [f"{names.index(d) + first} {' '.join(map(str, b))}" for d, b in zip(labels, boxes, strict=True)]
        (texts / f"{name[:-4]}.txt").write_text("\n".join(rows))
