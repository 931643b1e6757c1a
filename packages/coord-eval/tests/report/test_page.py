"""The report: one file, safe whatever a model wrote, with images where there are any."""

import base64
import html
import json
import re
import sys
from html.parser import HTMLParser

import numpy as np
import pytest
from coco_builder import coco

from coord_codec import Instance
from coord_eval import AnswerSettings, ReportSection, ReportSettings, oracle_predictions, score
from coord_eval.cli.summaries import evaluation_lines
from coord_eval.metrics.errors import classify_errors
from coord_eval.report.findings import CostlyError, costly_errors, findings_html
from coord_eval.report.images import choose_images
from coord_eval.report.overlay import shown_name

EVIL = "<script>alert(1)</script>\"'&\u202e\ud83d\0"


@pytest.fixture(scope="module")
def evaluation():
    objects = [{"desc": "cat", "bbox": [0.1, 0.1, 0.5, 0.5]}, {"desc": "dog", "bbox": [0.5, 0.5, 0.9, 0.9]}]
    truth = [
        Instance(image=f"{i}.png", image_id=i, width=64, height=32, objects=objects if i else []) for i in range(5)
    ]
    records = oracle_predictions(truth)
    records[1]["text"] = records[1]["text"].replace("cat", EVIL)
    records[2]["text"] = ""
    return score(truth, records)


@pytest.fixture(scope="module")
def page(evaluation, tmp_path_factory):
    """The file of a report."""
    return evaluation.write_report(tmp_path_factory.mktemp("report"), title=EVIL)


