"""inspect.html has the findings, figures, boxes, pairs and distributions of an examination, each of them once."""

import json
import re
from dataclasses import replace
from html import unescape

import numpy as np
import pytest
from PIL import Image
from tables import rects_of

import coord_data
from coord_data.finding import Finding
from coord_data.inspection import page
from coord_data.inspection.page import Page, histogram, write_page


def bars(html):
    """Return label, share of the longest bar and count of each row."""
    rows = re.findall(r'<th>(.*?)</th><td><i style="width:([\d.]+)%"></i>(\d+)</td>', html)
    return [(label, float(width) / 70, int(count)) for label, width, count in rows]


@pytest.mark.parametrize("values", [[1, 2, 2, 5], [0], [7, 7], range(17), range(40), [3, 35, 35], [-2, 31], [0, 15]])
def test_bars_of_whole_numbers_count_each_value_once(values):
    found = bars(histogram("t", values, "u"))
    ends = [tuple(map(int, label.split(" to "))) for label, _, _ in found]
    counts = [sum(end[0] <= value <= end[-1] for value in values) for end in ends]
    assert [count for *_, count in found] == counts and sum(counts) == len(values)
    assert ends[0][0] == min(values) and ends[-1][-1] >= max(values) > ends[-1][0] - 1 and len(ends) <= 16
    assert len({end[-1] - end[0] for end in ends}) == 1
    assert [share for _, share, _ in found] == pytest.approx([count / max(counts) for count in counts], abs=1e-3)


@pytest.mark.parametrize(
    ("values", "low", "high", "bins"),
    [
        ([0.5, 1.25, 4.5, 4.5], 0.5, 4.5, {0: 1, 3: 1, 15: 2}),
        ([0.3] * 4, -0.2, 0.8, {8: 4}),
        ([3e9 + 0.5, 3e9 + 1.5], 3e9, 3e9, {4: 1, 12: 1}),  # equal but for rounding
        ([2.5], 2, 3, {8: 1}),
    ],
)
def test_bars_of_other_numbers_are_sixteen_of_one_width(values, low, high, bins):
    found = bars(histogram("t", values, "u"))
    start, end = float(found[0][0].split(" to ")[0]), float(found[-1][0].split(" to ")[1])
    assert (start, end) == pytest.approx((low, high), rel=1e-2)
    assert [count for *_, count in found] == [bins.get(k, 0) for k in range(16)]


def test_histogram_is_escaped_and_empty_without_values():
    assert histogram("t", [], "u") == "" and histogram("t", np.zeros(0), "u") == ""
    assert "<figcaption>a &lt;t&gt;, b &lt;u&gt;</figcaption>" in histogram("a <t>", [1], "b <u>")


