"""Padded batches and their objects."""

from types import SimpleNamespace

import pytest
import tiny_models
import tokenizers
import torch

from coord_codec import MARKERS, CoordVocab, coord_tokens
from coord_losses import supervised_rows
from coord_losses.hf import CoordCollator


@pytest.mark.parametrize("side", ["right", "left"])
def test_collator_pads_and_finds_the_objects(side):
    samples = tiny_models.samples()
    batch = tiny_models.collator(padding_side=side)(samples)
    longest = max(len(s["input_ids"]) for s in samples)
    for row, sample in enumerate(samples):
        length = len(sample["input_ids"])
        own = slice(longest - length, longest) if side == "left" else slice(0, length)
        assert batch["input_ids"][row, own].tolist() == sample["input_ids"]
        assert batch["labels"][row, own].tolist() == sample["labels"]
        assert batch["attention_mask"][row].sum() == length == batch["attention_mask"][row, own].sum()
        assert (batch["labels"][row] == -100).sum() == longest - length + 2
    objects = batch["objects"]
    boxes = [box for sample in samples for box in sample["boxes"]]
    torch.testing.assert_close(objects.boxes_M4, torch.tensor(boxes, dtype=torch.float64))
    assert (objects.fallbacks, objects.skipped) == (0, 0)
    _, targets = supervised_rows(batch["labels"][..., None], batch["labels"])
    expected = [[tiny_models.VOCAB.bin_to_id(tiny_models.VOCAB.grid.quantize(c)) for c in box] for box in boxes]
    assert targets[objects.rows_M4].tolist() == expected


def test_collator_reads_names_that_are_masked_in_the_labels():
    samples = tiny_models.samples()
    known = [10 + n for n, sample in enumerate(samples) for _ in sample["boxes"]]
    for sample in samples:
        sample["labels"] = [token if token in tiny_models.VOCAB.ids else -100 for token in sample["labels"]]
    said = tiny_models.collator()(samples)["objects"].said_M.tolist()
    assert [said.index(name) for name in said] == [known.index(name) for name in known]


def test_collator_joins_other_tensors():
    samples = tiny_models.samples(3)
    for n, sample in enumerate(samples):
        sample["pixel_values"] = torch.full((n + 1, 4), float(n))
        sample["token_type_ids"] = torch.ones(len(sample["input_ids"]), dtype=torch.long)
    batch = tiny_models.collator()(samples)
    assert batch["pixel_values"].shape == (6, 4)
    assert batch["token_type_ids"].shape == batch["input_ids"].shape
    assert torch.equal(batch["token_type_ids"], batch["attention_mask"])
    assert "boxes" not in batch


@pytest.mark.parametrize("with_image", [[1, 2], [0, 2], [0]])
def test_collator_keeps_the_images_of_samples_beside_samples_without(with_image):
    samples = tiny_models.samples(3)
    for n in with_image:
        samples[n]["pixel_values"] = torch.full((n + 1, 4), float(n))
    samples[1].setdefault("pixel_values", None)
    batch = tiny_models.collator()(samples)
    assert batch["pixel_values"][:, 0].tolist() == [n for n in with_image for _ in range(n + 1)]


def test_collator_warns_of_boxes_that_do_not_agree_with_the_text(recwarn):
    samples = tiny_models.samples(3)
    samples[1].pop("boxes")
    tiny_models.collator()(samples)
    assert not recwarn.list
    samples[2]["boxes"] = [[640 * side for side in box] for box in samples[2]["boxes"]]
    with pytest.warns(UserWarning, match="fractions of the image's sides"):
        tiny_models.collator()(samples)


def test_boxes_stay_with_their_objects_if_the_labels_of_one_are_masked():
    objects = [[1, 9, 30 + b, 30 + b, 32 + b, 32 + b, 2] for b in (2, 6, 12)]
    ids = [7, 8, *objects[0], *objects[1], *objects[2]]
    labels = [-100, -100, *objects[0], *[-100] * 7, *objects[2]]
    sample = {"input_ids": ids, "labels": labels}
    found = tiny_models.collator()([sample])["objects"]
    assert found.boxes_M4[:, 0].tolist() == [2 / 20, 12 / 20]


def test_collator_finds_shapes_of_another_geometry_and_refuses_two_in_a_batch():
    triangles = [[0.1, 0.1, 0.4, 0.1, 0.4, 0.55], [0.2, 0.3, 0.8, 0.3, 0.5, 0.9]]
    vocab = tiny_models.VOCAB
    samples = []
    for shape in triangles:
        ids = [7, 1, 9, *(vocab.bin_to_id(vocab.grid.quantize(side)) for side in shape), 2]
        samples.append({"input_ids": ids, "labels": ids, "boxes": [shape], "geometry": "polygon"})
    found = tiny_models.collator()(samples)["objects"]
    assert found.coords.true_P.tolist() == pytest.approx([side for shape in triangles for side in shape])
    assert (found.fallbacks, found.skipped) == (0, 0)
    with pytest.raises(ValueError, match=r"polygon.*point"):
        tiny_models.collator()([samples[0], samples[1] | {"geometry": "point"}])