class Page(HTMLParser):
    """Collects tags and whatever refers outside."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.outside, self.stack = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        if tag not in ("meta", "image", "input", "circle", "polyline"):
            self.stack.append(tag)
        self.outside += [v for k, v in attrs if k in ("src", "href") and not v.startswith(("data:", "#"))]
        assert not [k for k, _ in attrs if k.startswith("on")]

    def handle_startendtag(self, tag, attrs):
        depth = len(self.stack)
        self.handle_starttag(tag, attrs)
        del self.stack[depth:]

    def handle_endtag(self, tag):
        assert self.stack.pop() == tag


def drawn_images(text):
    return text.count('<svg class="overlay')


def test_report_is_one_well_formed_file_with_its_own_script_and_no_references(page):
    read = Page(page.read_text())
    assert read.stack == []
    assert read.outside == []
    assert read.tags.count("script") == 1
    assert drawn_images(page.read_text()) == 5


def test_report_escapes_what_a_model_wrote(page):
    text = page.read_text()
    assert text.count("<script") == 1
    assert "&lt;script&gt;" in text
    assert not set(text) & {"\u202e", "\0", "\ud83d"}


def test_report_breaks_long_labels_and_names_missing_ones(one_cat, tmp_path):
    long = "cat " * 40
    truth = one_cat | {"categories": [{"id": 1, "name": "cat"}, {"id": 2, "name": long}]}
    records = [{"bbox": [10, 25, 310, 525], "label": long}, {"bbox": [10, 25, 310, 525]}]
    text = score(truth, [{"image_id": 1, "text": str(records)}]).write_report(tmp_path).read_text()
    assert f'<td class="n long">{long.strip()}' in text  # confused with the cat: one line would hide the numbers
    assert "<td>(no label)</td><td class=n>1</td>" in text


def test_report_numbers_are_those_of_the_evaluation(evaluation, page):
    text = page.read_text()
    assert f"<b>{evaluation.coco['AP']:.3f}</b>" in text
    assert f"<b>{evaluation.mean_iou:.3f}</b>" in text
    assert f"ceiling {evaluation.ceiling['AP']:.3f}" in text
    assert text.count(">IoU 0.75<") == 1


SECTIONS = [
    "What to look at first 2 findings",
    "Images 5 of 5",
    "Average precision and recall (COCO) AP 0.629",
    "Precision, recall and F1 (no scores) F1 0.714",
    "Localisation and counts mean IoU 0.625",
    "Error kinds and their cost 3 errors",
    "Confusion of labels 1 box of another label",
    "Classes 2",
    "Where the boxes lie mean IoU 0.625",
    "Answers: parsing and format 5 of 5 parsed",
]
ROWS = """
predicted minus ground-truth objects per image|-0.40
absolute difference per image|0.40
images with the exact number|80.0 %
duplicates|0
recall for any label, IoU .50|0.750
small|8|0.625|0.625
medium|0|0.000|0.000
2-3|4|0.833|0.625|0.714
0|3|0.667
1|3|1.000
localisation|0|0.000
label|1|0.124
background|0|0.000
missed|2|0.203
cat|2||1|1
dog||3||1
cat|(unknown label)|1|0.250
cat|4|2|0.505|0.505
dog|4|3|0.752|0.752
images|5
images with an answer|5
images without an answer|0
answers about unknown images, left out|1
ground-truth objects|8
crowd regions, neither hit nor missed|0
predicted boxes|6
boxes with unknown labels, counted as false|1
answers|5
parsed|5
clean|5
truncated|1
empty|2
repeats|0
complete objects|6
format none|2
format obj|3
nothing dropped|0
cow|1
0.5|0.833|0.625|0.714|1.000|0.750|0.857
0.5:0.95|0.833|0.625|0.714|1.000|0.750|0.857
""".split("\n")[1:-1]
"""Of four images with a cat and a dog each, where one answer is empty, and one calls the cat a cow."""


def plain(html):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", html)).strip()


def test_report_has_every_section_tile_and_row_of_a_set_counted_by_hand(tmp_path):
    objects = [{"desc": "cat", "bbox": [0.1, 0.1, 0.5, 0.5]}, {"desc": "dog", "bbox": [0.5, 0.5, 0.9, 0.9]}]
    truth = [
        Instance(image=f"{i}.png", image_id=i, width=64, height=32, objects=objects if i else []) for i in range(5)
    ]
    records = oracle_predictions(truth)
    records[1]["text"] = records[1]["text"].replace("cat", "cow")
    records[2]["text"] = ""
    records[3]["finish_reason"] = "length"
    records.append({"image": "z.png", "image_id": 99, "text": ""})
    found = score(truth, records)
    text = found.write_report(tmp_path).read_text()
    summaries = [plain(part) for part in re.findall(r"<summary[^>]*>(.*?)</summary>", text, re.DOTALL) if "<h2" in part]
    assert summaries == SECTIONS
    tiles = [plain(part) for part in re.findall(r"<div><span>(.*?)</div>", text, re.DOTALL)]
    assert tiles == [
        "AP 0.629 ceiling 1.000",
        "AP50 0.629 ceiling 1.000",
        "F1 at IoU .50 0.714 without scores",
        "Mean IoU 0.625 over objects, 0 for missed ones",
        "Answers parsed 100.0 % 5 of 5, 1 cut off",
    ]
    rows = {
        "|".join(plain(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.DOTALL))
        for row in re.findall(r"<tr.*?</tr>", text, re.DOTALL)
    }
    assert set(ROWS) <= rows
    shown = plain(found._repr_html_())
    assert "Answers parsed" in shown and "AP 0.629" in shown
    assert found.notes and all(plain(note)[:40] in shown for note in found.notes)


def test_report_sections_of_a_caller_stand_in_front(evaluation, tmp_path):
    sections = [ReportSection("Loss & more", "<svg><path d='M0 0'/></svg>")]
    text = evaluation.write_report(tmp_path, sections=sections).read_text()
    assert text.index("<h2>Loss &amp; more</h2></summary><svg>") < text.index("<h2>Average precision")


def test_overlay_embeds_images_in_their_own_colours(evaluation, tmp_path):
    image = pytest.importorskip("PIL.Image")
    image.new("RGB", (64, 32), (200, 30, 60)).save(tmp_path / "3.png")
    text = evaluation.write_report(tmp_path / "out", image_root=tmp_path).read_text()
    (encoded,) = re.findall(r'href="data:image/jpeg;base64,([^"]+)"', text)
    (tmp_path / "drawn.jpg").write_bytes(base64.b64decode(encoded))
    with image.open(tmp_path / "drawn.jpg") as drawn:
        assert drawn.size == (64, 32)  # the browser enlarges it
        assert all(abs(a - b) < 12 for a, b in zip(drawn.getpixel((30, 10)), (200, 30, 60), strict=True))
    assert "<li>4 images, the first 2.png: not found" in text


def test_overlay_draws_boxes_where_they_are(page):
    """The image is 64 x 32 and drawn 480 wide: a box from .1 to .5 starts at 48, 24 and is 192 x 96."""
    text = page.read_text()
    assert '<rect x="48.0" y="24.0" width="192.0" height="96.0" class="hit' in text


def test_report_names_a_broken_image_and_goes_on(evaluation, tmp_path):
    pytest.importorskip("PIL.Image")
    (tmp_path / "3.png").write_bytes(b"not an image")
    text = evaluation.write_report(tmp_path / "out", image_root=tmp_path).read_text()
    assert "3.png: cannot identify" in text and str(tmp_path) not in text


def test_report_without_pillow_says_so(evaluation, tmp_path, monkeypatch):
    (tmp_path / "3.png").write_bytes(b"")
    monkeypatch.setitem(sys.modules, "PIL", None)
    text = evaluation.write_report(tmp_path / "out", image_root=tmp_path).read_text()
    assert "Pillow is not installed" in text
    assert drawn_images(text) == 5


def test_report_shows_images_with_the_lowest_and_the_highest_f1(evaluation, tmp_path):
    text = evaluation.write_report(tmp_path, max_overlays=2).read_text()
    shown = re.findall(r"<figcaption>(\d)\.png: F1 ([\d.]+)", text)
    assert shown[0] == ("2", "0.00")
    assert shown[1][1] == "1.00"
    assert "<li>2 of 5 images are shown: examples" in text
    assert "images are shown: examples" not in evaluation.write_report(tmp_path).read_text()
    assert drawn_images(evaluation.write_report(tmp_path, max_overlays=0).read_text()) == 0


def test_report_has_the_permissions_of_any_file(page, tmp_path):
    (tmp_path / "other").write_text("")
    assert page.stat().st_mode == (tmp_path / "other").stat().st_mode


PLACES = [[100.0 * k, 0.0, 50.0, 50.0] for k in range(4)]
NOTHING = [0.0, 60.0, 30.0, 30.0]


def scored(*boxes, crowd=()):
    """Four cats in one image, and what was answered: boxes and scores."""
    truth = coco(*((1, 1, box) for box in PLACES), size=(400, 100))
    truth["annotations"] += [
        {"id": 9 + n, "image_id": 1, "category_id": 1, "bbox": box, "iscrowd": 1} for n, box in enumerate(crowd)
    ]
    rows = [{"image_id": 1, "category_id": 1, "bbox": box, "score": value} for box, value in boxes]
    return truth, rows, score(truth, rows)


@pytest.mark.parametrize(
    ("boxes", "crowd", "best"),
    [
        # Two found at .9, a third at .3 beside two false ones: without it F1 is 2 · 2 / (4 + 2).
        ([(PLACES[0], 0.9), (PLACES[1], 0.9), (NOTHING, 0.4), (NOTHING, 0.4), (PLACES[2], 0.3)], (), 0.9),
        # Of thresholds of equal F1 it is the highest; of two boxes on one cat the better scored one hits.
        ([(PLACES[0], 0.8), ([5.0, 0.0, 50.0, 50.0], 0.9), (PLACES[1], 0.7)], (), 0.7),
        # A box in a crowd region counts at no threshold.
        ([(PLACES[0], 0.9), (NOTHING, 0.5), (PLACES[1], 0.4)], ([0.0, 60.0, 40.0, 40.0],), 0.4),
        # Margins below 0 have a best threshold as well.
        ([(PLACES[0], 2.5), (PLACES[1], -1.0), (NOTHING, -3.0)], (), -1.0),
        # Without scores that tell boxes apart, without a hit, or without boxes there is none.
        ([(PLACES[0], 0.5), (NOTHING, 0.5)], (), None),
        ([(NOTHING, 0.5), (NOTHING, 0.4)], (), None),
        ([], (), None),
    ],
)
def test_images_show_the_boxes_from_the_best_threshold_on_and_have_the_others_for_the_slider(
    tmp_path, boxes, crowd, best
):
    truth, rows, evaluation = scored(*boxes, crowd=crowd)
    text = evaluation.write_report(tmp_path).read_text()
    svg = re.search('<svg class="overlay.*?</svg>', text)[0]
    found = [re.findall(f'<rect [^>]*class="{fate} [^>]*>', svg) for fate in ("hit", "false", "missed")]
    shown = [sum("hidden" not in tag for tag in tags) for tags in found]
    sliders = re.findall('<input type="range"[^>]*>', text)
    assert len(sliders) == (best is not None)
    assert ("from a score of" in "".join(evaluation_lines(evaluation))) == (best is not None)
    if best is None:
        assert "data-up-to" not in svg and "best F1" not in text
        return
    values = sorted({value for _, value in boxes})
    by_threshold = {}
    for value in values:
        kept = score(truth, [row for row in rows if row["score"] >= value])
        by_threshold[value] = kept.detection["0.5"]["f1"]
        if value == best:
            hits, false = (sum(tags) for tags in zip(*[(d, not d) for d in kept.ranked.hit_TD[0]], strict=True))
            assert shown == [hits, false, len(PLACES) - hits]
    assert max(by_threshold, key=lambda value: (by_threshold[value], value)) == best
    assert f'min="{values[0]:g}" max="{values[-1]:g}" value="{best:g}"' in sliders[0]
    assert f": F1 {by_threshold[best]:.2f}" in text
    assert f"best F1 {by_threshold[best]:.3f} at {best:g}" in text
    # Each box stands once, and each cat that is found once as found and once as missed.
    assert len(found[0]) + len(found[1]) == len(boxes)
    assert len(found[2]) == len(PLACES)


def cells(text):
    """The rows of two cells of a page's tables, numbers as texts."""
    return dict(re.findall(r"<tr><td>([^<]*)</td><td class=n>([^<]*)</td></tr>", text))


