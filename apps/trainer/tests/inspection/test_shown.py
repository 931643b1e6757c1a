"""What the page shows is what the model is given: image from patches, boxes from token ids, roles and weights."""

import re
from dataclasses import replace

import numpy as np
import pytest
from PIL import Image, ImageOps
from planted import examine, shapes

from coord_data.inspection.page import write_page
from coord_trainer.config.data_sources import AugmentConfig
from coord_trainer.inspection.page import model_page
from coord_trainer.inspection.report import ceilings, token_findings, token_lines
from coord_trainer.inspection.shown import (
    ModelView,
    ShownImage,
    Token,
    image_of_pixels,
    tokens_of,
    with_model,
    without_model,
)


@pytest.fixture(scope="module")
def view(opened_run):
    config, _, train, _ = opened_run
    return config, train, with_model(config, train, [0, 3])


@pytest.mark.slow
def test_samples_that_are_too_long_are_shown_whole_with_what_lies_beyond(opened_run):
    config, _, train, _ = opened_run
    limited = config.model_copy(update={"training": config.training | {"max_length": 30}})
    found = with_model(limited, train, [0, 3])
    assert found.limit == 30 and max(found.lengths) > 30
    for one, length in zip(found.shown, (found.lengths[0], found.lengths[3]), strict=True):
        assert sum(token.role == "beyond" for token in one.tokens) == length - 30
        assert len(one.decoded) == len(one.truth)  # nothing is missing: the tokens beyond are there


def test_a_lost_object_is_no_small_difference():
    box = (0.1, 0.1, 0.2, 0.2)
    one = ShownImage("a.png", None, (10, 10), (("cat", box),), (), "")
    assert one.off_by is None
    assert replace(one, decoded=(("cat", (0.1, 0.1, 0.2, 0.3)),)).off_by == pytest.approx(1.0)


def test_tokens_have_roles_and_weights(view):
    _, _, found = view
    tokens = found.shown[0].tokens
    objects = len(found.shown[0].truth)
    assert sum(t.role.startswith("object ") for t in tokens) == 4 * objects
    assert {t.weight for t in tokens if t.role.startswith("object ")} == {3.0}  # soft CE, W1 and gate
    assert {t.weight for t in tokens if t.role in ("prompt", "image")} == {0.0}
    assert {t.weight for t in tokens if t.role in ("structure", "description")} == {1.0}
    assert {t.terms for t in tokens if t.role.startswith("object ")} == {("soft_ce", "w1", "gate")}
    assert {t.terms for t in tokens if t.role in ("structure", "description")} == {("text_ce",)}
    assert {t.terms for t in tokens if t.role in ("prompt", "image")} == {()}
    assert sum(t.role == "image" for t in tokens) == 1
    assert len(found.lengths) == 8 and min(found.lengths) > 20


def test_lines_of_a_sample_state_every_token_and_its_loss_terms(view):
    _, _, found = view
    shown = found.shown[0]
    head, columns, *lines = token_lines(shown, found.limit)
    assert shown.name in head and columns.split() == ["supervised", "weight", "role", "loss", "terms", "token"]
    assert len(lines) == len(shown.tokens)
    for line, token in zip(lines, shown.tokens, strict=True):
        assert line.startswith("yes" if token.terms else "no") and line.endswith(repr(token.text))
        assert ", ".join(token.terms) in line and token.role in line
    page = model_page(found.shown, {}, found).images[1]
    assert "soft_ce, w1, gate, weight 3" in page and "not supervised" in page


def test_whole_image_of_tiles_is_that_of_the_family():
    processor = type("Processor", (), {"image_mean": [0.0] * 3, "image_std": [1.0] * 3})
    tiles = np.zeros((1, 3, 3, 4, 5), np.float32)  # as LLaVA-OneVision has them: images, tiles, channels, rows, columns
    tiles[0, 0], tiles[0, -1] = 1.0, 0.5
    first, last = (image_of_pixels(tiles, None, processor, tile) for tile in (0, -1))
    assert (
        first.size == (5, 4) and first.getpixel((0, 0)) == (255, 255, 255) and last.getpixel((0, 0)) == (128, 128, 128)
    )
    assert image_of_pixels(tiles[0], None, processor).getpixel((0, 0)) == (128, 128, 128)


@pytest.mark.slow
@pytest.mark.parametrize(
    "changes", [{"queries": "per_class"}, {"order": "random"}, {"augment": AugmentConfig(flip=1)}, {}]
)
def test_sample_that_varies_is_shown_with_what_it_teaches(opened_run, view, changes):
    """Boxes beside the answer's are those that the sample has in the first epoch, which training sees too."""
    config, _, train, _ = opened_run
    data = config.data.model_copy(update=changes)
    shown = with_model(config.model_copy(update={"data": data}), train, [0, 3, 5]).shown
    for one, index in zip(shown, (0, 3, 5), strict=True):
        mirrored = "augment" in changes
        corners = [(named.desc, *named.bbox) for named in train.instances[index].objects]
        wanted = [
            (name, 1 - x2, y1, 1 - x1, y2) if mirrored else (name, x1, y1, x2, y2) for name, x1, y1, x2, y2 in corners
        ]
        if "queries" in changes:
            wanted = [row for row in wanted if row[0] in {name for name, _ in one.truth}]
        assert [row[0] for row in sorted(wanted)] == sorted(name for name, _ in one.truth)
        assert [row[1:] for row in sorted(wanted)] == [pytest.approx(box) for _, box in sorted(one.truth)]
        assert one.off_by is not None and one.off_by <= 0.0005 * max(one.size) + 1e-6
        given = ImageOps.mirror(train.image(index)) if mirrored else train.image(index)
        assert np.abs(np.asarray(given.resize(one.image.size), float) - np.asarray(one.image, float)).mean() < 3
        assert one.augmented == mirrored


