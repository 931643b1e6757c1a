"""Answers drawn from objects, in many forms and wordings: their objects and drops are the boxes that were drawn."""

import json

import pytest

from coord_codec import int_to_token
from coord_eval import parse_answer

LABELS = ("dog", "wine glass", "red car", "person", "Pferd", "\u732b", "No parking sign")
LABEL_KEYS = ("label", "desc", "name", "class", "category", "object", "caption", "text", "defect_type", "item")
CONTAINERS = ("", "objects", "res", "defects", "ocr_results", "found", "items_seen")
BOX_WORDS = ("bbox", "Bounding box", "bounding_box", "region", "location", "position", "coordinates", "Koordinaten")


def spelled(draw, box):
    """The numbers of a box in brackets."""
    a, b, c, d = box
    return draw.choice(
        [f"[{a}, {b}, {c}, {d}]", f"[{a},{b},{c},{d}]", f"({a}, {b}, {c}, {d})", f"[[{a}, {b}], [{c}, {d}]]"]
    )


def fields_of(draw, box, scale):
    """The fields of a box in a record: below one key, by sides, by place and size."""
    a, b, c, d = box
    w, h = (round(c - a, 4), round(d - b, 4))
    keys = ["bbox_2d", "bbox", "box", "bounding_box", "location", "position", "coordinates"]
    return draw.choice(
        [
            {draw.choice(keys): [a, b, c, d]},
            {"x1": a, "y1": b, "x2": c, "y2": d},
            {"left": a, "top": b, "width": w, "height": h},
            {"bbox": {"x": a, "y": b, "width": w, "height": h}},
            {"bbox_xywh": [a, b, w, h]},
            {draw.choice(["position", "origin", "top_left"]): [a, b], draw.choice(["size", "extent"]): [w, h]},
            {"top_left": [a, b], "bottom_right": [c, d]},
            *([{"box_2d": [b, a, d, c]}] if scale == 1000 else []),
        ]
    )


def records(draw, objects, scale):
    """JSON records, with the label before or after the box, in a list or below a key."""
    key, container = draw.choice(LABEL_KEYS), draw.choice(CONTAINERS)
    state, written = draw.getstate(), []
    for label, box in objects:
        draw.setstate(state)  # one form for all
        fields = fields_of(draw, box, scale)
        written.append({key: label, **fields} if draw.random() < 0.5 else {**fields, key: label})
    text = json.dumps({container: written} if container else written, ensure_ascii=draw.random() < 0.3)
    return f"```json\n{text}\n```" if draw.random() < 0.3 else text


def rows(draw, objects, scale):
    """JSON rows of label and numbers."""
    write = draw.choice(
        [
            lambda label, box: [label, *box],
            lambda label, box: [*box, label],
            lambda label, box: [label, list(box)],
            lambda label, box: [label, *box, "red"],
        ]
    )
    listed = [write(label, box) for label, box in objects]
    name = draw.choice(["", "objects", "boxes", "detections", "bounding_boxes"])
    return json.dumps({name: listed} if name else listed, ensure_ascii=False)


def by_label(draw, objects, scale):
    """A record for each object on a line of its own, or a dictionary by label."""
    if draw.random() < 0.5:
        return "\n".join(f'{label}: {{"bbox": {list(box)}}}' for label, box in objects)
    grouped = {}
    for label, box in objects:
        grouped.setdefault(label, []).append(list(box))
    return json.dumps(grouped, ensure_ascii=False)


def lines(draw, objects, scale):
    """Lines, with and without a word of the box."""
    word = draw.choice(BOX_WORDS)
    form = draw.choice(
        [
            "{label}: {box}",
            "{label} {word}: {box}",
            "{label}: {word}: {box}",
            "- **{label}**: {word}: {box}",
            "- {label} - {word} = {box}",
            "{label} ({word}: {box})",
            "1. {label}\n   - {word}: {box}",
            "{word} of the {label}: {box}",
            "{label} | {box}",
            "- label: {label}\n  {word}: {box}",
            "{label}'s {word}: {box}",
            "* **{label}** \u2013 {word} {box}",
            "{label}: 0.87 {box}",
            "{label} 93% {box}",
            "- {label}: confidence 0.9, {word}: {box}",
            "Label: {label}, {word}: {box}",
            "{label} \u2192 {word} {box}",
            "{word}: {box}, label: {label}",
            "{label} at {word} {box}",
            "name: {label}\n{word}: {box}\n",
            "### {label}\n{word}: {box}",
            "{label} {box}",
            "[{label}] {word}: {box}",
            "{label} = {box}",
            "<b>{label}</b>: {box}",
        ]
    )
    state = draw.getstate()
    written = []
    for label, box in objects:
        draw.setstate(state)
        written.append(form.format(label=label, word=word, box=spelled(draw, box)))
    return "\n".join(written)


