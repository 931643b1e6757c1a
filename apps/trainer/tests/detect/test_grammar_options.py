"""`grammar`, and `predict --grammar`, `--label` and `--only`: what is printed and sent, and what cannot be asked."""

import json
import subprocess
import sys

import pytest
from fakes import chat_reply, served
from PIL import Image

from coord_detect.grammar.served import AnswerForm, answer_pattern, lark_grammar

ANSWER = "<obj_start>cat<|coord_1|><|coord_2|><|coord_3|><|coord_4|><obj_end>"


@pytest.fixture
def image(tmp_path):
    (tmp_path / "photos").mkdir()
    Image.new("RGB", (64, 48)).save(tmp_path / "photos" / "a.png")
    return tmp_path / "photos"


def coordinate_ids(model):
    from transformers import AutoTokenizer

    return AutoTokenizer.from_pretrained(model).convert_tokens_to_ids(["<|coord_0|>", "<|coord_999|>", "<obj_start>"])


@pytest.mark.slow
def test_grammar_is_printed_in_the_ids_of_the_models_tokenizer(run, tiny_model):
    first, last, start = coordinate_ids(tiny_model)
    code, _, lark = run("grammar", tiny_model, "--only", "cat", "data.markers=obj", "data.max_objects=7")
    assert code == 0 and "start: object{0,7}" in lark and f"<[{start}]> name x1::0x0" in lark
    assert 'name: "cat"\n' in lark and f"<[{first + 1}-{last}]>" in lark
    code, _, ebnf = run("grammar", tiny_model, "--form", "ebnf", "data.markers=obj")
    assert code == 0 and f"Token({start})" in ebnf and f"side ::= Token({first}, {first + 1}, " in ebnf


@pytest.mark.slow
@pytest.mark.parametrize(("server", "place"), [("vllm", ("structured_outputs", "grammar")), ("sglang", ("ebnf",))])
def test_server_is_sent_the_grammar_in_its_own_spelling(run, tiny_model, image, tmp_path, server, place):
    words = ["predict", tiny_model, image, "--out", tmp_path / "found", "--no-draw", "data.markers=obj"]
    with served(lambda number, request: (200, chat_reply(ANSWER))) as (url, requests):
        code, told, _ = run(*words, "--endpoint", url, "--model", "m", "--grammar", server, "--label", "cat")
    assert code == 0, told
    (sent,) = requests
    for key in place:
        sent = sent[key]
    assert '"cat"' not in sent and str(coordinate_ids(tiny_model)[0]) in sent
    (record,) = map(json.loads, (tmp_path / "found" / "predictions.jsonl").read_text().splitlines())
    assert record["objects"][0]["desc"] == "cat"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answer", "outside"), [(ANSWER, False), ("A cat.", True), (ANSWER.replace("cat", "dog"), False)]
)
def test_answers_that_the_sent_grammar_does_not_allow_are_counted(run, tiny_model, image, tmp_path, answer, outside):
    words = ["predict", tiny_model, image, "--out", tmp_path / "found", "--no-draw", "data.markers=obj"]
    with served(lambda number, request: (200, chat_reply(answer))) as (url, _):
        code, told, out = run(*words, "--endpoint", url, "--model", "m", "--grammar", "vllm", "--label", "cat")
    assert code == 0, told
    assert ("1 of 1 answer" in out and "--grammar vllm" in out) is outside


@pytest.mark.slow
@pytest.mark.parametrize("style", ["markers", "json"])
@pytest.mark.parametrize("names", [None, ("cat", "red dog")])
def test_pattern_of_answers_is_what_the_grammar_takes(tiny_model, style, names):
    """Against the grammar itself, as llguidance reads it."""
    llguidance, hf = pytest.importorskip("llguidance"), pytest.importorskip("llguidance.hf")
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    form = AnswerForm.for_tokenizer(tokenizer, "obj", style=style, names=names, max_objects=2)
    grammar = llguidance.grammar_from("lark", lark_grammar(form))
    tokens, pattern = hf.from_tokenizer(tokenizer, n_vocab=len(tokenizer)), answer_pattern(form, "obj")
    sides = [f"<|coord_{k}|>" for k in (1, 2, 3, 4)]
    cat, dog, bird = (
        f'{{"desc": "{name}", "bbox": [{", ".join(sides)}]}}'
        if style == "json"
        else f"<obj_start>{name}{''.join(sides)}<obj_end>"
        for name in ("cat", "red dog", "bird")
    )
    texts = ["", cat, dog, cat + dog, cat * 3, bird, "cat", cat + "!", cat.replace("<|coord_4|>", "")]
    if style == "json":
        texts = ["[" + text.replace("}{", "}, {") + "]" for text in texts] + [cat]
    for text in texts:
        matcher = llguidance.LLMatcher(tokens, grammar)
        taken = matcher.consume_tokens(tokenizer(text)["input_ids"]) and matcher.is_accepting()
        assert (pattern.fullmatch(text) is not None) == taken, text


