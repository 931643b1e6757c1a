"""Time to parse 5,000 answers of 40 objects, in each format.

python packages/coord-eval/benchmarks/parse_speed.py
"""

import random
import time

import typer

from coord_codec import Instance, encode_target
from coord_eval import parse_answer

ANSWERS, OBJECTS = 5_000, 40


def main() -> None:
    """Time to parse 5,000 answers of 40 objects, in each format."""
    draw = random.Random(0)
    boxes = []
    for _ in range(OBJECTS):
        x, y = draw.uniform(0, 0.7), draw.uniform(0, 0.7)
        boxes.append({"desc": draw.choice(["person", "traffic light", "red car"]), "bbox": [x, y, x + 0.2, y + 0.3]})
    instance = Instance(image="a.jpg", objects=boxes)
    texts = {
        f"{style} {markers} {form}": encode_target(instance, markers=markers, style=style, form=form)
        for style, markers, form in [
            ("markers", "obj", "tokens"),
            ("markers", "qwen", "tokens"),
            ("markers", "qwen", "numbers"),
            ("json", "obj", "tokens"),
            ("json", "obj", "numbers"),
        ]
    }
    texts["paligemma"] = " ; ".join("<loc0100><loc0200><loc0300><loc0400> person" for _ in boxes)
    texts["florence2"] = "".join("person<loc_100><loc_200><loc_300><loc_400>" for _ in boxes)
    for name, text in texts.items():
        start = time.perf_counter()
        objects = sum(len(parse_answer(text)) for _ in range(ANSWERS))
        assert objects == ANSWERS * OBJECTS
        print(f"{name:24} {time.perf_counter() - start:6.2f} s for {objects} objects")


if __name__ == "__main__":
    typer.run(main)