def test_report_and_notebook_tell_the_counts_of_answers_and_the_notes(tmp_path):
    truth = coco((1, 1, [10, 10, 40, 40]), (2, 1, [10, 10, 40, 40]), (2, 1, [60, 60, 30, 30]), images=range(1, 8))
    truth["annotations"][2]["iscrowd"] = 1
    box = '{"bbox_2d": [100, 100, 500, 500], "label": "%s"}'
    texts = [f"[{box % 'cat'}, {box % 'cow'}, {box % 'ox'}]", "[]", f"[{box % 'cat'}, " + '{"bbox_2d": [1', "no"]
    records = [{"image_id": i, "text": text} for i, text in enumerate(texts, 1)] + [{"image_id": 99, "text": "[]"}]
    found = score(truth, records, answers=AnswerSettings(scale=1000))
    text, shown = found.write_report(tmp_path, facts={"model": "tiny & small"}).read_text(), found._repr_html_()
    counts = {name: int(value) for name, value in cells(text).items() if value.isdigit()}
    expected = {"images": 7, "images with an answer": 4, "images without an answer": 3, "ground-truth objects": 2}
    expected |= {"answers about unknown images, left out": 1, "crowd regions, neither hit nor missed": 1}
    expected |= {"predicted boxes": 4, "boxes with unknown labels, counted as false": 2, "cow": 1, "ox": 1}
    health = found.format
    expected |= {key: health[key] for key in ("answers", "parsed", "clean", "truncated", "empty", "repeats")}
    expected |= {f"format {name}": n for name, n in health["formats"].items()}
    expected |= {reason.replace("_", " "): n for reason, n in health["dropped"].items()}
    assert expected.items() <= counts.items() and health["truncated"] and health["dropped"]
    for page_ in (text, shown):
        assert f"{health['parsed']} of {health['answers']}, {health['truncated']} cut off" in page_
        assert f"{100 * health['parsed'] / health['answers']:.1f} %" in page_
        assert all(html.escape(note, quote=False)[:40] in page_ for note in found.notes) and found.notes
        assert f"AP {found.coco['AP']:.3f}" in page_
    assert "tiny &amp; small" in text
    plain = score(truth, [{"image_id": 1, "category_id": 1, "bbox": [10, 10, 40, 40], "score": 0.5}])
    assert "Answers parsed" not in plain._repr_html_()


