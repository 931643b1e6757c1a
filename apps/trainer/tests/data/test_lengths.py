"""What is too long for `training.max_length`, before the first step."""

import pytest

from coord_codec import InputError, Instance
from coord_trainer.data.lengths import Lengths, longer_than, report_long_samples
from coord_trainer.data.targets import TargetWriter


def instances(*widths):
    return [
        Instance(image=f"{width}.jpg", objects=[{"desc": "cat", "bbox": [0, 0, 1, 1]}], width=width, height=10)
        for width in widths
    ]


def test_longer_than_counts_prompt_image_and_answer_and_tokenises_only_what_may_exceed():
    tokenised = []

    def answer(text):
        tokenised.append(text)
        return len(text) // 2

    lengths = Lengths(around=5, answer=answer, image=lambda width, height: width)
    found = longer_than(20, lengths, instances(1, 10, 11, 14, 30), lambda instance: "ab" * 5)
    assert [(instance.image, length) for instance, length in found] == [("30.jpg", 40), ("14.jpg", 24), ("11.jpg", 21)]
    assert len(tokenised) == 4  # 5 + 1 + 10 bytes cannot exceed 20
    assert longer_than(20, lengths, [Instance(image="a", objects=())], lambda instance: "a" * 99) == []


def test_long_samples_are_said_where_they_are_cut_and_refused_where_they_are_not():
    found = [("image 30.jpg", 40)]
    line = report_long_samples(found, 9, 20, "right")
    assert line.startswith("1 of 9 samples have more than training.max_length=20 tokens, the longest 40 (image 30.jpg)")
    assert "last objects are cut off" in line
    assert report_long_samples([], 9, 20, None) is None
    with pytest.raises(InputError, match=r"1 of 9 samples .* raise training\.max_length"):
        report_long_samples(found, 9, 20, None)


def test_measured_length_is_that_of_the_encoded_sample(opened_run):
    config, opened, train, samples = opened_run
    lengths, writer = opened.measure(), TargetWriter(config.data, True, 0, opened.vocab)
    for index, instance in enumerate(train.instances):
        text, length = writer.text(instance), len(samples[index]["input_ids"])
        assert lengths.of(instance, text) == length <= lengths.bound(instance, text)
    assert opened.truncation is None


@pytest.mark.parametrize(("limit", "long"), [(19, ["b", "a"]), (20, ["b"]), (27, ["b"]), (28, [])])
def test_letters_of_several_bytes_are_longer_than_they_look_and_the_longest_comes_first(limit, long):
    """A token for each byte, as of a script that the tokenizer has not learnt."""
    texts = {"a": "語語語語語", "b": "語" * 7 + "ab", "c": "a"}
    records = [Instance(image=name, width=3, height=2, objects=[{"desc": text, "bbox": [0, 0, 1, 1]}])
               for name, text in texts.items()]  # fmt: skip
    lengths = Lengths(around=4, answer=lambda text: len(text.encode()), image=lambda width, height: width - height)
    found = longer_than(limit, lengths, records, lambda instance: texts[instance.image])
    assert [instance.image for instance, _ in found] == long
    assert all(length == 5 + len(texts[one.image].encode()) for one, length in found)


@pytest.mark.parametrize(("side", "told"), [("left", "the beginning of their text"), ("right", "their last objects")])
def test_side_that_is_cut_off_is_named(side, told):
    line = report_long_samples([("a", 9), ("b", 8)], 1, 7, side)
    assert told in line and f"truncation_strategy={side}" in line and "2 of 1 sample has more" in line
    assert "the longest 9 (a)" in line