@pytest.mark.slow
def test_tokenizer_of_an_export_is_read_without_torch(tiny_model):
    code = (
        "import sys; from pathlib import Path; from coord_detect.grammar.served import read_tokenizer; "
        "read_tokenizer(Path(sys.argv[1])); assert not {'torch', 'transformers'} & set(sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, tiny_model], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
@pytest.mark.parametrize("geometry", ["box", "polygon"])
def test_server_gets_room_as_this_process_has(run, tiny_model, image, tmp_path, geometry):
    """By the tokenizer of MODEL: an outline takes up to 64 coordinates, of which 12 tokens beside a name hold none."""
    words = ["--out", tmp_path / "found", "--no-draw", "data.markers=obj", f"data.geometry={geometry}"]
    label = "a name of many words that a tokenizer takes apart"
    with served(lambda number, request: (200, chat_reply(ANSWER))) as (url, requests):
        asked = [tiny_model, image, *words, "--endpoint", url, "--model", "m", "--grammar", "vllm", "--label", label]
        assert run("predict", *asked)[0] == 0
        assert run("predict", image, *words, "--force", "--endpoint", url, "--model", "m")[0] == 0
    coordinates = 4 if geometry == "box" else 64
    assert requests[0]["max_tokens"] == 30 * (2 + 12 + coordinates) + 16  # a label that is kept limits no answer
    assert requests[1]["max_tokens"] >= 30 * (2 + 12 + coordinates)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["{model}", "--grammar", "vllm"], "evaluation.decoding.grammar=markers decodes under one"),
        (["{model}", "--endpoint", "http://127.0.0.1:9/v1", "--model", "m", "--only", "cat"], "only: a server states"),
        (["{model}", "--only", "cat", "data.style=json"], "answers in JSON do not contain the probability"),
        (["{model}", "--only", "cat", "custom.coord_tokens.enabled=false"], "answers in plain numbers"),
        (["--endpoint", "http://127.0.0.1:9/v1", "--model", "m", "--grammar", "vllm"], "give its folder as MODEL"),
    ],
)
def test_what_cannot_be_asked_is_one_line(run, tiny_model, image, tmp_path, words, told):
    first, *rest = [word.format(model=tiny_model) for word in words]
    words = [first, image, *rest] if not first.startswith("--") else [image, first, *rest]
    code, error, _ = run("predict", *words, "--out", tmp_path / "found")
    assert code == 2 and told in error and "Traceback" not in error


@pytest.fixture
def plain(tmp_path):
    """The folder of a model whose tokenizer has neither coordinate tokens nor markers."""
    from tokenizers import Tokenizer, models
    from transformers import PreTrainedTokenizerFast

    folder = tmp_path / "plain"
    words = Tokenizer(models.WordLevel({"a": 0, "<unk>": 1}, unk_token="<unk>"))
    PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>").save_pretrained(folder)
    (folder / "config.json").write_text(json.dumps({"model_type": "qwen3_vl"}))
    return folder


@pytest.mark.parametrize(
    ("which", "setting", "told"),
    [
        ("plain", "data.markers=obj", "the tokenizer lacks"),
        ("model", "custom.coord_tokens.enabled=false", "answers in plain numbers"),
    ],
)
def test_model_that_no_grammar_fits_is_named_in_one_line(run, tiny_model, plain, image, tmp_path, which, setting, told):
    folder = plain if which == "plain" else tiny_model
    asked = ["predict", folder, image, "--out", tmp_path / "found", "--endpoint", "http://127.0.0.1:9/v1"]
    for words in (["grammar", folder, setting], [*asked, "--model", "m", "--grammar", "vllm", setting]):
        code, error, _ = run(*words)
        assert code == 2 and f"{folder}: " in error and told in error and "Traceback" not in error


@pytest.mark.slow
def test_only_holds_the_model_in_this_process(run, tiny_model, image, tmp_path):
    words = ["data.markers=obj", "evaluation.max_new_tokens=16", "--no-draw", "--out", tmp_path / "found"]
    assert run("predict", tiny_model, image, *words, "--only", "red circle", "--only", "blue square")[0] == 0
    (record,) = map(json.loads, (tmp_path / "found" / "predictions.jsonl").read_text().splitlines())
    assert {o["desc"] for o in record["objects"]} <= {"red circle", "blue square"} and record["objects"]
    code, error, _ = run("predict", tiny_model, image, *words)
    assert code == 2 and "only" in error  # other settings than those of the answers in that folder


@pytest.mark.slow
def test_same_model_by_another_path_goes_on_and_other_weights_do_not(run, tiny_model, image, tmp_path):
    import os
    import shutil

    copied = tmp_path / "copied"
    shutil.copytree(tiny_model, copied)
    words = ["data.markers=obj", "evaluation.max_new_tokens=16", "--no-draw", "--out", "found"]
    assert run("predict", copied, image, *words)[0] == 0
    code, _, told = run("predict", "copied", image, *words)
    assert code == 0 and "(0 now)" in told
    (weights,) = copied.glob("*.safetensors")
    os.utime(weights, (1, 1))  # as when it was trained on
    code, error, _ = run("predict", copied, image, *words)
    assert code == 2 and "were made with weights" in error
