"""Settings of answers: what counts over what, what each default is, which borders and contradictions are refused."""

from types import SimpleNamespace

import pytest

from coord_codec import InputError
from coord_detect.settings.base import Probability, Section, Seed
from coord_detect.settings.decoding import QUANTILE_LEVELS, Decoding, decoding_named
from coord_detect.settings.load import changed_settings, check_settings, flat_settings, load_settings
from coord_detect.settings.record import Settings
from coord_detect.settings.rules import Rule


def loaded(*words, file=None, base=None):
    return load_settings(Settings, file, words, base)[0]


def refused(*words, **files):
    with pytest.raises(InputError) as caught:
        loaded(*words, **files)
    return str(caught.value)


DEFAULTS = {
    "model.dtype": "float32",
    "model.attention": "sdpa",
    "data.prompt": "Describe all objects in the image with their bounding boxes.",
    "data.max_objects": 30,
    "data.order": "top_left",
    "data.markers": "qwen",
    "data.style": "markers",
    "data.max_vertices": 32,
    "data.min_pixels": None,
    "data.max_pixels": None,
    "data.geometry": "box",
    "data.class_prompt": "Describe all objects of these classes with their bounding boxes: {classes}",
    "custom.coord_tokens.enabled": True,
    "evaluation.limit": None,
    "evaluation.batch_size": 50,
    "evaluation.max_new_tokens": None,
    "evaluation.decoding": [{"grammar": "none", "boxes": "tokens"}],
    "evaluation.views": [],
    "evaluation.device": None,
    "evaluation.speed": "plain",
    "plugins": [],
}


def test_settings_that_nobody_states_have_their_documented_values():
    assert flat_settings(Settings().model_dump(mode="json")) == DEFAULTS


ACCEPTED = (
    "data.max_objects=1 data.max_vertices=3 data.max_vertices=128 data.min_pixels=1 data.max_pixels=1 "
    "evaluation.limit=1 evaluation.batch_size=1 evaluation.max_new_tokens=1 evaluation.device=cpu "
    "evaluation.device=cuda evaluation.device=cuda:12 model.dtype=bfloat16 model.dtype=float16 "
    "model.attention=eager data.order=given model.attention=flash_attention_2 model.attention=flash_attention_3 "
    "data.order=random data.order=size evaluation.speed=exact data.style=json data.markers=obj "
    "data.geometry=keypoints evaluation.views=mirror,scale:2"
).split()
REFUSED = (
    "data.max_objects=0 data.max_vertices=2 data.max_vertices=129 data.min_pixels=0 data.max_pixels=0 "
    "evaluation.limit=0 evaluation.batch_size=0 evaluation.max_new_tokens=0 evaluation.device=gpu "
    "evaluation.device=cuda: evaluation.device=xcpu evaluation.device=cpus evaluation.device=cuda:1x "
    "model.dtype=float64 model.attention=flash data.order=left evaluation.speed=fast data.style=xml "
    "data.markers=none data.geometry=cube data.max_objects=true data.max_objects=false data.max_pixels=no "
    "evaluation.views=sideways evaluation.decoding=none evaluation.decoding=[] evaluation.decoding=[{},{}] "
    "evaluation.decoding.boxes=best data.max_objects=2.5 data.prompt=3 training.epochs=1 training=3"
).split()


@pytest.mark.parametrize("word", ACCEPTED + REFUSED)
def test_value_is_taken_within_its_border_and_refused_beyond_by_its_name(word):
    name = word.partition("=")[0]
    if word in ACCEPTED:
        loaded(word)
    else:
        assert name.removesuffix(".boxes") in refused(word)


@pytest.mark.parametrize(
    ("prompt", "taken"),
    [("Find all.", True), (" ", False), ("<image>Find", False), ("a <|im_end|>", False), ("<|vision_start|>", False),
     ("<|image_pad|>", False), ("a <|box_start|> b", True), ("\ud83d", False)],
)  # fmt: skip
def test_prompts_are_plain_words_and_the_one_of_classes_has_their_place(prompt, taken):
    for field, value in (("prompt", prompt), ("class_prompt", prompt + "{classes}")):
        if taken or (field, prompt) == ("class_prompt", " "):
            assert getattr(Settings(data={field: value}).data, field) == value
        else:
            with pytest.raises(ValueError, match=r"prompt|Unicode|surrogate"):
                Settings(data={field: value})
    with pytest.raises(ValueError, match=r"prompt with \{classes\}"):
        Settings(data={"class_prompt": "Find all."})


