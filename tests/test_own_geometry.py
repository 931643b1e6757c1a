"""A geometry of a user's own in one file: the guide's ellipse is written, read, drawn, trained, scored and exported."""

import importlib.util
import json
import math
import random
import re
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image, ImageDraw

from coord_codec import GEOMETRIES, MARKERS, CoordGrid, Instance, encode_target, geometry_of
from coord_codec.geometry import register_geometry
from coord_eval import AnswerSettings, parse_answer, score

ROOT = Path(__file__).parents[1]
GUIDE = (ROOT / "docs" / "guides" / "how-to-add.md").read_text()
FILE = re.compile(r'^```\w+ title="(?P<name>\w*ellipses?\.(?:py|yaml))"\n(?P<text>.*?)^```$', re.DOTALL | re.MULTILINE)
COMMANDS = re.compile(
    r'^```bash title="run by tests/test_own_geometry.py"\n(?P<text>.*?)^```$', re.DOTALL | re.MULTILINE
)
GRID = CoordGrid()
SIZE = (120, 80)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """A folder with the files of the guide."""
    folder = tmp_path_factory.mktemp("own")
    for block in FILE.finditer(GUIDE):
        (folder / block["name"]).write_text(block["text"])
    return folder


@pytest.fixture(scope="module")
def ellipse(files):
    """The geometry, registered by importing the guide's file."""
    built_in = GEOMETRIES.get("ellipse")
    spec = importlib.util.spec_from_file_location("ellipse", files / "ellipse.py")
    spec.loader.exec_module(importlib.util.module_from_spec(spec))
    yield geometry_of("ellipse")
    if built_in is not None:
        register_geometry(built_in, replace=True)
    elif "ellipse" in GEOMETRIES:
        GEOMETRIES.remove("ellipse")


def drawn_at_random(kind, seed, count=3):
    rng = random.Random(seed)
    spans = [(0.3, 0.7)] * 2 + [(0.15, 0.3), (0.05, 0.12), (0, 1)]
    shapes = [kind.arrange(tuple(rng.uniform(*span) for span in spans)) for _ in range(count)]
    objects = [{"desc": "egg", "geometry": {"type": "ellipse", "coordinates": list(shape)}} for shape in shapes]
    return Instance(image="a.png", image_id=1, width=SIZE[0], height=SIZE[1], objects=objects)


def mask(coordinates, size=SIZE, zoom=8):
    """Which cells of a fine grid lie in an ellipse of the unit square, by its equation."""
    x, y, long, short, angle = coordinates
    rows, columns = np.mgrid[: size[1] * zoom, : size[0] * zoom]
    dx, dy = (columns + 0.5) / (size[0] * zoom) - x, (rows + 0.5) / (size[1] * zoom) - y
    cos, sin = math.cos(angle * math.pi), math.sin(angle * math.pi)
    return ((dx * cos + dy * sin) / long) ** 2 + ((dy * cos - dx * sin) / short) ** 2 <= 1


def iou(a, b):
    return (a & b).sum() / (a | b).sum()


@pytest.mark.parametrize("form", ["tokens", "numbers"])
@pytest.mark.parametrize(("style", "markers"), [("json", "obj"), *(("markers", name) for name in MARKERS)])
def test_target_is_parsed_to_its_bins(ellipse, style, markers, form):
    instance = drawn_at_random(ellipse, 1)
    text = encode_target(instance, style=style, markers=markers, form=form, order="given", geometry="ellipse")
    answer = parse_answer(text, geometry="ellipse")
    assert answer.status == "ok" and not answer.truncated
    for found, true in zip(answer, instance.objects, strict=True):
        bins = ellipse.to_bins(true.geometry.coordinates, GRID)
        assert (found.geometry, found.completeness, list(found.bins)) == ("ellipse", "complete", bins)
        assert found.coordinates == pytest.approx([k / 1000 for k in bins])
        assert found.box == pytest.approx(ellipse.to_box(found.coordinates))
        assert found.points == ellipse.outline(found.coordinates)


@pytest.mark.parametrize("markers", list(MARKERS))
@pytest.mark.parametrize(("form", "last"), [("tokens", r"<\|coord_\d+\|>"), ("numbers", r",\d+(?=\))")])
def test_four_numbers_are_no_ellipse_and_five_are_no_box(ellipse, markers, form, last):
    text = encode_target(drawn_at_random(ellipse, 1, 1), markers=markers, form=form, geometry="ellipse")
    answer = parse_answer(re.sub(last, "", text, count=1), geometry="ellipse")
    assert not answer.objects and [drop.reason for drop in answer.dropped] != ["unrecognised"]
    assert not parse_answer(text, geometry="box").objects


