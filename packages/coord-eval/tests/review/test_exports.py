"""Files for labelling tools: the most suspect image first, probable proposals in place of the labels."""

import json
from xml.etree import ElementTree

import numpy as np
import pytest
from coco_builder import coco

from coord_eval import Detections, InputError, load_ground_truth
from coord_eval.cli.main import main
from coord_eval.review import Proposal, Review, ReviewFinding, proposed_records, review, write_review_exports
from coord_eval.review.exports import TOOLS


def test_records_apply_probable_proposals_and_keep_the_order(spoilt, said):
    found = review(spoilt[0], said)
    records = proposed_records(found)
    highest = {}
    for finding in found.findings:
        highest.setdefault(finding.image_id, finding.probability)
    assert [r["image_id"] for r in records] == sorted(highest, key=lambda i: -highest[i])
    of_image = {r["image_id"]: r["objects"] for r in records}
    for finding in found.findings:
        boxes = [(o["desc"], tuple(o["bbox_xyxy"])) for o in of_image[finding.image_id]]
        proposal = finding.proposal and (finding.proposal.desc, finding.proposal.box_xyxy)
        is_applied = finding.probability >= 0.5
        if proposal is not None:
            assert (proposal in boxes) == is_applied
        if finding.label is not None:
            assert ((finding.label, finding.box_xyxy) in boxes) != is_applied


@pytest.mark.slow
def test_every_tool_gets_the_same_boxes_and_no_file_is_replaced(spoilt, said, tmp_path):
    found = review(spoilt[0], said)
    paths = dict(zip(TOOLS, write_review_exports(found, tmp_path, TOOLS), strict=True))
    wanted = sum(len(record["objects"]) for record in proposed_records(found))
    tasks = json.loads(paths["labelstudio"].read_text())
    assert sum(len(task["predictions"][0]["result"]) for task in tasks) == wanted
    assert len(list(ElementTree.parse(paths["cvat"]).getroot().iter("box"))) == wanted
    assert len(json.loads(paths["coco"].read_text())["annotations"]) == wanted
    assert sum(len(sample["detections"]) for sample in json.loads(paths["fiftyone"].read_text())) == wanted
    assert write_review_exports(found, tmp_path, ["coco"]) == [paths["coco"]]  # the same again is no change
    paths["coco"].write_text("mine")
    with pytest.raises(InputError, match="not replaced"):
        write_review_exports(found, tmp_path, ["cvat", "coco"])
    assert paths["coco"].read_text() == "mine"


def test_command_refuses_an_unknown_tool_before_it_reads_anything(tmp_path, capsys):
    words = ["review", "--ground-truth", "g", "--predictions", "p", "--out", str(tmp_path), "--export", "cvat,paint"]
    assert main(words) == 2
    assert "'paint'" in capsys.readouterr().err


def test_records_are_those_of_the_suspicions_at_the_borders():
    """A proposal takes the place of its label from a probability of .5 on; crowd regions are left out."""
    objects = [(image, 1, [10.0 * place, 0, 9, 9]) for image in (1, 2) for place in range(5)]
    document = coco(*objects, names=("cat",), images={1: "a.png", 2: "b.png", 3: "c.png"}, size=(90, 60))
    document["annotations"][5]["iscrowd"] = 1
    truth = load_ground_truth(document)

    def finding(image, place, probability, desc="dog"):
        said = desc and Proposal(desc, (0.0, 20.0, 9.0, 30.0), 0.25)
        box = None if place is None else (10.0 * place, 0.0, 10.0 * place + 9, 9.0)
        kind, label = ("missing", None) if place is None else ("mixed", "cat")
        return ReviewFinding(image, "", place, 0, kind, probability, label, box, said)

    findings = (
        *(finding(2, 1, 0.9), finding(1, 0, 0.5), finding(1, 1, 0.49), finding(1, 2, 0.6, None)),
        *(finding(1, 3, 0.4, None), finding(2, None, 0.5, "cow"), finding(2, None, 0.49, "cow")),
    )
    none = Detections.of(truth, [], [], np.zeros((0, 4)), [], [])
    made = Review(findings, (), (), {}, truth, none)
    shown = [
        (r["image_id"], [(o["desc"], o["bbox_xyxy"][:2], round(o["score"], 9)) for o in r["objects"]])
        for r in proposed_records(made)
    ]
    proposal = [0, 20]
    assert shown == [
        (2, [("dog", proposal, 0.9), *(("cat", [10 * n, 0], 1) for n in (2, 3, 4)), ("cow", proposal, 0.5)]),
        (1, [("dog", proposal, 0.5), ("cat", [10, 0], 0.51), ("cat", [30, 0], 0.6), ("cat", [40, 0], 1)]),
    ]
    assert [(r["image"], r["width"], r["height"]) for r in proposed_records(made)] == [
        ("b.png", 90, 60),
        ("a.png", 90, 60),
    ]
    assert proposed_records(Review((), (), (), {}, truth, none)) == []
    document["images"][1]["width"] = None
    unsized = Review(findings, (), (), {}, load_ground_truth(document), none)
    with pytest.raises(InputError, match="no image sizes"):
        proposed_records(unsized)