def test_limits_of_pixels_are_in_order_and_may_be_equal():
    assert "data.min_pixels is 5 but data.max_pixels is 4" in refused("data.min_pixels=5", "data.max_pixels=4")
    assert loaded("data.min_pixels=4", "data.max_pixels=4").data.min_pixels == 4


PLAIN, GRAMMAR, BEST = {}, {"grammar": "markers"}, {"boxes": "best_iou"}
NUMBERS = {"coord_tokens": {"enabled": False}}


@pytest.mark.parametrize(
    ("sections", "told"),
    [
        ({"evaluation": {"decoding": GRAMMAR}, "custom": NUMBERS}, "evaluation.decoding has markers but custom."),
        ({"evaluation": {"decoding": BEST}, "custom": NUMBERS}, "require coordinate tokens"),
        (
            {"evaluation": {"decoding": [PLAIN, GRAMMAR]}, "custom": NUMBERS},
            "has none, markers but custom.coord_tokens.",
        ),
        ({"evaluation": {"decoding": PLAIN}, "custom": NUMBERS}, None),
        ({"evaluation": {"decoding": BEST}, "data": {"geometry": "polygon"}}, "but data.geometry is polygon: boxes"),
        ({"evaluation": {"decoding": [PLAIN, BEST]}, "data": {"geometry": "point"}}, "are for boxes alone"),
        ({"evaluation": {"decoding": GRAMMAR}, "data": {"geometry": "polygon"}}, None),
        ({"evaluation": {"decoding": BEST}}, None),
        ({"evaluation": {"speed": "exact"}, "custom": NUMBERS}, "evaluation.speed is exact but custom.coord_tokens."),
        (
            {"evaluation": {"speed": "exact"}, "model": {"attention": "flash_attention_3"}},
            "but model.attention is flash",
        ),
        ({"evaluation": {"speed": "exact"}, "model": {"attention": "eager"}}, None),
        ({"model": {"attention": "flash_attention_2"}}, None),
        ({"evaluation": {"decoding": [BEST, BEST]}}, "each once, found none-best_iou, none-best_iou"),
        ({"evaluation": {"decoding": [BEST, GRAMMAR]}}, None),
    ],
)
def test_contradictions_are_told_also_of_a_second_decoding(sections, told):
    if told is None:
        check_settings(Settings, sections, "test")
    else:
        with pytest.raises(InputError) as caught:
            check_settings(Settings, sections, "test")
        assert told in str(caught.value)


@pytest.mark.parametrize(
    ("value", "told"),
    [(None, "is not set"), (True, "is true"), (False, "is false"), (0, "is 0"), ("", "is "), ((1, 2), "is [1, 2]"),
     ((), "is []"), ({"a": 1}, "is a mapping"), ((Decoding(), Decoding(boxes="median")), "has none, none-median"),
     ((Settings(),), "has 1 entries")],
)  # fmt: skip
def test_value_in_a_contradiction_is_shown_in_words(value, told):
    rule = Rule(lambda c: True, ("a.b",), "because")
    assert rule.message(SimpleNamespace(a={"b": value})) == f"a.b {told}: because"
    assert rule.message(SimpleNamespace(a={})) == "a.b is not set: because"


def test_decodings_have_names_that_are_read_back():
    every = [Decoding(grammar=g, boxes=b) for g in ("none", "markers", "names")
             for b in ("tokens", "median", "best_iou", "expectation")]  # fmt: skip
    names = [decoding.name for decoding in every]
    assert names[:6] == ["none", "none-median", "none-best_iou", "none-expectation", "markers", "markers-median"]
    assert [decoding_named(name) for name in names] == every and len({d.meaning for d in every}) == len(every)
    assert [name for name, d in zip(names, every, strict=True) if not d.needs_tokens] == ["none"]
    assert {d.generation.name for d in every} == {"none", "markers", "names"}
    assert {d.boxes: d.score_boxes for d in every} == {
        "tokens": "tokens", "median": "median", "best_iou": "best_iou", "expectation": "expected"
    }  # fmt: skip
    assert [decoding_named(name) for name in ("", "free", "none-best", "names-filled")] == [None] * 4
    assert [round(level * 14) for level in QUANTILE_LEVELS] == [1, 3, 5, 7, 9, 11, 13]


