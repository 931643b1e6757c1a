"""Random COCO sets on the borders: ties, crowds, zero boxes, foreign areas, id 0, exact thresholds and areas."""

import random

SIDES = ((32, 32), (96, 96), (20, 41), (64, 16))
SHARES = (0.5, 0.55, 0.6, 0.65, 0.7, 0.75, 0.8, 0.85, 0.9, 0.95)


def random_set(draw: random.Random, images=8) -> tuple[dict, list[dict]]:
    """Return ground truth and a results list."""
    first = draw.choice([0, 1, 100])
    categories = [{"id": first + 7 * k, "name": f"c{k}"} for k in range(draw.randint(1, 5))]
    ids = [first + i for i in range(images)]
    draw.shuffle(ids)
    annotations, results = [], []
    for image in ids:
        for _ in range(draw.randint(0, 9)):
            label = draw.choice(categories)["id"]
            box = _box(draw)
            area = draw.choice([1024, 9216, box[2] * box[3] * draw.uniform(0.3, 0.99)])
            area = area if draw.random() < 0.3 else box[2] * box[3]
            numbers = {"id": first + len(annotations), "image_id": image, "category_id": label}
            annotations.append({**numbers, "bbox": box, "area": area or 1, "iscrowd": int(draw.random() < 0.1)})
            for _ in range(draw.choice([0, 1, 1, 2, 3])):
                other = draw.choice(categories)["id"] if draw.random() < 0.15 else label
                score = draw.choice([0.1, 0.5, 0.9]) if draw.random() < 0.5 else draw.random()
                results.append({"image_id": image, "category_id": other, "bbox": _near(draw, box), "score": score})
    draw.shuffle(results)
    files = [{"id": i, "file_name": f"{i}.jpg", "width": 640, "height": 480} for i in ids]
    return {"images": files, "categories": categories, "annotations": annotations}, results


def _box(draw: random.Random) -> list[float]:
    sides = draw.choice([*SIDES, (draw.randint(1, 250), draw.randint(1, 250)), (draw.uniform(1, 90), 40.5)])
    if draw.random() < 0.03:
        sides = (0, sides[1])
    return [draw.randint(0, 300), draw.randint(0, 200), *sides]


def _near(draw: random.Random, box: list[float]) -> list[float]:
    x, y, width, height = box
    if draw.random() < 0.5:
        return [x, y, width * draw.choice([1, *SHARES]), height]
    shift = [draw.randint(-5, 5) for _ in range(4)]
    return [x + shift[0], y + shift[1], max(0, width + shift[2]), max(0, height + shift[3])]
