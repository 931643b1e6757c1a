"""Files for labelling tools: the most suspect image first, probable proposals in place of the labels."""

import json
from xml.etree import ElementTree

import pytest

from coord_eval import InputError
from coord_eval.cli.main import main
from coord_eval.review import proposed_records, review, write_review_exports
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