def test_later_counts_over_earlier_and_a_parent_beside_the_file_over_one_in_the_working_folder(tmp_path, monkeypatch):
    (tmp_path / "here").mkdir()
    (tmp_path / "there").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for place, limit in (("here", 1), ("there", 2)):
        (tmp_path / place / "parent.yaml").write_text(f"data: {{max_objects: {limit}, max_vertices: 5}}\n")
    (tmp_path / "here" / "alone.yaml").write_text("data: {max_objects: 9}\n")
    child = tmp_path / "there" / "child.yaml"
    child.write_text("extends: parent.yaml\ndata: {max_vertices: 6}\n")
    data = loaded(file=child).data
    assert (data.max_objects, data.max_vertices) == (2, 6)
    base = tmp_path / "base.yaml"
    base.write_text("data: {max_objects: 7, max_vertices: 7, max_pixels: 7}\n")
    data = loaded(file=child, base=base).data
    assert (data.max_objects, data.max_vertices, data.max_pixels) == (2, 6, 7)
    assert loaded("data.max_objects=3", "data.max_objects=4", file=child).data.max_objects == 4
    child.write_text("extends: alone.yaml\n")
    assert loaded(file=child).data.max_objects == 9


def test_files_that_extend_each_other_are_refused_by_the_way_around(tmp_path):
    for name, parent in (("a", "b"), ("b", "c"), ("c", "a")):
        (tmp_path / f"{name}.yaml").write_text(f"extends: {parent}.yaml\n")
    told = refused(file=tmp_path / "a.yaml")
    assert told.startswith(f"{tmp_path / 'a.yaml'}: extends itself, through ") and told.count(" -> ") == 2


@pytest.mark.parametrize(
    ("content", "told"),
    [
        ("extends: [a.yaml]", "extends: expected one file name, found ['a.yaml']"),
        ("- 1", "expected a mapping of sections, found a list"),
        ("data: {max_objects: 1, max_objects: 2}", "not YAML: "),
        ("data: {max_object: 1}", "data.max_object: unknown key; did you mean max_objects?"),
        ("evaluaton: {}", "evaluaton: unknown key; did you mean evaluation?"),
        ("extends: gone.yaml", "no such config file"),
    ],
)
def test_file_that_is_no_configuration_is_told(tmp_path, content, told):
    (tmp_path / "a.yaml").write_text(content)
    assert told in refused(file=tmp_path / "a.yaml")


def test_file_that_is_not_there_is_told_with_the_nearest(tmp_path):
    (tmp_path / "config.yaml").write_text("")
    assert f"no such config file; did you mean {tmp_path / 'config.yaml'}?" in refused(file=tmp_path / "confg.yaml")
    assert "expected a config file, found a folder" in refused(file=tmp_path)


def test_configuration_of_a_run_is_taken_without_what_answers_do_not_depend_on(tmp_path, capsys):
    file = tmp_path / "config.yaml"
    file.write_text("run: {dir: a}\ndata: {strict: true, prompt: p}\ntraining: {system: s, epochs: 3, lr: 1}\nzoo: 1\n")
    found = loaded(file=file)
    assert (found.data.prompt, found.training) == ("p", {"system": "s"})
    told = capsys.readouterr().out
    assert (
        f"{file}: 5 settings that answers do not depend on passed over: run, data.strict, training.epochs, ..." in told
    )
    file.write_text("run: {dir: a}\ndata: {strict: true}\nzoo: 1\n")
    loaded(file=file)
    assert "passed over: run, data.strict, zoo\n" in capsys.readouterr().out


def test_one_decoding_and_a_list_of_them_replace_each_other(tmp_path):
    file = tmp_path / "a.yaml"
    file.write_text("evaluation: {decoding: [{grammar: markers}, {boxes: median}]}\n")
    names = [d.name for d in loaded("evaluation.decoding.boxes=best_iou", file=file).evaluation.decoding]
    assert names == ["none-best_iou"]
    file.write_text("evaluation: {decoding: {grammar: markers}}\n")
    names = [d.name for d in loaded("evaluation.decoding.boxes=best_iou", file=file).evaluation.decoding]
    assert names == ["markers-best_iou"]


def test_setting_that_is_left_open_is_not_set_and_named(tmp_path):
    (tmp_path / "a.yaml").write_text("data:\n  prompt: p\n  max_pixels: ???\nevaluation:\n  limit: ???\n")
    found, left = load_settings(Settings, tmp_path / "a.yaml", ["evaluation.limit=2"])
    assert (found.data.max_pixels, found.evaluation.limit, left) == (None, 2, ["data.max_pixels"])


