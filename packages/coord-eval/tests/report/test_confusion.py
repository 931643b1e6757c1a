"""The matrix of confused labels: those with most confusions, in their order, and how many are left out."""

import re

import pytest
from coco_builder import coco

from coord_eval import ReportSettings, score
from coord_eval.report.confusion import confusion_main, confusions

NAMES = [f"l{n:02}" for n in range(30)]


def evaluated(pairs, times=1):
    """An evaluation of objects that are answered as another label each: pairs of names, as often as said."""
    pairs = [pair for pair in pairs for _ in range(times)]
    places = [[20 * (n % 10), 20 * (n // 10), 10, 10] for n in range(len(pairs))]
    rows = [(1, 1 + NAMES.index(true), box) for (true, _), box in zip(pairs, places, strict=True)]
    found = [
        {"image_id": 1, "category_id": 1 + NAMES.index(name) if name in NAMES else 99, "bbox": box, "score": 0.5}
        for (_, name), box in zip(pairs, places, strict=True)
        if name
    ]
    return score(coco(*rows, names=NAMES, size=(200, 900)), found, report=ReportSettings(diagnose=False))


def heads(text):
    return re.findall(r'<th scope="(col|row)">([^<]*)</th>', text)


def test_labels_stand_by_the_number_of_their_confusions_with_background_last():
    found = evaluated([("l03", "l04")] * 3 + [("l05", "l04"), ("l06", "l06"), ("l07", "cow"), ("l08", None)])
    text = confusions(found)
    columns = ["l04", "l03", "l05", "l07", "l08", "l06", "(unknown label)", "(background)"]
    assert [name for kind, name in heads(text) if kind == "col"] == columns
    assert [name for kind, name in heads(text) if kind == "row"] == columns[:6]
    cells = [re.findall(r'<td style="--v:([\d.]+)"([^>]*)>(\d*)</td>', row) for row in text.split("<tr>")[2:8]]
    assert [[n for _, _, n in row] for row in cells] == [
        ["", "", "", "", "", "", "", ""],
        ["3", "", "", "", "", "", "", ""],
        ["1", "", "", "", "", "", "", ""],
        ["", "", "", "", "", "", "1", ""],
        ["", "", "", "", "", "", "", "1"],
        ["", "", "", "", "", "1", "", ""],
    ]
    assert cells[1][0][0] == "1.00" and " class=same" in cells[5][5][1] and " class=same" not in cells[5][4][1]
    assert "left out" not in text and confusion_main(found) == "5 boxes of another label"


@pytest.mark.parametrize(("labels", "told"), [(24, ""), (25, " 1 label with fewer"), (28, " 4 labels with fewer")])
def test_matrix_shows_24_labels_and_says_how_many_it_leaves_out(labels, told):
    text = confusions(evaluated([(NAMES[n], NAMES[n]) for n in range(labels)]))
    assert sum(kind == "row" for kind, _ in heads(text)) == 24
    assert ("left out" in text) == bool(told) and told in text