@pytest.mark.slow
def test_heavier_tokens_are_darker(view, tmp_path):
    config, _, of_model = view
    light = Token("<|coord_1|>", "object 0 x1", 0.5)
    one = replace(of_model.shown[0], tokens=(light, replace(light, weight=2.0), replace(light, weight=0.0)))
    found = examine(shapes(12).write(tmp_path))
    write_page(tmp_path / "a.html", found, model_page([one], ceilings(config, found), of_model), [])
    styles = re.findall(
        r'background:#6f9df0(..)" title="object 0 x1, [^"]*weight ([\d.]+)"', (tmp_path / "a.html").read_text()
    )
    opacity = {weight: int(value, 16) for value, weight in styles}
    assert opacity["0"] < opacity["0.5"] < opacity["2"] == 255


def test_only_a_tokenizer_finds_long_samples_and_split_names():
    view = ModelView((), (90, 100, 120, 400), 100, {"cat": 3, "xylograph": 4, "traffic light": 4})
    long, split = token_findings(view)
    assert (long.code, long.severity, long.count) == ("long_samples", "error", 2) and "400" in long.evidence
    assert (split.code, split.severity, split.count) == ("split_names", "note", 1) and "xylograph" in split.evidence
    assert token_findings(replace(view, lengths=(90,), pieces={})) == []


@pytest.mark.slow
def test_page_is_whole_and_escapes_what_files_say(view, tmp_path):
    config, _, of_model = view
    draft = shapes(12)
    named = replace(draft, labels=tuple(("<script>alert(1)</script>",) * len(names) for names in draft.labels))
    found = examine(named.write(tmp_path))
    shown = without_model(config, found.annotations.instances[:3], found.root)
    assert all(one.off_by < 0.1 for one in shown)
    for name, images, model in (("plain", shown, None), ("model", of_model.shown, of_model)):
        write_page(tmp_path / f"{name}.html", found, model_page(images, ceilings(config, found), model), [])
        text = (tmp_path / f"{name}.html").read_text()
        assert text.count('<svg class="overlay') == len(images) and text.count("<script") == 1
        assert "Quantisation ceiling" in text and "faults of records and objects" in text and text.endswith("</html>\n")
    assert "coord_" in text and "weight 3" in text


@pytest.mark.slow
def test_ceiling_of_all_given_objects_counts_what_is_not_taught(view, tmp_path):
    config, _, _ = view
    found = examine(shapes(20).write(tmp_path))
    whole, limited = (
        ceilings(config.model_copy(update={"data": config.data.model_copy(update={"max_objects": n})}), found)
        for n in (30, 1)
    )
    assert whole["Quantisation ceiling"] == limited["Quantisation ceiling"] > 0.9
    assert whole["Ceiling of all given objects"] == whole["Quantisation ceiling"]
    assert limited["Ceiling of all given objects"] < 0.8


def test_lengths_and_names_count_from_the_first_beyond_the_border():
    view = ModelView((), (99, 100, 101), 100, {"abc": 3, "abcd": 4, "two words": 6, "two more": 7, "a b c": 9})
    long, split = token_findings(view)
    assert long.count == 1 and "1 of 3 samples has more tokens than training.max_length=100" in long.message
    assert "the longest has 101" in long.evidence and "training.max_length=101" in long.fix
    assert split.count == 2 and split.evidence == "'two more' 7, 'abcd' 4"  # the most tokens first
    many = ModelView((), (), 1, {f"n{n:02}": 10 + n for n in range(12)})
    (split,) = token_findings(many)
    assert (split.count, split.evidence.count(","), split.evidence[:8]) == (12, 9, "'n11' 21")
    page = model_page((), {}, view).sections[0][1]
    assert "3 samples of 99 to 101 tokens" in page and "max_length is 100: 1 are longer" in page


def coloured(*tokens):
    shown = [ShownImage("a.png", Image.new("RGB", (4, 4)), (4, 4), (), (), "", (token,)) for token in tokens]
    page = model_page(shown, {}, ModelView(tuple(shown), (1,), 9, {})).images[1]
    return page, re.findall(r'<span style="background:(#\w+)" title="(\w+)', page)


