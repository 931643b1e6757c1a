"""Sources of every kind, small: two of images, one of conversations."""

import json

from PIL import Image, ImageDraw

CAT, DOG = {"desc": "cat", "bbox": [0.1, 0.2, 0.5, 0.7]}, {"desc": "dog", "bbox": [0.4, 0.4, 0.9, 0.95]}
TALK = [
    {"messages": [{"role": "user", "content": "What is 2 + 2?"}, {"role": "assistant", "content": "It is 4."}]},
    {
        "messages": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "<image>Which one is larger?<image>"},
            {"role": "assistant", "content": "The second one."},
            {"role": "user", "content": "And the first one?"},
            {"role": "assistant", "content": "It is smaller."},
        ],
        "images": ["big/0.png", "big/1.png"],
    },
]


def draw(path, size, number):
    image = Image.new("RGB", size, (20 * number, 90, 60))
    ImageDraw.Draw(image).rectangle((5, 5, 20 + number, 30), fill=(250, 10 * number, 9))
    path.parent.mkdir(parents=True, exist_ok=True)
    image.save(path)


def write_sources(folder):
    """Write the sources into a folder; returns `data.sources`."""
    for number in range(5):
        draw(folder / "big" / f"{number}.png", (64, 48), number)
        draw(folder / "small" / "images" / f"{number}.png", (40, 40), number)
    big = [{"image": f"{n}.png", "width": 64, "height": 48, "objects": [CAT, DOG][: n % 3]} for n in range(5)]
    small = [{"image": f"{n}.png", "width": 40, "height": 40, "objects": [DOG, CAT]} for n in range(3)]
    for name, records in (("big/a.jsonl", big), ("small/a.jsonl", small), ("talk.jsonl", TALK)):
        (folder / name).write_text("".join(json.dumps(record) + "\n" for record in records))
    return [
        {"annotations": str(folder / "big/a.jsonl"), "weight": 4, "prompt": "Find every animal."},
        {
            "name": "dogs",
            "annotations": str(folder / "small/a.jsonl"),
            "images": str(folder / "small/images"),
            "weight": 2,
            "classes": ["dog"],
            "augment": {"flip": 0.5},
        },
        {"name": "talk", "conversations": str(folder / "talk.jsonl"), "weight": 4},
    ]
