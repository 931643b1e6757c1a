"""All numbers, names and tips of a report, a notebook and a console, line by line, of sets to be counted by hand."""

import html
import re
from pathlib import Path

import pytest
from coco_builder import coco

from coord_eval import AnswerSettings, CocoParams, LabelSettings, ReportSettings, score
from coord_eval.cli.summaries import evaluation_lines
from coord_eval.report.changed import changed_images
from coord_eval.report.metric_html import flat

HERE = Path(__file__).parent


def plain(text):
    return re.sub(r"\s+", " ", html.unescape(re.sub(r"<[^>]+>", " ", text))).strip()


def lines_of(page):
    """Yield the headings, tiles, rows, captions, tips and what cards are filtered and sorted by, as a line each."""
    found = re.finditer(
        r"(?s)<summary[^>]*>(?P<section>.*?)</summary>|<div><span>(?P<tile>.*?)</div>|<tr.*?>(?P<row>.*?)</tr>"
        r"|<figcaption>(?P<caption>.*?)</figcaption>|<title>(?P<tip>.*?)</title>|<li>(?P<item>.*?)</li>"
        r'|<p class="figures">(?P<figures>.*?)</p>|(?P<card> data-[a-z-]+="[^"]*")|<h3>(?P<title>.*?)</h3>'
        r"|<text [^>]*>(?P<label>.*?)</text>|<p>(?P<words>.*?)</p>|(?P<mark><rect [^>]*>)|(?P<path><path [^>]*>)",
        page[page.index("<main") if "<main" in page else 0 :],
    )
    for match in found:
        kind, text = match.lastgroup, match[match.lastgroup]
        if kind == "row":
            text = "|".join(plain(cell) for cell in re.findall(r"(?s)<t[hd][^>]*>(.*?)</t[hd]>", text))
        elif kind == "mark":
            text = " ".join(re.findall(r'(?:x|y|width|height|class)="([^"]*)"', text)) + " hidden" * ("hidden" in text)
        elif kind == "path":  # the first, a middle and the last point
            points = re.findall(r"[MLZ] ?[-\d. ]*", re.search(' d="([^"]*)"', text)[1])
            style, middle = re.findall('style="([^"]*)"', text), points[len(points) // 2]
            text = f"{len(points)} {points[0]}{middle}{points[-1]} {style}"
        yield f"{kind} {plain(text)}"


def boxes():
    """Three images of cats, dogs and crowds, in which boxes are right, doubled, misplaced, misnamed and unknown."""
    truth = coco(
        *((1, 1, [10, 10, 20, 20]), (1, 2, [50, 10, 40, 40]), (1, 2, [110, 10, 40, 40]), (2, 1, [0, 0, 100, 100])),
        *((2, 2, [120, 60, 60, 30]), (3, 2, [20, 20, 100, 60])),
        *((5, 3, [10, 10, 32, 32]), (5, 3, [60, 10, 96, 50])),
        names=("cat", "dog", "cow"),
        images={1: "a.jpg", 2: "b/b.jpg", 3: "c.jpg", 4: "d.jpg", 5: "e.jpg"},
        size=(200, 100),
    )
    truth["annotations"][4]["iscrowd"] = 1
    answers = {
        1: [
            ("cat", [10, 10, 30, 30], 90),
            ("cat", [11, 10, 30, 30], 40),
            ("cat", [50, 10, 90, 50], 70),
            ("dog", [110, 10, 150, 30], 80),
        ],
        2: [
            ("cat", [0, 0, 60, 100], 60),
            ("dog", [130, 60, 170, 90], 50),
            ("hen", [150, 0, 190, 20], 30),
            ("", [1, 1, 9, 9], 5),
        ],
        3: [("dog", [0, 0, 5, 5], 95), ("dog", [120, 80, 20, 20], 20)],
        4: [],
        5: [("cow", [60, 10, 156, 60], 65)],
    }
    records = [
        {"image_id": i, "text": str([{"bbox": box, "label": name, "score": value} for name, box, value in rows])}
        for i, rows in answers.items()
    ]
    records[1]["finish_reason"], records[2]["text"] = "length", records[2]["text"] + " and [1, 2, 3]"
    return truth, [*records, {"image_id": 9, "text": "[]"}]


def outlines():
    truth = coco((1, 1, [10, 10, 20, 20]), (2, 1, [10, 10, 20, 20]), images=(1, 2))
    for row in truth["annotations"]:
        row["segmentation"] = [[10, 10, 30, 10, 30, 30, 10, 30]]
    texts = [
        '[{"label": "cat", "polygon": [[10, 10], [30, 10], [30, 20], [10, 20]]}]',
        '[{"label": "cat", "bbox": [10, 10, 30, 30]}]',
    ]
    return truth, [{"image_id": i, "text": text} for i, text in enumerate(texts, 1)]


def told(name, folder):
    if name == "boxes":
        params = CocoParams(iou_thresholds=[0.5], areas={"tiny": (0, 500)})
        report = ReportSettings(bootstrap=20, seed=1, params=params, diagnose=False)
        settings = {"answers": AnswerSettings(scale="pixels"), "labels": LabelSettings(), "report": report}
        found = score(*boxes(), **settings)
    else:
        found = score(*outlines(), answers=AnswerSettings(scale="pixels", geometry="polygon"))
    page = found.write_report(folder, title="T", facts={"model": "m"}).read_text()
    console = [f"console {line}" for line in evaluation_lines(found)]
    return [*console, f"brief {found.brief()}", *lines_of(page), "notebook", *lines_of(found._repr_html_())]


@pytest.mark.parametrize("name", ["boxes", "outlines"])
def test_everything_that_a_report_says(name, tmp_path):
    assert told(name, tmp_path) == (HERE / f"whole_{name}.txt").read_text().splitlines()


def test_numbers_of_a_metric_of_ones_own_are_listed_by_their_dotted_names():
    value = {"a": {"b": 1, "c": {"d": 0.5, 7: "x"}}, "e": -1.0}
    assert flat(value) == [("a.b", "1"), ("a.c.d", "0.500"), ("a.c.7", "x"), ("e", "n/a")]
    assert (flat(0.25), flat("x"), flat({})) == ([("", "0.250")], [("", "x")], [])


def test_images_that_changed_stand_in_order_of_their_change():
    truth, records = boxes()
    settings = {"answers": AnswerSettings(scale="pixels"), "report": ReportSettings(diagnose=False)}
    right = '[{"label": "dog", "bbox": [20, 20, 120, 80]}]'
    better = [*records[:2], {**records[2], "text": right}, *records[3:]]
    worse = [
        {**better[0], "text": "[]"},
        {**better[1], "text": '[{"label": "cat", "bbox": [0, 0, 70, 100]}]'},
        *better[2:],
    ]
    first, second = (score(truth, rows, score_source="constant", **settings) for rows in (records, worse))
    found = [
        line
        for line in lines_of(changed_images({"first": first, "second": second}, None))
        if line[:5] in ("title", "capti")
    ]
    assert found == [
        *("title Better: 2", "caption b/b.jpg, first: F1 0.50", "caption b/b.jpg, second: F1 1.00"),
        *("caption c.jpg, first: F1 0.67", "caption c.jpg, second: F1 1.00"),
        *("title Worse: 1", "caption a.jpg, first: F1 0.57", "caption a.jpg, second: F1 0.00"),
    ]
    back = lines_of(changed_images({"second": second, "first": first}, None))
    assert [line[:14] for line in back if line[:5] in ("title", "capti")] == [
        *("title Better: ", "caption a.jpg,", "caption a.jpg,", "title Worse: 2"),
        *("caption b/b.jp", "caption b/b.jp", "caption c.jpg,", "caption c.jpg,"),
    ]
    most = lines_of(changed_images({"first": first, "second": second}, None, most=1))
    assert sum(line.startswith("caption") for line in most) == 4
