"""The model card: provenance, scores and the licence of the base."""

import json

import pytest
from tiny_checkpoint import merge_quietly, read_json

from coord_exporter.adapter import open_adapter
from coord_exporter.checkpoint.read import open_checkpoint
from coord_exporter.model_card import write_card


def test_merge_of_a_run_into_a_cached_base_writes_a_card_with_the_provenance(cached, run, tmp_path):
    report = merge_quietly("some/base", run, tmp_path / "out")
    assert any("its checkpoint-10 is merged" in warning for warning in report.warnings)
    card = (tmp_path / "out" / "README.md").read_text()
    head, body = card.removeprefix("---\n").split("\n---\n", 1)
    assert "license: apache-2.0" in head and "base_model: some/base" in head
    for line in ("base | some/base", "train data digest | d1ge57", "seed | 7", "AP | 0.438", "fingerprint | "):
        assert f"| {line}" in body
    assert (tmp_path / "out" / "README.base.md").read_text().endswith("The base's own card.\n")
    merge_quietly("some/base", run / "checkpoints" / "checkpoint-5", tmp_path / "earlier")
    assert "AP |" not in (tmp_path / "earlier" / "README.md").read_text()  # the scores are another checkpoint's


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ("evaluation: {images: train}", "On images that it was trained on, which says nothing of others."),
        ("evaluation: {images: heldout}", "On held-out images."),
        ("evaluation: {images: mine}", "On images that the run names."),
        ("evaluation:", "On images that the run names."),
        ("evaluation: [train]", "On images that the run names."),
        ("[", "On images that the run names."),
        (None, "On images that the run names."),
    ],
)
def test_card_says_on_which_images_it_was_scored_and_where_nothing_was_measured(run, cached, settings, told):
    scores = {"coco": {"AP": 0.4375, "APs": 0.0, "APl": -1.0}, "mean_iou": 0.25, "ceiling": {"AP": 0.9975}}
    (run / "evaluation.json").write_text(json.dumps(scores | {"format": {"answers": 30, "parsed": 2, "boxes": 9}}))
    if settings is not None:
        (run / "config.yaml").write_text(settings)
    adapter = open_adapter(run / "checkpoints" / "checkpoint-10")
    card = write_card(open_checkpoint(cached), "some/base", adapter, {})
    assert told in card
    rows = ["| AP | 0.438 |", "| APs | 0.000 |", "| APl | nothing to measure |", "| mean IoU | 0.250 |"]
    rows += ["| quantisation ceiling, AP | 0.998 |", "| answers that parse | 2 of 30 |"]
    assert "\n".join(rows) in card


def test_card_says_what_calibrations_rest_on(run, cached):
    card = run / "checkpoints" / "checkpoint-10" / "coordexp.json"
    values = json.loads(card.read_text()) if card.is_file() else {}
    rests_on, errors = {"images": 50, "boxes": 90}, {"before": {"ece": 0.25}, "after": {"ece": 0.03125}}
    values["calibrations"] = {
        "best_iou mirror zoom": {"rests_on": rests_on, "reliability": errors},
        "tokens": "damaged",
    }
    card.write_text(json.dumps(values))
    text = write_card(open_checkpoint(cached), "some/base", open_adapter(card.parent), {})
    assert "| best_iou | mirror, zoom | 50 images, 90 boxes | 0.250 | 0.031 |" in text
    assert "| tokens | none |" in text


@pytest.mark.parametrize(
    "text",
    [
        "no block",
        "---\n: [\n---\nbroken",
        "---\n- a\n---\nlist",
        "",
        "---\nlicense: mit\n",
        "A\n---\nlicense: mit\n---\n",
    ],
)
def test_card_of_the_base_that_cannot_be_read_states_nothing(files, text):
    (files / "base" / "README.md").write_text(text)
    merge_quietly(files / "base", files / "adapter", files / "out")
    assert "licence of the base | not stated" in (files / "out" / "README.md").read_text()


def test_card_of_the_base_with_a_byte_order_mark_states_its_licence(files):
    (files / "base" / "README.md").write_bytes(
        b"\xef\xbb\xbf---\r\nlicense: other\r\nlicense_name: n\r\nlicense_link: l\r\n---\r\n"
    )
    merge_quietly(files / "base", files / "adapter", files / "out")
    card = (files / "out" / "README.md").read_text()
    assert "licence of the base | other" in card and "license: other\nlicense_name: n\nlicense_link: l\n" in card


def test_folders_named_by_dots_have_their_names_in_card_and_record(files, run, monkeypatch):
    monkeypatch.chdir(files / "base")
    merge_quietly(".", "../adapter", "../out")
    assert "| base | base |" in (files / "out" / "README.md").read_text()
    assert read_json(files / "out" / "export.json")["history"][-1]["base"]["name"] == "base"
    monkeypatch.chdir(run / "checkpoints" / "checkpoint-5")
    merge_quietly(files / "base", ".", files / "of-run")
    card = (files / "of-run" / "README.md").read_text()
    assert "| adapter | checkpoint-5 |" in card
    assert "AP |" not in card  # the scores are another checkpoint's
    assert read_json(files / "of-run" / "export.json")["history"][-1]["adapter"]["name"] == "checkpoint-5"


@pytest.mark.parametrize(
    ("manifest", "evaluation"),
    [
        ([{"of": "another program"}], {}),
        ("no JSON", {}),
        ({"checkpoint": None, "data": ["a.json"]}, {"coco": {"AP": 0.5}}),
        ({"checkpoint": "checkpoints/checkpoint-10"}, {"coco": [0.5], "ceiling": 1}),
        ({"checkpoint": "checkpoints/checkpoint-10"}, []),
    ],
)
def test_card_takes_files_of_another_form_for_those_of_another_program(run, cached, manifest, evaluation):
    (run / "manifest.json").write_text(manifest if isinstance(manifest, str) else json.dumps(manifest))
    (run / "evaluation.json").write_text(json.dumps(evaluation))
    card = write_card(open_checkpoint(cached), "some/base", open_adapter(run / "checkpoints" / "checkpoint-10"), {})
    assert "| adapter | checkpoint-10 |" in card and "AP |" not in card


@pytest.mark.parametrize(
    ("name", "stated", "expected"),
    [
        ("maker/model", None, "maker/model"),
        ("maker/model", "maker/first", "maker/model"),
        ("folder", "maker/first", "maker/first"),
        ("./base", "maker/first", "maker/first"),  # a folder, though its name has a slash
        ("./base", None, None),
        ("model", None, None),
    ],
)
def test_base_of_the_card_is_a_name_of_the_hub(files, monkeypatch, name, stated, expected):
    monkeypatch.chdir(files)
    if stated is not None:
        (files / "base" / "README.md").write_text(f"---\nbase_model: {stated}\n---\n")
    card = write_card(
        open_checkpoint(files / "base"), name, open_adapter(files / "adapter"), {"a": 1, "b": None, "seed": 0}
    )
    assert f"| base | {expected or 'base'} |" in card and ("base_model: " in card) is (expected is not None)
    assert "| a | 1 |\n| seed | 0 |" in card and "| b |" not in card