@pytest.mark.parametrize(
    ("limit", "findings", "expected"),
    [
        (10, [], [3, 1, 0, 4, 2, 5, 7, 6]),  # all, by ascending F1
        (8, [{6}], [3, 1, 0, 4, 2, 5, 7, 6]),
        (4, [], [3, 1, 7, 6]),  # half of them worst, half best
        (5, [], [3, 1, 0, 7, 6]),
        (4, [{2, 5}], [3, 2, 7, 6]),  # one for a finding, the worst of those that show it
        (7, [{2, 5}, {5, 4}], [3, 1, 0, 4, 5, 7, 6]),  # too few for one of each finding
        (1, [], [3]),
    ],
)
def test_images_of_a_report_are_examples_of_findings_and_the_worst_and_the_best(limit, findings, expected):
    f1_I = np.array([0.2, 0.1, 0.4, 0.0, 0.3, 0.5, 0.9, 0.8])
    found = [CostlyError("missed", "", frozenset(images)) for images in findings]
    assert choose_images(f1_I, found, limit) == expected


def test_findings_link_to_the_images_that_are_shown():
    def link(images, shown):
        return findings_html([CostlyError("missed", "a < b", frozenset(images))], frozenset(shown))

    assert ">Show 2 images</a>" in link({1, 2}, {1, 2, 3}) and "kind=missed" in link({1}, {1})
    assert ">Show 1 of 2 images</a>" in link({1, 2}, {2, 3})
    assert "<a " not in link({1, 2}, {3}) and "a &lt; b" in link({1}, {3})


