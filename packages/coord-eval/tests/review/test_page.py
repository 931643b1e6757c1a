"""The page of a review, made of findings written out: what each card says, draws and lets a person decide."""

import html
import json
import re
from dataclasses import replace

import numpy as np
import pytest
from coco_builder import coco
from PIL import Image

from coord_codec.pages import Gallery
from coord_eval import Detections, load_ground_truth
from coord_eval.review import KINDS, Proposal, Review, ReviewFinding
from coord_eval.review import page as page_module
from coord_eval.review.page import FIGURES, choices_of, review_page

CAT, DOG, LOW, OTHER = (10, 10, 50, 40), (60, 10, 90, 40), (5, 60, 25, 80), (30, 50, 70, 90)
CROWD = (0, 0, 100, 5)
EVIDENCE = {"support": 0.75, "deviation": 1.25, "p_renamed": 0.625, "unheard": 7.0}


def finding(kind, probability, place, label=None, box=None, proposal=None, image=1, **evidence):
    name = {1: "a.png", 2: "none.png"}[image]
    said = proposal and Proposal(*proposal)
    return ReviewFinding(image, name, place, said and 3, kind, probability, label, box, said, evidence)


FINDINGS = {
    "renamed": (finding("renamed", 0.995, 0, "cat", CAT, ("dog", (12, 8, 52, 38), 0.9), **EVIDENCE), "bnad"),
    "moved": (finding("moved", 0.99, 1, "dog", DOG, ("dog", (61, 12, 95, 44), 0.8)), "bd"),
    "mixed": (finding("mixed", 0.5, 0, "cat", CAT, ("dog", OTHER, 0.7), image=2), "bnad"),
    "unknown name": (finding("renamed", 0.4, 2, "cat", LOW, ("zebra", LOW, 0.6)), "bd"),
    "spurious": (finding("spurious", 0.3, 2, "cat", LOW), "d"),
    "missing": (finding("missing", 0.2, None, None, None, ("dog", OTHER, 0.45), confidence=0.5, unmatched=0.1), "+"),
    "missing of no name": (finding("missing", 0.1, None, None, None, ("zebra", OTHER, 0.4)), ""),
}
WORDS = {"b": ["box"], "n": ["name"], "a": ["answer"], "d": ["delete"], "+": ["add"]}


@pytest.fixture
def made(tmp_path):
    """A review of two images, of which one has a file."""
    Image.new("RGB", (200, 100), "white").save(tmp_path / "a.png")  # twice as wide as the ground truth says
    objects = [
        (image, kind, [x1, y1, x2 - x1, y2 - y1])
        for image, kind, (x1, y1, x2, y2) in ((1, 1, CAT), (1, 2, DOG), (1, 1, LOW), (2, 1, CAT), (1, 1, CROWD))
    ]
    document = coco(*objects, names=("cat", "dog"), images={1: "a.png", 2: "none.png"})
    document["annotations"][-1]["iscrowd"] = 1
    truth = load_ground_truth(document)
    boxes = Detections.of(truth, [0], [2], np.array([[0.0, 0, 9, 9]]), np.ones(1), [0], ("zebra",))
    findings = tuple(item for item, _ in FINDINGS.values())
    judged = (*findings[:5], finding("moved", 0.03, 1, "dog", DOG))
    rests = {"likelihoods": None, "ground_truth": "abc", "planted_faults": 7, "rates": {"renamed": 0.0123}}
    return Review(findings, judged, ("a note <on> it",), rests, truth, boxes)


def test_choices_fit_what_the_answer_says_and_the_names_that_there_are():
    for name, (item, letters) in FINDINGS.items():
        taken = [word for letter in letters for word in WORDS[letter]]
        assert choices_of(item, ("cat", "dog")) == ["keep", *taken, "later"], name


