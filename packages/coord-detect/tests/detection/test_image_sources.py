"""What the words of the command line name."""

import json

import pytest
from fakes import make_images

from coord_codec import InputError
from coord_detect.detection.arguments import read_settings, split_words
from coord_detect.detection.image_sources import find_sources


def names(*words, **options):
    return [source.name for source in find_sources(list(map(str, words)), **options).images]


def test_names_of_images_end_in_any_case(tmp_path):
    make_images(tmp_path, a=(2, 2), b=(2, 2), c=(2, 2))
    (tmp_path / "a.png").rename(tmp_path / "IMG_1.JPG")
    (tmp_path / "b.png").rename(tmp_path / "b.Jpeg")
    found = find_sources([str(tmp_path)])
    assert sorted(source.name for source in found.images) == ["IMG_1.JPG", "b.Jpeg", "c.png"] and not found.notes


def test_folders_files_and_patterns(tmp_path):
    make_images(tmp_path / "a" / "deep", x=(2, 2))
    make_images(tmp_path / "b", y=(2, 2), z=(2, 2))
    (tmp_path / "a" / "notes.txt").write_text("words")
    make_images(tmp_path / "a" / ".cache", hidden=(2, 2))
    found = find_sources([str(tmp_path / "a"), str(tmp_path / "b")])
    assert [source.name for source in found.images] == ["a/deep/x.png", "b/y.png", "b/z.png"]
    assert found.notes == ("1 file that is no image was skipped (1 .txt)",)
    assert names(tmp_path / "b" / "*.png") == ["y.png", "z.png"]
    assert names(tmp_path / "b" / "y.png", tmp_path / "b") == ["y.png", "z.png"]  # named twice, answered once


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["nowhere"], "nowhere: no such file or folder"),
        (["*.nothing"], "no file matches it as a pattern"),
        (["https://x.org/a.jpg"], "a URL, and nothing is downloaded here"),
        (["empty"], "no image there"),
        (["a.json", "photos"], "one file of annotations alone"),
    ],
)
def test_words_that_name_nothing_are_told(tmp_path, monkeypatch, words, message):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=message):
        find_sources(words)


def test_annotations_name_their_images_and_are_the_truth(tmp_path):
    make_images(tmp_path, a=(10, 10))
    record = {"image": "a.png", "width": 10, "height": 10, "image_id": 7, "objects": []}
    (tmp_path / "i.jsonl").write_text(json.dumps(record) + "\n")
    found = find_sources([str(tmp_path / "i.jsonl")])
    assert [(source.name, source.image_id) for source in found.images] == [("a.png", 7)]
    assert found.truth is not None
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "a.png").rename(tmp_path / "elsewhere" / "a.png")
    with pytest.raises(InputError, match=r"none of its 1 image is below .*, a\.png first; .*--images"):
        find_sources([str(tmp_path / "i.jsonl")])
    assert find_sources([str(tmp_path / "i.jsonl")], tmp_path / "elsewhere").images[0].path.is_file()
    make_images(tmp_path, a=(10, 10))  # the folder that is named counts before the one beside the annotations
    assert find_sources([str(tmp_path / "i.jsonl")], tmp_path / "elsewhere").root == tmp_path / "elsewhere"
    with pytest.raises(InputError, match="--images"):
        find_sources([str(tmp_path / "a.png")], images=tmp_path)