def test_labels_of_coordinates_alone_have_objects():
    samples = tiny_models.samples(4)
    for sample in samples:
        sample["labels"] = [token if token in tiny_models.VOCAB.ids else -100 for token in sample["input_ids"]]
    found = tiny_models.collator()(samples)["objects"]
    assert len(found) == sum(len(sample["boxes"]) for sample in samples)
    assert found.fallbacks == 0


def test_collator_errors_name_the_cause():
    with pytest.raises(ValueError, match="sample 0 has no labels, only input_ids"):
        tiny_models.collator()([{"input_ids": [1, 2]}])
    samples = tiny_models.samples(2)
    for name, value in (("token_type_ids", [0] * len(samples[1]["input_ids"])), ("index", 7)):
        with pytest.raises(ValueError, match=f"sample 0 has no {name}"):
            tiny_models.collator()([samples[0], samples[1] | {name: value}])
    for wrong, told in (
        ({"input_ids": [1, 2, 3], "labels": [1, 2]}, "3 input_ids and 2 labels"),
        ({"labels": [1, 2]}, "has no input_ids, only labels"),
        ({}, "has no input_ids, only nothing"),
    ):
        with pytest.raises(ValueError, match=f"sample 0:? {told}"):
            tiny_models.collator()([wrong])
        with pytest.raises(ValueError, match=f"sample 2:? {told}"):
            tiny_models.collator()([*samples, wrong])
    with pytest.raises(ValueError, match="padding_side"):
        tiny_models.collator(padding_side="top")


@pytest.mark.parametrize("side", ["right", "left"])
def test_mask_of_a_sample_is_kept_and_other_sequences_are_padded_with_zero(side):
    first, second = ({"input_ids": ids, "labels": ids} for ids in ([5, 6, 7], [8]))
    first |= {"attention_mask": [0, 1, 1], "kinds": [4, 4, 4]}
    batch = tiny_models.collator(padding_side=side)([first, second | {"kinds": [9]}])
    pad = tiny_models.collator().pad_id
    placed = (
        (lambda values, fill: [fill, fill, *values]) if side == "left" else (lambda values, fill: [*values, fill, fill])
    )
    assert batch["attention_mask"].tolist() == [[0, 1, 1], placed([1], 0)]
    assert batch["kinds"].tolist() == [[4, 4, 4], placed([9], 0)]
    assert batch["labels"].tolist() == [[5, 6, 7], placed([8], -100)] and batch["input_ids"].tolist()[1] == placed(
        [8], pad
    )


@pytest.mark.parametrize(("token", "pad"), [(None, 0), (0, 0), (7, 7)])
def test_padding_is_that_of_the_tokenizer_or_zero(token, pad):
    collate = CoordCollator(SimpleNamespace(pad_token_id=token), markers=(1, 2), vocab=tiny_models.VOCAB)
    batch = collate([{"input_ids": ids, "labels": ids, "kinds": ids} for ids in ([5, 6], [8])])
    assert batch["input_ids"].tolist() == [[5, 6], [8, pad]] and batch["kinds"].tolist() == [[5, 6], [8, 0]]


def test_one_box_that_does_not_agree_is_told_also_beside_samples_without():
    samples = tiny_models.samples(3)
    samples[1].pop("boxes")
    samples[2]["boxes"] = [[1 - side for side in samples[2]["boxes"][0]], *samples[2]["boxes"][1:]]
    with pytest.warns(UserWarning, match="do not agree"):
        tiny_models.collator()(samples)


@pytest.mark.parametrize("given", ["qwen", MARKERS["obj"], (4, 5), None])
@pytest.mark.parametrize("wrapped", [False, True], ids=["tokenizer", "processor"])
def test_markers_and_coordinates_come_from_the_tokenizer(given, wrapped):
    transformers = pytest.importorskip("transformers", reason="its tokenizers")
    words = ["pad", "unk", *(token for family in MARKERS.values() for token in family.tokens), *coord_tokens()]
    inner = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: i for i, word in enumerate(words)}, unk_token="unk")
    )
    inner.add_special_tokens(words)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=inner, pad_token="pad", unk_token="unk")
    collate = CoordCollator(SimpleNamespace(tokenizer=tokenizer) if wrapped else tokenizer, given)
    family = {"qwen": MARKERS["qwen"], MARKERS["obj"]: MARKERS["obj"]}.get(given)
    expected = given if family is None else tuple(words.index(token) for token in family.tokens)
    assert (collate.markers, collate.pad_id, collate.padding_side) == (expected, 0, "right")
    assert collate.vocab == CoordVocab(words.index(coord_tokens()[0]))
    assert CoordCollator(tokenizer, (4, 5), tiny_models.VOCAB).vocab == tiny_models.VOCAB