def test_cards_hold_the_record_the_choices_and_the_words_of_each_suspicion(made, tmp_path):
    page = review_page(made, tmp_path)
    records = [json.loads(html.unescape(text)) for text in re.findall(r'data-record="([^"]*)"', page)]
    lines = [made.to_line(item) for item in made.findings]
    assert records == [{k: v for k, v in line.items() if k != "evidence"} for line in lines]
    assert re.findall(r'data-choices="([^"]*)"', page) == [
        " ".join(choices_of(item, ("cat", "dog"))) for item in made.findings
    ]
    told = [html.unescape(re.sub("<[^>]*>", "", text)) for text in re.findall(r'class="verdict">(.*?)</p>', page)]
    assert told == [
        "over 99 % renamed: 'cat', the answer says 'dog' (score 0.90)",
        "99 % moved: 'dog'",
        "50 % mixed: 'cat', the answer says 'dog' (score 0.70)",
        "40 % renamed: 'cat', the answer says 'zebra' (score 0.60)",
        "30 % spurious: 'cat'",
        "20 % missing: 'dog' (score 0.45)",
        "10 % missing: 'zebra' (score 0.40)",
    ]
    # Sorted by probability down and up, by image, and by the area of the label, else of the answer.
    areas, places = (1200, 900, 1200, 400, 400, 1600, 1600), (0, 0, 1, 0, 0, 0, 0)
    assert re.findall(r'data-values="([^"]*)"', page) == [
        f"{item.probability:.4g} {item.probability:.4g} {place} {area}"
        for item, area, place in zip(made.findings, areas, places, strict=True)
    ]
    order = ["most probable", "least probable", "by image", "smallest box"]
    assert re.findall(r'<option value="(\d[+-])">([^<]*)', page) == list(
        zip(("0-", "1+", "2+", "3+"), order, strict=True)
    )
    tokens = [text.split() for text in re.findall(r'data-objects="([^"]*)"', page)]
    numbers = {"cat": 0, "dog": 1, "zebra": 2}
    assert tokens == [
        [
            f"{item.kind}.{numbers[name]}."
            for name in dict.fromkeys((item.label, item.proposal and item.proposal.desc))
            if name
        ]
        for item in made.findings
    ]
    evidence = re.findall(r"<summary>evidence</summary>(.*?)</details>", page)
    rows = [[html.unescape(cell) for cell in re.findall(r"<td[^>]*>(.*?)</td>", text)] for text in evidence]
    assert rows[0] == [FIGURES["support"], "0.75", FIGURES["deviation"], "1.25", "renamed", "0.625"]
    assert rows[5] == [FIGURES["confidence"], "0.5", FIGURES["unmatched"], "0.1"] and rows[4] == []


def test_page_tells_the_numbers_kinds_and_what_they_rest_on(made, tmp_path):
    page = review_page(made, tmp_path, facts={"model": "tiny"})
    tiles = re.findall(r"<div><span>(.*?)</span><b>(.*?)</b><small>(.*?)</small></div>", page)
    expected = sum(item.probability for item in made.judged)
    assert tiles == [
        ("Labels judged", "6", "2 images"),
        ("Suspicions", "7", "in 2 images"),
        ("Of at least 50 %", "3", "look at these first"),
        ("Expected wrong labels", f"{expected:.1f}", "sum of the probabilities, by answers alone"),
    ]
    kinds = re.findall(r"<tr>(.*?)</tr>", page[page.index("<h2>Kinds") : page.index("<h2>What it rests on")])
    cells = [re.findall(r"<td[^>]*>(.*?)</td>", row) for row in kinds]
    sums = {"renamed": ("2", "1.4"), "moved": ("1", "1.0"), "missing": ("2", "0.3"), "spurious": ("1", "0.3")}
    sums["mixed"] = ("1", "0.5")
    assert [row for row in cells if row] == [[kind, KINDS[kind], *sums[kind]] for kind in KINDS if kind in sums]
    assert re.findall(r'<option value="([a-z]+)">\1<', page) == [kind for kind in KINDS if kind in sums]
    for text in ("a note &lt;on&gt; it", "7 of 7", "renamed 1.23%", "planted faults", "tiny"):
        assert text in page
    ids = json.loads(html.unescape(re.search(r'data-review="([^"]*)"', page)[1]))
    assert (ids["review"], ids["ground_truth"]) == (made.digest, "abc") and {"keep", "add"} < ids["choices"].keys()
    assert "suspicions are shown" not in page
    few = review_page(made, tmp_path, most=2)
    assert few.count('class="case"') == 2 and "2 of 7" in few
    assert "the 2 most probable of 7 suspicions are shown; the file has all" in few
    written = made.write(tmp_path / "new" / "out", image_root=str(tmp_path), title="Mine", most=3, facts={"m": "tiny"})
    text = written.read_text()
    assert (text.count('class="case"'), "<h1>Mine" in text, ">tiny<" in text) == (3, True, True)
    assert 'class="part"' in text
    with_likelihoods = replace(made, rests_on={**made.rests_on, "likelihoods": "x"})
    assert "sum of the probabilities<" in review_page(with_likelihoods)