def test_pixels_are_refused_since_an_angle_has_none(ellipse):
    with pytest.raises(ValueError, match="lengths and angles of the geometry ellipse"):
        parse_answer("", scale="pixels", image_size=SIZE, geometry="ellipse")


@pytest.mark.slow
def test_score_is_that_of_masks_by_the_equation(ellipse):
    instance = drawn_at_random(ellipse, 2, 1)
    true = instance.objects[0].geometry.coordinates
    for change in ((0, 0, 0, 0, 0), (0.02, 0, 0, 0, 0), (0, 0, 0.05, 0.03, 0), (0, 0, 0, 0, 0.1)):
        other = ellipse.arrange(tuple(a + b for a, b in zip(true, change, strict=True)))
        bins = ellipse.to_bins(other, GRID)
        text = f'[{{"ellipse_2d": {bins}, "label": "egg"}}]'
        found = score(
            [instance], [{"image_id": 1, "text": text}], answers=AnswerSettings(geometry="ellipse", scale=1000)
        )
        expected = iou(mask(true), mask(tuple(k / 1000 for k in bins)))
        assert found.shapes["mean"] == pytest.approx(expected if expected >= 0.5 else 0, abs=0.01)
        assert found.shapes["AP"] == pytest.approx(np.mean(expected >= np.arange(0.5, 0.999, 0.05)), abs=0.1)
    assert found.shapes["ceiling"]["AP"] == pytest.approx(1)
    assert found.shapes["measure"] == "IoU of outlines (shapely)"


@pytest.mark.parametrize("markers", [(0, 1), (0, 1, 2, 3)])
def test_grammar_allows_five_numbers_and_no_ellipse_twice(ellipse, markers):
    import torch

    from coord_codec import CoordVocab
    from coord_detect.grammar.coord_grammar import CoordGrammar
    from coord_detect.grammar.served import AnswerForm

    vocab, end, word = CoordVocab(10, CoordGrid(bins=5, scale=5)), 5, 6
    grammar = CoordGrammar(AnswerForm(vocab, markers, None, None, ellipse, words=(word,)), end, prompt_length=0)

    def allowed(ids):
        scores = grammar(torch.tensor([ids], dtype=torch.long).view(1, -1), torch.zeros(1, 20))
        return scores[0].isfinite().nonzero()[:, 0].tolist()

    begun = [markers[0], word, *markers[1:-1]] if len(markers) == 4 else [markers[0], word]
    numbers = [10, 14, 12, 12, 11]
    for count in range(5):
        assert allowed([*begun, *numbers[:count]])[-5:] == list(vocab.ids)
    assert allowed([*begun, *numbers]) == [markers[-1]]
    again = [*begun, *numbers, markers[-1], *begun, *numbers[:-1]]
    assert allowed(again) == [k for k in vocab.ids if k != numbers[-1]]


def test_grammar_of_servers_has_five_coordinates(ellipse):
    from coord_codec import CoordVocab
    from coord_detect.grammar.served import AnswerForm, ebnf_grammar, lark_grammar

    vocab = CoordVocab(10, CoordGrid(bins=5, scale=5))
    for form in (AnswerForm(vocab, (0, 1), None, 3, ellipse), AnswerForm(vocab, None, None, 3, ellipse)):
        for grammar in (lark_grammar(form), ebnf_grammar(form)):
            (line,) = [line for line in grammar.splitlines() if line.startswith("object")]
            assert line.count("side") == 5


@pytest.mark.parametrize("seed", range(12))
def test_augmented_ellipse_is_where_it_is_in_the_image(ellipse, seed):
    from coord_trainer.config.data_sources import AugmentConfig
    from coord_trainer.data.augment import augment

    instance = drawn_at_random(ellipse, seed, 1)
    zoom = 4
    image = Image.new("RGB", (SIZE[0] * zoom, SIZE[1] * zoom), "white")
    outline = ellipse.outline(instance.objects[0].geometry.coordinates)
    ImageDraw.Draw(image).polygon([(x * image.width, y * image.height) for x, y in outline], fill="black")
    changed, moved = augment(image, instance, AugmentConfig(flip=0.5, crop=1, min_crop=0.4), seed)
    seen = np.asarray(changed)[..., 0] < 128
    if not moved.objects:
        assert not seen.any()
        return
    found = mask(moved.objects[0].geometry.coordinates, changed.size, zoom=1)
    assert iou(seen, found) > 0.95
    assert moved.objects[0].bbox == pytest.approx(moved.objects[0].geometry.box, abs=1e-6)