def test_colour_of_a_token_is_that_of_its_role_and_paler_by_the_largest_weight_of_all_images():
    page, found = coloured(
        Token("a", "object 3 x1", 1.0, ("w1",)), Token("b", "object 0 y2", 4.0, ("w1",)),
        Token("c", "structure", 0.0, ()), Token("d", "description", 2.0, ("text_ce",)),
        *(Token("e", role, 0.0) for role in ("prompt", "image", "unlearnt", "beyond")),
    )  # fmt: skip
    assert found == [
        ("#6f9df070", "object"), ("#6f9df0ff", "object"), ("#f2b84b26", "structure"), ("#5fbf7f9f", "description"),
        ("#e8ebef", "prompt"), ("#d9d2ea", "image"), ("#e9b5ae", "unlearnt"), ("#e0605a", "beyond"),
    ]  # fmt: skip
    assert "here 1 to 4;" in page and "parsed from the token ids" in page
    assert "here 0 to 1;" in coloured(Token("e", "prompt", 0.0))[0]


def test_caption_says_what_is_shown_and_how_far_apart_the_boxes_are():
    box, size = (0.0, 0.0, 0.5, 0.5), (40, 20)
    one = ShownImage("a.png", Image.new("RGB", (8, 4)), size, (("cat", box),), (("cat", (0, 0, 0.5, 0.55)),), "<text>")
    lost, other = replace(one, decoded=()), replace(one, augmented=True, truth=(), decoded=())
    page = model_page([one, lost, other], {"Quantisation ceiling": 0.5, "Own": 0.25}, None)
    told = page.images[1]
    assert page.images[0] == "Images" and page.sections == () and "parsed from the target text" in told
    assert "8 x 4 shown, file 40 x 20; at most 1.00 px apart" in told and "an object is missing" in told
    assert "augmented as in the first epoch, 40 x 20; at most 0.00 px" in told and "<pre>&lt;text&gt;</pre>" in told
    assert [tile[0] for tile in page.tiles] == ["Quantisation ceiling", "Own"] and page.tiles[1][2] == "AP"
    assert "usable annotations" in page.tiles[0][2]


def test_image_of_patches_is_the_first_of_several_and_of_its_rows_and_columns():
    """Patches as Qwen's processor lays them out: blocks of merge x merge, channels, two frames."""
    side, merge, rows, columns = 2, 2, 4, 6
    picture = np.random.default_rng(0).integers(0, 256, (rows * side, columns * side, 3)).astype(np.uint8)
    patches = []
    for row in range(0, rows, merge):
        for column in range(0, columns, merge):
            for down in range(merge):
                for right in range(merge):
                    y, x = (row + down) * side, (column + right) * side
                    patch = picture[y : y + side, x : x + side].transpose(2, 0, 1) / 255
                    patches.append(np.stack([(patch - 0.5) / 0.25] * 2, axis=1).ravel())
    values, grid = np.array(patches, np.float32), np.array([[1, rows, columns], [1, 2, 2]])
    processor = type(
        "Of", (), {"image_mean": [0.5] * 3, "image_std": [0.25] * 3, "merge_size": merge, "patch_size": side}
    )
    for given in (values, np.concatenate([values, values[:4]])):
        assert np.array_equal(np.asarray(image_of_pixels(given, grid, processor)), picture)


def test_tokens_beyond_the_maximum_length_begin_at_it_and_untaught_ones_of_an_answer_are_named(opened_run):
    config, run, _, samples = opened_run
    sample = dict(samples[0])
    length = len(sample["input_ids"])
    labels = list(sample["labels"])
    first = next(i for i, label in enumerate(labels) if label != -100)
    labels[first + 2] = -100
    stand_in = type("Opened", (), {"processor": run.processor, "family": run.family, "longest_sample": length - 3})
    found = tokens_of(config, stand_in, sample | {"labels": labels})
    assert [token.role for token in found][-4:].count("beyond") == 3 and found[-4].role != "beyond"
    assert all(token.weight == 0 and token.terms == () for token in found if token.role in ("beyond", "unlearnt"))
    roles = [token.role for token in found]
    assert roles.count("unlearnt") == 1 and "unlearnt" not in roles[: roles.index("structure")]
    (image,) = [token for token in found if token.role == "image"]
    assert image.text.endswith(f" x {sample['input_ids'].count(run.model.config.image_token_id)}")
    without = tokens_of(config, stand_in, sample | {"coord_layout": None})
    assert {token.role for token in without} == {"prompt", "image", "structure", "beyond"}


@pytest.mark.slow
def test_size_of_an_image_is_the_stated_one_or_its_own(opened_run, tmp_path):
    config, _, train, _ = opened_run
    Image.new("RGB", (1200, 600)).save(tmp_path / "a.png")
    one = train.instances[0].model_copy(update={"image": "a.png"})
    for width, height, size in ((None, None, None), (2400, 1200, (2400, 1200))):
        (found,) = without_model(config, [one.model_copy(update={"width": width, "height": height})], tmp_path)
        assert max(found.image.size) <= 960 and found.image.width == 2 * found.image.height
        assert found.size == (size or found.size) and found.name == "a.png"
        assert len(found.decoded) == len(found.truth) == len(one.objects) and found.tokens == ()