def drawn(figure):
    """The tooltips of the boxes of a drawing."""
    return sorted(html.unescape(tip) for tip in re.findall(r"<title>(.*?)</title>", figure))


def figures_of(page, kind):
    """Width, where it is stated, and content of the drawings of a kind by card."""
    pattern = rf'<figure class="{kind}"(?: style="width:(\d+)px")?>(.*?)</figure>'
    return [re.findall(pattern, card, re.S) for card in page.split('<div class="case"')[1:]]


def test_images_are_drawn_whole_with_other_labels_and_cut_around_label_and_answer(made, tmp_path):
    page = review_page(made, tmp_path)
    wholes = [text for ((_, text),) in figures_of(page, "whole")]
    assert ["<image" in whole for whole in wholes] == [item.image_id == 1 for item in made.findings]
    others = {0: "dog cat cat", 1: "cat cat cat", 2: "", 4: "cat dog cat", 5: "cat dog cat cat"}
    own = {0: ["answer: dog, score 0.9", "label: cat"], 2: ["answer: dog, score 0.7", "label: cat"]}
    own |= {4: ["label: cat"], 5: ["answer: dog, score 0.45"]}
    for n, names in others.items():
        told = sorted(f"another label: {name}" for name in names.split())
        assert [tip for tip in drawn(wholes[n]) if tip.startswith("another")] == told
        assert n not in own or [tip for tip in drawn(wholes[n]) if not tip.startswith("another")] == own[n]
    # Of 200 x 100 pixels: 160 or more around the middle of both boxes, as far as the image goes.
    parts = figures_of(page, "part")
    assert [[int(width) for width, _ in part] for part in parts] == [[142], [125], [], [110], [110], [160], [160]]
    assert drawn(parts[0][0][1]) == own[0] and all("at 100 %" in part[0][1] for part in parts if part)
    assert page.count("none.png: ") == 1
    # Of 2000 x 1000 pixels: 1.4 times the sides of both and 16, at most 480 as shown.
    Image.new("RGB", (2000, 1000), "white").save(tmp_path / "a.png")
    (width, text), *_ = figures_of(review_page(made, tmp_path, most=1), "part")[0]
    assert (width, "at 40 %" in text) == ("480", True)


def test_images_beyond_what_a_page_holds_are_told(made, tmp_path, monkeypatch):
    monkeypatch.setattr(page_module, "Gallery", lambda names, count: Gallery(names, count, budget=1))
    page = review_page(made, tmp_path)
    assert page.count("<image") == 2 and "6 suspicions without the image: the page would be larger" in page


def test_files_of_a_review_hold_boxes_in_both_units_and_counts(made, tmp_path):
    made.write(tmp_path)
    lines = [json.loads(line) for line in (tmp_path / "review.jsonl").read_text().splitlines()]
    assert lines == [made.to_line(item) for item in made.findings]
    assert lines[0]["label"] == {"desc": "cat", "bbox": [0.1, 0.1, 0.5, 0.4], "bbox_xyxy": [*CAT]}
    assert lines[0]["proposal"] == {
        "desc": "dog", "bbox": [0.12, 0.08, 0.52, 0.38], "bbox_xyxy": [12, 8, 52, 38], "score": 0.9
    }  # fmt: skip
    assert (lines[4]["proposal"], lines[5]["label"], lines[0]["evidence"]) == (None, None, EVIDENCE)
    facts = json.loads((tmp_path / "review.json").read_text())
    kinds = {"renamed": 2, "moved": 1, "missing": 2, "spurious": 1, "duplicate": 0, "mixed": 1}
    assert facts["counts"] == {"images": 2, "labels": 6, "answers": 1, "findings": 7, **kinds}
    assert facts["review"] == made.digest and facts["notes"] == [*made.notes] and facts["rests_on"] == made.rests_on
    assert facts["judged"][-1] == {"image_id": 1, "object": 1, "kind": "moved", "probability": 0.03}
    unsized = replace(made, truth=replace(made.truth, sizes_I2=np.full((2, 2), np.nan)))
    assert unsized.to_line(made.findings[0])["label"] == {**lines[0]["label"], "bbox": None}
    assert "<svg" in review_page(unsized)