def test_errors_that_cost_most_come_first_and_cheap_ones_not_at_all():
    truth = coco(
        *((1, 1 + k % 2, [60.0 * k, 0.0, 50.0, 50.0]) for k in range(6)), names=("cat", "dog"), size=(500, 100)
    )
    at = [row["bbox"] for row in truth["annotations"]]
    wrong = [(1, at[1], 0.9), (1, at[3], 0.8), (2, at[5], 0.7), (1, [400, 60, 20, 20], 0.01)]
    found = score(truth, [{"image_id": 1, "category_id": k, "bbox": b, "score": s} for k, b, s in wrong])
    costs = {name: row["cost"] for name, row in found.analysis["errors"].items()}
    listed = costly_errors(found, classify_errors(found))
    by_cost = [name for name in sorted(costs, key=lambda name: -costs[name]) if costs[name] >= 0.0005][:3]
    assert [row.kind for row in listed] == by_cost and costs["background"] < 0.0005
    total = sum(row["count"] for row in found.analysis["errors"].values())
    (label,) = [row for row in listed if row.kind == "label"]
    assert label.text.startswith(f"2 of {total} errors") and "most often dog answered as cat (2)" in label.text
    assert label.images == {0}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("photos/a.jpg", "photos/a.jpg"),
        ("/home/me/a.jpg", "a.jpg"),
        ("C:\\me\\a.jpg", "a.jpg"),
        ("x/../a.jpg", "a.jpg"),
        ("a..b.jpg", "a..b.jpg"),
        ("", "1"),
        ("a" * 120, "a" * 120),
        ("a" * 61 + "b" * 60, "a" * 60 + "…" + "b" * 60),
    ],
)
def test_names_of_images_are_shown_without_folders_of_the_machine(name, expected):
    truth = score(coco(images={1: name}), []).truth
    assert shown_name(truth, 0) == expected


def test_figures_of_0_stand_beside_the_others_and_unknown_labels_are_the_most_frequent_15(tmp_path):
    image = pytest.importorskip("PIL.Image")
    image.new("RGB", (100, 100)).save(tmp_path / "1.jpg")
    truth = coco((1, 1, [10, 10, 40, 40]))
    rows = [{"bbox": [600, 600, 700, 700 + n], "label": f"l{n}"} for n in range(17) for _ in range(1 + n // 2)]
    (tmp_path / "truth.json").write_text(json.dumps(truth))
    found = score(tmp_path / "truth.json", [{"image_id": 1, "text": str(rows)}], report=ReportSettings(diagnose=False))
    text = found.write_report(tmp_path / "out").read_text()
    assert "AP 0.000 (ceiling 1.000)" in text and "precision 0.000" in text
    shown = {name: int(n) for name, n in cells(text).items() if re.fullmatch(r"l\d+", name)}
    assert shown == {f"l{n}": 1 + n // 2 for n in range(2, 17)}
    assert "data:image/jpeg" in text  # of the folder of the ground truth
