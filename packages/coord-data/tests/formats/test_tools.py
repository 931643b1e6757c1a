"""JSON and XML of labelling tools that are not read: the tool is named, and what to export instead."""

import json

import pytest
from PIL import Image

RESULT = {"type": "rectanglelabels", "value": {"x": 1, "y": 1, "width": 9, "height": 9, "rectanglelabels": ["cat"]}}
CVAT = '<annotations><version>1.1</version><image id="0" name="a.png"><box label="cat" xtl="4"/></image></annotations>'
FOREIGN = {
    "Label Studio": ("p.json", [{"id": 1, "data": {"image": "a.png"}, "annotations": [{"result": [RESULT]}]}], "COCO"),
    "Label Studio's least": ("p.json", [{"image": "a.png", "id": 1, "label": [], "annotator": 1}], "COCO or YOLO"),
    "Create ML": (
        "_annotations.createml.json",
        [{"image": "a.png", "annotations": [{"label": "cat"}]}],
        "COCO, Pascal",
    ),
    "Supervisely": ("ann/a.json", {"description": "", "tags": [], "size": {}, "objects": []}, "COCO, Pascal VOC"),
    "Datumaro": ("default.json", {"info": {}, "categories": {"label": {}}, "items": []}, "COCO, Pascal VOC"),
    "Hugging Face": ("metadata.jsonl", {"file_name": "a.png", "objects": {"bbox": [], "categories": []}}, '{"desc"'),
    "VoTT": ("a.json", {"asset": {"name": "a.png"}, "regions": [], "version": "2"}, "COCO, Pascal VOC"),
    "VGG Image Annotator 3": (
        "a.json",
        {"project": {}, "config": {}, "attribute": {}, "file": {}, "metadata": {}},
        "VIA 2",
    ),
    "FiftyOne": ("samples.json", {"samples": [{"filepath": "a.png"}]}, "COCODetectionDataset"),
    "MMDetection": ("a.json", {"metainfo": {"classes": ["cat"]}, "data_list": []}, "COCO"),
    "Detectron2": ("a.json", [{"file_name": "a.png", "image_id": 1, "annotations": []}], "COCO"),
    "BDD100K": ("a.json", {"name": "a", "frames": [], "attributes": {}}, "one file"),
    "Scale": ("a.json", [{"task_id": "1", "response": {}}], "COCO"),
    "SageMaker": ("a.jsonl", {"source-ref": "s3://b/a.png", "b-metadata": {}}, "COCO"),
    "CrowdHuman": ("a.jsonl", {"ID": "a", "gtboxes": []}, "COCO"),
    "VLM-R1": ("a.json", [{"image": "a.png", "problem": "cat", "solution": [1, 2, 3, 4]}], "COCO"),
    "Rex-Omni": ("a.jsonl", {"image_name": "a.png", "annotation": {"boxes": []}}, "COCO"),
    "PaliGemma": ("a.jsonl", {"image": "a.png", "prefix": "detect cat", "suffix": "<loc0000> cat"}, "COCO"),
    "a table of Label Studio": ("a.csv", 'image,id,label,annotator\na.jpg,1,"[{""x"": 20}]",1\n', "export the project"),
    "Vertex AI": ("a.csv", "TRAIN,gs://b/a.png,cat,0.1,0.2,,,0.4,0.7,,\n", "COCO"),
    "a table of VGG": ("a.csv", "filename,file_size,region_shape_attributes,region_attributes\n", "JSON"),
    "CVAT for video": ("a.xml", '<annotations><track id="0" label="cat"/></annotations>', "export the task as COCO"),
    "CVAT for images": ("annotations.xml", CVAT, "export the task as COCO"),
}


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.parametrize("as_folder", [False, True])
def test_file_of_another_tool_is_named_with_what_to_export(tmp_path, prepared, name, as_folder):
    file, content, advice = FOREIGN[name]
    path = tmp_path / "set" / file
    path.parent.mkdir(parents=True)
    for copy in (path, path.with_stem("another")) if name == "Supervisely" else (path,):
        copy.write_text(content if isinstance(content, str) else json.dumps(content) + "\n")
    Image.new("RGB", (64, 48)).save(tmp_path / "set" / "a.png")
    code, said = prepared("set" if as_folder else path.relative_to(tmp_path), "--out", "out")
    assert code == 2 and f"{name.partition(chr(39))[0]}" in said
    assert "which is not read" in said and advice in said


@pytest.mark.parametrize("key", ["quad_2d", "bbox", "polygon"])
def test_keys_of_answers_that_are_not_read_are_named(tmp_path, prepared, key):
    turns = [{"role": "assistant", "content": json.dumps([{key: [1, 2, 3, 4], "label": "cat"}])}]
    (tmp_path / "a.jsonl").write_text(json.dumps({"images": ["a.png"], "messages": turns}) + "\n")
    code, said = prepared("a.jsonl", "--out", "out")
    assert code == 2 and f"but with {key}" in said


def test_json_that_is_nobodys_is_told_by_its_keys(tmp_path, prepared):
    (tmp_path / "a.json").write_text('{"shapes": [], "boxes": []}')
    code, said = prepared("a.json", "--out", "out")
    assert code == 2 and "found an object with the keys ['boxes', 'shapes']" in said


def test_instance_record_with_keys_of_its_own_is_read(tmp_path, prepared):
    Image.new("RGB", (64, 48)).save(tmp_path / "a.png")
    box = {"desc": "cat", "bbox": [0.1, 0.1, 0.5, 0.5]}
    record = {"image": "a.png", "annotations": [], "tags": [], "size": 3, "objects": [box], "annotator": 1}
    (tmp_path / "a.jsonl").write_text(json.dumps(record) + "\n")
    code, said = prepared("a.jsonl", "--out", "out")
    assert code == 0, said
    assert "1 record, 1 box" in said