def test_words_are_model_sources_and_settings(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert split_words(["m", "a", "data.prompt=x"], False) == (
        (tmp_path / "m").relative_to(tmp_path),
        ("a",),
        ["data.prompt=x"],
    )
    assert split_words(["a", "b"], True) == (None, ("a", "b"), [])
    (tmp_path / "m").mkdir()
    (tmp_path / "m" / "config.json").write_text("{}")
    model, sources, _ = split_words(["m", "b"], True)
    assert (str(model), sources) == ("m", ("b",))
    (tmp_path / "k=v").mkdir()  # a place may hold an equals sign
    assert split_words(["m", "k=v"], False)[1] == ("k=v",)


def test_limit_takes_the_first_images_and_their_truth(tmp_path):
    make_images(tmp_path, a=(10, 10), b=(10, 10), c=(10, 10))
    lines = [{"image": f"{n}.png", "width": 10, "height": 10, "image_id": n, "objects": []} for n in "abc"]
    (tmp_path / "i.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    every = find_sources([str(tmp_path / "i.jsonl")])
    found = every.first(2)
    assert [source.name for source in found.images] == ["a.png", "b.png"]
    assert [instance.image for instance in found.truth.instances] == ["a.png", "b.png"]
    assert found.notes[-1] == "the first 2 of 3 images are answered; evaluation.limit is 2"
    assert every.first(None) is every and every.first(3) is every
    assert find_sources([str(tmp_path / "a.png"), str(tmp_path / "c.png")]).first(1).truth is None


@pytest.mark.parametrize(
    "word", ["data.strict=true", "data.augment.flip=1", "training.max_steps=1", "evaluation.ap_steps=1"]
)
def test_setting_that_would_change_no_answer_is_refused(word):
    with pytest.raises(InputError, match=f"{word.partition('=')[0]}: it has no effect"):
        read_settings(None, ["data.prompt=x", word])
    words = ["data.prompt=x", "evaluation.limit=3", "custom.coord_tokens.enabled=false", "training.system=x"]
    for endpoint in (False, True):
        read_settings(None, words, endpoint)


@pytest.mark.parametrize(
    "word", ["model.dtype=bfloat16", "model.attention=eager", "evaluation.batch_size=1", "evaluation.speed=exact"]
)
def test_setting_of_this_process_is_refused_for_a_server(word):
    read_settings(None, [word])
    with pytest.raises(InputError, match=f"{word.partition('=')[0]}: it has no effect on a server"):
        read_settings(None, [word], endpoint=True)


def test_pattern_with_an_equals_sign_is_no_setting(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_images(tmp_path / "day=1", a=(2, 2))
    words = ["m", "day=*/*.png", str(tmp_path / "day=1" / "*"), "photos/x=1*.jpg", "typo=3", "evaluation.limit=3"]
    assert split_words(words, False)[1:] == (tuple(words[1:5]), words[5:])
    assert split_words([f"data.prompt={'a' * 300}"], False)[2]  # too long for the name of a file
    with pytest.raises(InputError, match=r"typo=3: no such file .*settings are written section\.key=value"):
        find_sources(["typo=3"])


def test_names_never_lead_upwards(tmp_path, monkeypatch):
    make_images(tmp_path / "photos", a=(2, 2))
    make_images(tmp_path / "here", b=(2, 2))
    monkeypatch.chdir(tmp_path / "here")
    assert names("../photos", ".") == ["here/b.png", "photos/a.png"]
    assert names("../photos/a.png", "../here/../photos/a.png") == ["a.png"]
    assert names("../p*/a.png") == ["photos/a.png"]


def test_drawn_images_of_an_earlier_call_are_no_sources(tmp_path):
    make_images(tmp_path / "photos", a=(2, 2))
    make_images(tmp_path / "photos" / "found" / "drawn", a=(2, 2))
    session = tmp_path / "photos" / "found" / "session.json"
    session.write_text('{"my": "tool"}')  # a user's own file of that name
    assert names(tmp_path / "photos") == ["a.png", "found/drawn/a.png"]
    session.write_text('{"model": "m", "prompt": "p"}')
    for word in (tmp_path / "photos", tmp_path / "photos" / "**" / "*.*g"):
        found = find_sources([str(word)])
        assert [source.name for source in found.images] == ["a.png"]
        assert "found: the output of an earlier call" in found.notes[0]
    with pytest.raises(InputError, match="images that an earlier call has drawn are not answered"):
        find_sources([str(tmp_path / "photos" / "found")])


def test_names_stay_when_images_are_added_elsewhere_below_the_folder(tmp_path):
    make_images(tmp_path / "photos" / "a", x=(2, 2))
    words = (tmp_path / "photos", tmp_path / "photos" / "**" / "*.png")
    assert [names(word) for word in words] == [["a/x.png"]] * 2
    make_images(tmp_path / "photos", y=(2, 2))
    assert [names(word) for word in words] == [["a/x.png", "y.png"]] * 2


def test_links_to_folders_are_told(tmp_path):
    make_images(tmp_path / "photos", a=(2, 2))
    make_images(tmp_path / "more", b=(2, 2))
    (tmp_path / "photos" / "more").symlink_to(tmp_path / "more")
    (tmp_path / "photos" / "gone.png").symlink_to(tmp_path / "nothing.png")
    found = find_sources([str(tmp_path / "photos")])
    assert [source.name for source in found.images] == ["a.png"] and "2 links to folders or to nothing" in found.notes[
        0
    ]


def test_file_that_is_no_image_is_refused_and_an_image_of_another_name_is_taken(tmp_path):
    make_images(tmp_path, a=(2, 2))
    (tmp_path / "a.png").rename(tmp_path / "upload_3f2a")
    (tmp_path / "report.html").write_text("<p>")
    assert names(tmp_path / "upload_3f2a") == ["upload_3f2a"]
    with pytest.raises(InputError, match=r"report\.html: expected an image or annotations: .*`prepare` converts"):
        names(tmp_path / "report.html")
    with pytest.raises(InputError, match="--images: expected a folder"):
        names(tmp_path / "i.jsonl", images=tmp_path / "nowhere")


def test_strict_makes_a_bad_record_an_error(tmp_path):
    make_images(tmp_path, a=(10, 10))
    record = {"image": "a.png", "width": 10, "height": 10, "objects": [{"desc": "cat", "bbox": [0, 0, 0, 1]}]}
    (tmp_path / "i.jsonl").write_text(json.dumps(record) + "\n")
    assert len(find_sources([str(tmp_path / "i.jsonl")]).images) == 1
    with pytest.raises(InputError, match="--strict is on"):
        find_sources([str(tmp_path / "i.jsonl")], strict=True)
    with pytest.raises(InputError, match="--strict is about the records of annotations"):
        find_sources([str(tmp_path / "a.png")], strict=True)