BOXES = {
    "a.png": [("dog", [0.1, 0.2, 0.5, 0.6]), ("cat", [0.1, 0.1, 0.3, 0.2]), ("dog", [0, 0, 1, 1])],
    "b.png": [("cat", [0.25, 0.25, 0.5, 0.5])],
    "c.png": [],
    "gone.png": [("cow", [0.1, 0.1, 0.9, 0.9])],
}


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Three images, one that is missing, and one refused object; and a copy of the first image in another folder."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "other").mkdir()
    for n, name in enumerate(("a.png", "b.png", "c.png")):
        Image.effect_noise((64 + n, 48), 40 + n).convert("RGB").save(folder / name)
    Image.new("RGB", (9, 9), "red").save(folder / "other" / "a.png")
    lines = [
        {"image": name, "objects": [{"desc": desc, "bbox": box} for desc, box in rows]} for name, rows in BOXES.items()
    ]
    lines[2]["objects"] = [{"desc": "cat", "bbox": [0.5, 0.5, 0.5, 0.6]}]
    (folder / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return coord_data.inspect(folder / "a.jsonl")


def written(path, examination, added=None, shown=None):
    write_page(path / "p.html", examination, added or Page(), examination.shown if shown is None else shown)
    return (path / "p.html").read_text()


def cards(html):
    """Return what the page draws of each image, by name: caption, sort values, boxes as fractions, and their labels."""
    drawn = {}
    for shot in re.findall(r'<figure class="shot".*?</figure>', html, re.DOTALL):
        width, height = map(float, re.search(r'viewBox="0 0 (\d+) (\d+)"', shot).groups())
        boxes = [(x / width, y / height, (x + w) / width, (y + h) / height) for x, y, w, h in rects_of(shot)]
        values = [float(value) for value in re.search(r'data-values="(.*?)"', shot)[1].split()]
        caption, labels = (
            re.search(r"<figcaption>(.*?)</figcaption>", shot)[1],
            re.findall(r"<title>(.*?)</title>", shot),
        )
        drawn[re.search(r'aria-label="(.*?)"', shot)[1]] = caption, values, boxes, labels
    return drawn


def test_page_states_the_figures_of_the_set(found, tmp_path):
    added = Page(
        (("Tokens", 7, "of <text>"),),
        None,
        (("more & more", "<i>own</i>"), ("last", "<i>further</i>")),
        ".own { top: 0 }",
        {"model": "m<1>"},
        "My <data>",
    )
    html = written(tmp_path, found, added)
    cells = re.findall(r"<div><span>(.*?)</span><b>(.*?)</b><small>(.*?)</small></div>", html)
    assert [cell[:2] for cell in cells] == [("Images", "4"), ("Boxes", "6"), ("Refused", "1"), ("Tokens", "7")]
    assert [cells[0][2], cells[1][2], cells[3][2]] == ["3 usable", "4 usable", "of &lt;text&gt;"]
    for text in (
        "My &lt;data&gt;",
        "m&lt;1&gt;",
        found.root.name,
        "<h2>more &amp; more</h2>",
        "<i>own</i>",
        "<h2>last</h2>",
        "<i>further</i>",
        ".own { top: 0 }",
    ):
        assert text in html
    table = re.search(r'<div class="findings">(.*?)</table>', html, re.DOTALL)[1]
    rows = [
        [unescape(cell) for cell in re.findall(r"<td.*?>(.*?)</td>", row)]
        for row in re.findall(r"<tr>(.*?)</tr>", table)[1:]
    ]
    assert rows == [[f.severity, f.code, f.message, f.evidence, str(f.count), f.fix] for f in found.findings]
    heads = dict(re.findall(r"<summary><h2>(.*?)</h2>(?:<b>(.*?)</b>)?", html))
    counts = {s: sum(f.severity == s for f in found.findings) for s in ("error", "warning", "note")}
    told = [f"{n} {s}{'s' * (n > 1)}" for s, n in counts.items() if n]
    assert (heads["Findings"], heads["Images"]) == (", ".join(told), "3 of 3")
    charts = {
        c.split(",")[0]: bars(h)
        for h, c in re.findall(r'<figure class="bars">(.*?)<figcaption>(.*?)</figcaption>', html)
    }
    assert [(label, count) for label, _, count in charts["Objects per image"]] == [("1", 3), ("2", 0), ("3", 1)]
    sides = [999 * min(x2 - x1, y2 - y1) for rows in BOXES.values() for _, (x1, y1, x2, y2) in rows]
    shorter = [
        (tuple(map(float, label.split(" to "))), count) for label, _, count in charts["Shorter side of the boxes"]
    ]
    assert sum(count for _, count in shorter) == len(sides) == 5
    assert (shorter[0][0][0], shorter[-1][0][1]) == pytest.approx((min(sides), max(sides)), rel=1e-2)


@pytest.mark.slow
def test_images_without_objects_are_counted_wherever_they_stand(tmp_path):
    for n in range(3):
        Image.effect_noise((64, 48), 40 + n).convert("RGB").save(tmp_path / f"{n}.png")
    boxes = [{"desc": "cat", "bbox": [0.1, 0.2, 0.5, 0.6]}]
    for having in (0, 2):
        lines = [{"image": f"{n}.png", "objects": boxes * (n == having)} for n in range(3)]
        (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
        html = written(tmp_path, coord_data.inspect(tmp_path / "a.jsonl"), shown=[])
        (chart,) = (h for h in re.findall(r'<figure class="bars">(.*?)</figure>', html) if "Objects per image" in h)
        assert [(label, count) for label, _, count in bars(chart)] == [("0", 2), ("1", 1)]


def test_images_are_drawn_with_their_boxes_and_can_be_sorted(found, tmp_path):
    drawn = cards(written(tmp_path, found))
    assert [*drawn] == ["a.png", "b.png", "c.png"]
    for name, (caption, values, boxes, labels) in drawn.items():
        wanted = [box for _, box in BOXES[name]]
        np.testing.assert_allclose(sorted(boxes), sorted(map(tuple, wanted)), atol=0.01)
        assert sorted(labels) == sorted(desc for desc, _ in BOXES[name])
        areas = [(x2 - x1) * (y2 - y1) for x1, y1, x2, y2 in wanted]
        assert values == pytest.approx([0, len(wanted), min(areas, default=1)], rel=1e-3)
        width = 64 + "abc".index(name[0])
        assert caption == f"{name}: {width} x 48, {len(wanted)} object{'s' * (len(wanted) != 1)}"
    html = written(tmp_path, found, shown=found.shown[1:])
    assert re.findall(r'<option value="(\d[+-])">(\w+)', html) == [("0+", "in"), ("1-", "most"), ("2+", "smallest")]
    assert [*cards(html)] == ["b.png", "c.png"] and "2 of 3" in html
    own = written(tmp_path, found, Page(images=("Own", "<u>mine</u>")))
    assert cards(own) == {} and "<u>mine</u>" in own and "<h2>Images</h2>" not in own


def test_classes_are_listed_by_frequency_up_to_a_number(found, tmp_path, monkeypatch):
    rows = r"<tr><td>(\w+)</td><td class=n>(\d+)</td></tr>"
    html = written(tmp_path, found)
    assert re.findall(rows, html) == [("cat", "3"), ("dog", "2"), ("cow", "1")] and "further class" not in html
    monkeypatch.setattr(page, "_CLASSES", 2)
    html = written(tmp_path, found)
    assert (
        re.findall(rows, html) == [("cat", "3"), ("dog", "2")]
        and "<p>1 further class.</p>" in html
        and "3 classes" in html
    )


def pairs_of(html):
    """Return the figures of the pairs: the caption, and name and number of boxes of each image."""
    figures = re.findall(r"<figure>((?:(?!</figure>).)*)<figcaption>([^<]*? and [^<]*?)</figcaption>", html, re.DOTALL)
    svgs = ((caption, re.findall(r"<svg.*?</svg>", svg, re.DOTALL)) for svg, caption in figures)
    return [
        (caption, [(re.search(r'aria-label="(.*?)"', one)[1], len(rects_of(one))) for one in images])
        for caption, images in svgs
    ]


def finding(code, *pairs):
    severity = "note" if code == "duplicate_images" else "error"
    return Finding(code, severity, "what", "e", len(pairs), "f", tuple(pairs))


def test_pairs_are_drawn_side_by_side_with_the_boxes_that_conflict(found, tmp_path):
    for code, counts in (("conflicting_boxes", (3, 1)), ("duplicate_images", (0, 0))):
        html = written(tmp_path, found.with_findings([finding(code, ("a.png", "b.png"), ("b.png", "gone.png"))]))
        assert f"<h2>{code}: what</h2><b>2 records</b>" in html
        assert pairs_of(html) == [
            ("a.png and b.png", [("a.png", counts[0]), ("b.png", counts[1])]),
            ("b.png and gone.png", [("b.png", counts[1])]),
        ]


def test_image_with_several_records_is_drawn_with_the_boxes_of_the_first_and_of_the_last(tmp_path):
    Image.effect_noise((64, 48), 40).convert("RGB").save(tmp_path / "a.png")
    boxes = [[0.1, 0.1, 0.3, 0.3], [0.5, 0.5, 0.9, 0.9], [0.1, 0.5, 0.3, 0.9]]
    lines = [{"image": "a.png", "objects": [{"desc": "cat", "bbox": b} for b in boxes[:n]]} for n in (1, 2, 3)]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    twice = coord_data.inspect(tmp_path / "a.jsonl")
    conflicting = {f.code: f for f in twice.findings}["conflicting_boxes"]
    assert set(conflicting.pairs) == {("a.png", "a.png")}
    assert ("a.png and a.png", [("a.png", 1), ("a.png", 3)]) in pairs_of(written(tmp_path, twice))


def test_leaks_are_drawn_from_the_folders_of_both_sets(found, tmp_path):
    leak = replace(
        found.with_findings([finding("leakage", ("a.png", "a.png"))]), leak_roots=(found.root, found.root / "other")
    )

    def ratios(examination):
        svgs = re.findall(r'viewBox="0 0 (\d+) (\d+)"[^>]*aria-label="a.png"', written(tmp_path, examination, shown=[]))
        return [round(int(w) / int(h), 1) for w, h in svgs]

    assert ratios(leak) == [1.3, 1.0]
    within = replace(found.with_findings([finding("duplicate_images", ("a.png", "a.png"))]), leak_roots=leak.leak_roots)
    assert ratios(within) == [1.3, 1.3]
    assert (
        pairs_of(written(tmp_path, found.with_findings([finding("leakage", ("a.png", "a.png"))])))[0][1]
        == [("a.png", 0)] * 2
    )


def test_pairs_beyond_a_number_fold_and_those_beyond_another_are_listed(found, tmp_path, monkeypatch):
    monkeypatch.setattr(page, "_UNFOLDED", 1)
    monkeypatch.setattr(page, "_PAIRS", 2)
    pairs = [("a.png", "b.png"), ("b.png", "c.png"), ("c.png", "a.png"), ("a.png", "c.png")]
    for count in range(1, 5):
        html = written(tmp_path, found.with_findings([finding("duplicate_images", *pairs[:count])]), shown=[])
        (part,) = re.findall(r'<section id="duplicate_images-what">(.*?)</section>', html, re.DOTALL)
        seen, _, folded = part.partition("<details>")
        assert [caption for caption, _ in pairs_of(seen)] == ["a.png and b.png"]
        assert [caption for caption, _ in pairs_of(folded)] == ["b.png and c.png"][: count - 1]
        listed = re.findall(r"<tr><td>(.*?)</td><td class=n>(.*?)</td></tr>", folded)
        assert listed == pairs[2:count]
        assert ("further pair" in folded) == (count > 1) and (count < 2 or f"{count - 1} further pair" in folded)