@pytest.mark.parametrize(
    ("word", "told"),
    [
        ("data.prompt", "expected section.key=value"),
        ("-data.prompt=x", "expected section.key=value"),
        ("=x", "expected section.key=value"),
        ("data.prompt=", "data.prompt=null unsets it"),
        ("data.prompt=a #1", "what follows # is a comment"),
        ("data.prompt=[1", "data.prompt=[1: "),
    ],
)
def test_word_that_is_no_setting_is_told_with_what_it_should_be(word, told):
    assert refused(word).startswith(f"{word}: ") and told in refused(word)
    assert loaded("data.prompt='a #1'").data.prompt == "a #1"


def test_fault_is_told_of_the_file_the_command_line_or_both(tmp_path):
    (tmp_path / "a.yaml").write_text("data: {max_objects: 0}\n")
    assert refused(file=tmp_path / "a.yaml").startswith(f"{tmp_path / 'a.yaml'}: data.max_objects: ")
    assert refused("data.max_objects=0").startswith("command line: data.max_objects: ")
    both = refused("data.max_vertices=1", file=tmp_path / "a.yaml")
    assert both.startswith(f"{tmp_path / 'a.yaml'} and command line: ")
    assert [
        line.rpartition(": ")[0].rpartition(" ")[2] or line for line in both.splitlines()
    ] and "max_vertices" in both
    assert both.index("max_objects") < both.index("max_vertices")


@pytest.mark.parametrize(
    ("word", "told"),
    [
        (
            "data.prompt=yes",
            "expected text, found True, which is how YAML reads yes and on (a boolean); put the word in",
        ),
        ("data.prompt=off", "found False, which is how YAML reads no and off"),
        ("data.prompt=3.5", "found 3.5, which YAML has read as a number; put the word in quotes"),
        ("data.max_objects=yes", "expected a number, found True, which is how YAML reads yes and on (a boolean)"),
        ("plugins=a.py", "plugins: expected a list, found 'a.py'; write [a.py]"),
        ("data=a.jsonl", "found 'a.jsonl'"),
        ("evaluation.prompt=x", "evaluation.prompt: unknown key; it belongs at data.prompt"),
        ("data.max_object=3", "data.max_object: unknown key; did you mean max_objects?"),
        ("model.zzz=3", "model.zzz: unknown key; known here: dtype, attention"),
        ("evaluation.decoding.zzz=3", "zzz: unknown key; known here: grammar, boxes"),
    ],
)
def test_wrong_setting_is_explained(word, told):
    assert told in refused(word)


def test_truth_value_is_no_number_and_a_number_is_no_truth_value():
    class Part(Section):
        share: Probability = 0.5
        seed: Seed = 0
        on: bool = False

    for name in ("share", "seed"):
        for value in (True, False):
            with pytest.raises(ValueError, match="expected a number"):
                Part(**{name: value})
        assert [getattr(Part(**{name: value}), name) for value in (0, 1)] == [0, 1]
    assert [Part(on=value).on for value in (True, False)] == [True, False]
    for wrong in ({"share": 1.5}, {"seed": 2**32}, {"seed": -1}, {"share": float("nan")}, {"other": 1}):
        with pytest.raises(ValueError, match=next(iter(wrong))):
            Part(**wrong)


def test_settings_that_differ_are_both_told_with_none_for_a_missing_one():
    one, other = {"a": {"b": 1, "c": 2, "d": None}, "e": 3}, {"a": {"b": 1, "c": 4}, "f": 0}
    assert changed_settings(one, other) == {"a.c": (2, 4), "e": (3, None), "f": (None, 0)}
    assert changed_settings(one, one) == {}


def test_plugin_is_imported_before_what_it_registers_is_named(tmp_path):
    plugin = tmp_path / "rows.py"
    plugin.write_text(
        "from coord_detect.views.mirror import Mirror\nfrom coord_detect.views.registry import register_view\n\n\n"
        "class Again(Mirror):\n    name = example = 'again'\n    about = 'the mirror image'\n\n\nregister_view(Again)\n"
    )
    from coord_detect.views.registry import VIEWS

    try:
        found = Settings(plugins=[str(plugin)], evaluation={"views": "again"})
        assert found.evaluation.views == ("again",)
    finally:
        VIEWS.remove("again")