def test_exports_draw_it_as_an_outline_and_records_keep_its_numbers(ellipse, tmp_path):
    from coord_detect.answers.objects import read_objects
    from coord_eval.labelling.formats import EXPORTS
    from coord_eval.labelling.objects import DetectedObject
    from coord_eval.settings import AnswerSettings

    instance = drawn_at_random(ellipse, 3, 1)
    text = encode_target(instance, markers="obj", geometry="ellipse")
    size = {"width": SIZE[0], "height": SIZE[1]}
    answer = {"image": "a.png", "image_id": 1, "text": text, "finish_reason": "stop", **size}
    (found,) = read_objects(answer, reading=AnswerSettings(geometry="ellipse"))
    record = json.loads(json.dumps(found.to_record()))
    assert DetectedObject.from_record(record).to_record() == found.to_record()
    assert record["coordinates"] == pytest.approx(instance.objects[0].geometry.coordinates, abs=6e-4)
    for name, export in EXPORTS.items():
        (tmp_path / name).mkdir()
        export([answer | {"objects": [record]}], tmp_path / name)
    (annotation,) = json.loads((tmp_path / "coco" / "coco.json").read_text())["annotations"]
    exact = math.pi * np.prod(found.coordinates[2:4]) * SIZE[0] * SIZE[1]
    assert annotation["area"] == pytest.approx(exact, rel=0.01)
    assert len(annotation["segmentation"][0]) == 2 * len(found.points)


@pytest.fixture(scope="module")
def run(files, forked):
    """The guide's commands: a run of four steps, and the answers of its model."""
    folder = files
    (block,) = COMMANDS.finditer(GUIDE)
    for line in block["text"].strip().splitlines():
        words = line.removeprefix("uv run ").removeprefix("python ").split()
        small = [
            "model.tiny={hidden: 32, heads: 4, ffn: 48, vision_hidden: 32, layers: 2, vision_layers: 2}",
            "run.threads=1",
        ]
        words += small if words[1:2] == ["train"] else []
        places = {"apps": ROOT, "coord-detect": Path(sys.executable).parent}
        script = places.get(words[0].partition("/")[0], folder) / words[0]
        done = forked(script, *words[1:], cwd=folder, PYTHONPATH=str(folder))
        assert done.returncode == 0, f"{line}\n{done.stdout[-3000:]}{done.stderr[-3000:]}"
    return folder


@pytest.mark.slow
def test_run_trains_scores_and_draws_ellipses(run):
    folder = run / "runs" / "ellipse"
    manifest = json.loads((folder / "manifest.json").read_text())
    assert manifest["status"] == "finished" and "ellipse.py" in manifest["plugins"]
    rows = [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]
    assert all(0 < row["train_coord_loss"] < 10 for row in rows if "train_coord_loss" in row)
    assert {"train_coord_loss", "coord_diag/soft_ce"} <= rows[0].keys()
    assert rows[0]["coord_diag/coord_tokens"] == 5 * 16  # a batch of four, accumulated four times
    evaluation = json.loads((folder / "evaluation.json").read_text())
    assert evaluation["shapes"]["geometry"] == "ellipse"
    assert evaluation["shapes"]["objects"] == 16 and evaluation["shapes"]["ceiling"]["AP"] > 0.95
    answers = [json.loads(line) for line in (folder / "predictions.jsonl").read_text().splitlines()]
    assert len(answers) == 16
    for answer in answers:
        groups = re.findall(r"(?:<\|coord_\d+\|>)+", answer["text"])
        assert all(group.count("<|coord_") == 5 for group in groups), answer["text"]
    assert "<polygon" in (folder / "report.html").read_text()
    card = json.loads((folder / manifest["checkpoint"] / "coordexp.json").read_text())
    assert card["geometry"] == "ellipse"


@pytest.mark.slow
def test_predict_finds_ellipses_with_the_plugin_and_says_what_it_lacks_without(run, forked):
    if "ellipse" in GEOMETRIES:
        GEOMETRIES.remove("ellipse")  # a fork would know it, as no other process does
    (answer,) = [json.loads(line) for line in (run / "found" / "predictions.jsonl").read_text().splitlines()]
    for found in answer["objects"]:
        assert found["geometry"] == "ellipse" and len(found["coordinates"]) == 5
    words = ["predict", "runs/ellipse", "ellipse-0.png", "--out", "elsewhere"]
    done = forked(ROOT / "apps/trainer", *words, cwd=run)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "ellipse" in done.stderr and "register_geometry" in done.stderr and "plugins" in done.stderr