def yaml(draw, objects, scale):
    """YAML, with a box of two pairs of numbers: a place and a size, a centre and a size, or two corners."""
    place, size = draw.choice(["position", "origin", "place", "location", "top_left"]), draw.choice(["size", "extent"])
    names = draw.choice([(place, size), ("center", "size"), ("top_left", "bottom_right")])
    pair = draw.choice(["{{x: {0}, y: {1}}}", "[{0}, {1}]", "{{ {2}: {0}, {3}: {1} }}"])
    between = draw.choice(["\n  ", ", "])
    written = []
    for label, (a, b, c, d) in objects:
        w, h = round(c - a, 4), round(d - b, 4)
        first = (round(a + w / 2, 4), round(b + h / 2, 4)) if names[0] == "center" else (a, b)
        last = (c, d) if names[1] == "bottom_right" else (w, h)
        sides = ("x", "y") if names[1] == "bottom_right" else ("width", "height")
        parts = [
            f"{name}: {pair.format(*numbers, *keys)}"
            for name, numbers, keys in zip(names, (first, last), (("x", "y"), sides), strict=True)
        ]
        if "{" in pair and names[1] != "bottom_right":
            parts[1] = f"{names[1]}: {{width: {w}, height: {h}}}"
        written.append(f"- label: {label}\n  {between.join(parts)}")
    return "\n".join(written)


def table(draw, objects, scale):
    """CSV or Markdown."""
    if draw.random() < 0.5:
        return "label,x1,y1,x2,y2\n" + "\n".join(f"{label},{','.join(map(str, box))}" for label, box in objects)
    return "| Object | Box |\n|---|---|\n" + "\n".join(f"| {label} | {list(box)} |" for label, box in objects)


def marks(draw, objects, scale):
    """Marks of the families, the label before its box or after it."""
    ref, end, box_start, box_end = draw.choice(
        [
            ("<ref>", "</ref>", "<box>", "</box>"),
            ("<|object_ref_start|>", "<|object_ref_end|>", "<|box_start|>", "<|box_end|>"),
        ]
    )
    numbers = draw.choice(["({0},{1}),({2},{3})", "[[{0}, {1}, {2}, {3}]]"])
    after = draw.random() < 0.3
    parts = [(f"{ref}{label}{end}", f"{box_start}{numbers.format(*box)}{box_end}") for label, box in objects]
    return "".join("".join(reversed(part) if after else part) for part in parts)


def tokens(draw, objects, scale):
    """Coordinate tokens, which have a scale of their own."""
    bins = [(label, [round(k / scale * 1000) for k in box]) for label, box in objects]
    form = draw.choice(["obj", "json", "florence2"])
    if form == "obj":
        return "".join(f"<obj_start>{label}{''.join(map(int_to_token, box))}<obj_end>" for label, box in bins)
    if form == "json":
        written = (f'{{"desc": "{label}", "bbox_2d": [{", ".join(map(int_to_token, box))}]}}' for label, box in bins)
        return f"[{', '.join(written)}]"
    return "".join(label + "".join(f"<loc_{k}>" for k in box) for label, box in bins)


FORMS = (records, records, rows, by_label, lines, lines, yaml, table, marks, tokens)
INTROS = ("", "", "Here are the objects:\n", "Sure! I found the following objects in the image:\n\n")
OUTROS = ("", "", "\n\nLet me know if you need more details.", "\nDone.")


def drawn(draw):
    """Return an answer and its objects: labels, and boxes in [0, 1]."""
    scale = draw.choice([1000, 1000, 1])
    objects = []
    for _ in range(draw.randint(1, 4)):
        x, y = draw.randint(1, 600), draw.randint(1, 600)
        box = (x, y, x + draw.randint(20, 390), y + draw.randint(20, 390))
        objects.append((draw.choice(LABELS), box if scale == 1000 else tuple(k / 1000 for k in box)))
    form = draw.choice(FORMS)
    text = draw.choice(INTROS) + form(draw, objects, scale) + draw.choice(OUTROS)
    other = [("cat", (1, 2, 30, 40))]
    thought = f"<think>Maybe a cat at {spelled(draw, other[0][1])}, or {form(draw, other, 1000)}.</think>"
    where = draw.choice(["none", "none", "before", "after", "around"])
    text = {"none": text, "before": thought + text, "after": text + thought, "around": f"{thought}{text}\n{thought}"}[
        where
    ]
    return form.__name__, scale, text, [(label, tuple(k / scale for k in box)) for label, box in objects]


def faults_of(scale, text, objects):
    """Return what is wrong with the objects and drops of a drawn answer."""
    answer = parse_answer(text, scale=scale)
    left = list(objects)
    for item in answer:
        same = [drawn for drawn in left if max(abs(a - b) for a, b in zip(drawn[1], item.box, strict=True)) < 2e-3]
        named = [drawn for drawn in same if drawn[0] == item.desc]
        if not same:
            return f"{item.desc} {item.bins} was not drawn"
        if item.desc and not named:
            return f"{item.bins} is {same[0][0]!r} and not {item.desc!r}"
        left.remove((named or same)[0])
    return f"{len(left)} boxes, {len(answer.dropped)} drops" if len(answer.dropped) < len(left) else ""


@pytest.mark.drawn(1)
@pytest.mark.parametrize("part", range(20))  # 100,000 answers with --full
def test_objects_and_drops_of_a_drawn_answer_are_its_boxes(part, fuzz):
    named = total = 0
    for _ in fuzz.times(5_000):
        form, scale, text, objects = drawn(fuzz.draw)
        assert faults_of(scale, text, objects) == "", (form, scale, text)
        found = {item.desc for item in parse_answer(text, scale=scale)}
        total, named = total + len(objects), named + sum(label in found for label, _ in objects)
    assert named > 0.9 * total  # a reader that drops all is none
