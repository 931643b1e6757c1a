"""Answers of a server: probabilities as in process, and every way in which a server can fail."""

import base64
import io
import json
import math
import re
import threading
from concurrent.futures import ThreadPoolExecutor

import pytest
from fakes import TEXT, chat_reply, served
from PIL import Image

from coord_codec import MARKERS, coord_tokens, int_to_token
from coord_detect.served.answer_tokens import AnswerTokens
from coord_detect.served.endpoint import EndpointEngine, _complaint, _moments, _refusal
from coord_detect.served.sent_image import SentSides
from coord_detect.settings.record import Settings

IMAGE = Image.new("RGB", (4, 4))


def engine(url, **options):
    options = {"markers": "qwen", "max_new_tokens": 9, "retries": 2, "timeout": 5} | options
    return EndpointEngine((url,), "m", "find all", "be brief", **options)


def token_steps():
    """The tokens of TEXT; each coordinate has half of the probability, its two neighbours a quarter together."""
    steps = [("<|object_ref_start|>", -0.1, {}), ("cat", -0.5, {}), ("<|object_ref_end|>", -0.1, {})]
    steps.append(("<|box_start|>", -0.1, {}))
    for k in (250, 500, 750):
        near = {int_to_token(k - 10): math.log(0.125), int_to_token(k + 10): math.log(0.125), "cat": math.log(0.25)}
        steps.append((int_to_token(k), math.log(0.5), near))
    return [*steps, (int_to_token(875), -0.2, {}), ("<|box_end|>", -0.1, {}), ("<|im_end|>", -0.1, {})]


def test_log_probabilities_become_the_figures_of_a_local_answer():
    with served(lambda number, request: (200, chat_reply(TEXT, token_steps()))) as (url, requests):
        (record,) = engine(url).answer([IMAGE])
    assert (record["text"], record["finish_reason"]) == (TEXT, "stop")
    assert record["coord_logprobs"] == pytest.approx([math.log(0.5)] * 3 + [-0.2])
    assert record["coord_expected"] == pytest.approx([0.25, 0.5, 0.75, 0.875])
    # Of the coordinates' 3/4, one third lies 10 bins away.
    assert record["coord_spread"] == pytest.approx([math.sqrt(0.01**2 / 3)] * 3 + [0.0])
    assert record["coord_quantiles"][:2] == [[0.24, *[0.25] * 5, 0.26], [0.49, *[0.5] * 5, 0.51]]
    assert record["coord_quantiles"][3] == [0.875] * 7
    assert record["coord_mass"] == pytest.approx([0.75] * 3 + [math.exp(-0.2)])
    assert (record["desc_logprobs"], record["desc_token_counts"]) == ([-0.5], [1])
    (request,) = requests
    assert request["skip_special_tokens"] is False and request["logprobs"] is True and request["temperature"] == 0
    assert [message["role"] for message in request["messages"]] == ["system", "user"]
    assert request["messages"][1]["content"][0]["image_url"]["url"].startswith("data:image/png;base64,")


def test_log_probabilities_of_a_server_that_lists_no_others_are_the_tokens_own():
    body = chat_reply(TEXT, token_steps())
    for step in body["choices"][0]["logprobs"]["content"]:
        step["top_logprobs"] = None
    with served(lambda number, request: (200, body)) as (url, requests):
        (record,) = engine(url).answer([IMAGE])
    assert record["coord_logprobs"] == pytest.approx([math.log(0.5)] * 3 + [-0.2])
    assert record["coord_expected"] == pytest.approx([0.25, 0.5, 0.75, 0.875]) and len(requests) == 1


@pytest.mark.parametrize("generated", [False, True])
def test_empty_thought_that_a_server_repeats_from_the_prompt_is_no_part_of_the_answer(generated):
    thought = "<think>\n\n</think>\n\n"
    steps = [(thought, -0.1, {}), *token_steps()] if generated else token_steps()
    with served(lambda number, request: (200, chat_reply(thought + TEXT, steps))) as (url, _):
        (asked,) = engine(url, chat_template_kwargs={"enable_thinking": False}).answer([IMAGE])
        (unasked,) = engine(url).answer([IMAGE])
    assert asked["text"] == (thought + TEXT if generated else TEXT)
    assert asked["coord_logprobs"] == pytest.approx([math.log(0.5)] * 3 + [-0.2])
    assert unasked["text"] == thought + TEXT


@pytest.mark.parametrize("steps", [None, [("other words", -1.0, {})], [(TEXT, -math.inf, {})], [(TEXT, math.nan, {})]])
def test_without_usable_log_probabilities_the_text_remains(steps):
    with served(lambda number, request: (200, chat_reply(TEXT, steps, "length"))) as (url, _):
        (record,) = engine(url).answer([IMAGE])
    assert record == {"text": TEXT, "finish_reason": "length"}


@pytest.mark.slow
def test_refused_requests_are_tried_again():
    def reply(number, request):
        return {1: (429, {"error": {"message": "busy"}}), 2: (500, b"oops")}.get(number, (200, chat_reply(TEXT)))

    with served(reply) as (url, requests):
        (record,) = engine(url).answer([IMAGE])
    assert record["text"] == TEXT and len(requests) == 3


@pytest.mark.parametrize(
    ("reply", "message"),
    [
        ((400, {"error": {"message": "no such model"}}), "answered 400: no such model$"),
        ((400, {"detail": "no such model"}), "answered 400: no such model$"),
        ((404, {"error": {"message": "no such model"}}), "answered 404: no such model$"),
        ((404, {"error": {"message": "not found"}}), "answered 404: not found; .*/v1$"),
        ((500, b"broken"), "/v1 answered 500"),
        ((None, None), "/v1: no answer: .*Connection"),
        ((200, {"unexpected": True}), "no choices"),
        ((200, b"{ cut"), "the reply is no JSON"),
        ((200, chat_reply(None)), "no text"),
        ((200, chat_reply(None, None, "tool_calls")), "finish_reason 'tool_calls'"),
        ((200, chat_reply([{"type": "text"}])), "no text"),
        ((200, chat_reply(TEXT[:40], None, "abort")), "aborted the answer .finish_reason 'abort'"),
        ((200, chat_reply(TEXT[:40], None, "content_filter")), "aborted the answer .finish_reason 'content_filter'"),
    ],
)
def test_failure_is_that_of_its_image_alone(reply, message):
    with served(lambda number, request: reply) as (url, _):
        (record,) = engine(url, retries=0).answer([IMAGE])
    assert record["finish_reason"] == "error" and re.search(message, record["error"])


@pytest.mark.parametrize("steps", [[("cat", None, {})], [(TEXT, -0.1, "a dictionary")], ["words"]])
def test_log_probabilities_of_another_form_are_left_out(steps):
    def reply(number, request):
        body = chat_reply(TEXT)
        odd = [
            step if isinstance(step, str) else {"token": step[0], "logprob": step[1], "bytes": None} for step in steps
        ]
        if not isinstance(steps[0], str):
            odd[0]["top_logprobs"] = {"a": -1.0} if steps[0][2] else []
        body["choices"][0]["logprobs"] = {"content": odd, "refusal": None}
        return 200, body

    with served(reply) as (url, _):
        (record,) = engine(url, retries=0).answer([IMAGE])
    assert record == {"text": TEXT, "finish_reason": "stop"}


def test_empty_text_is_an_answer_of_no_objects():
    with served(lambda number, request: (200, chat_reply("", []))) as (url, _):
        (record,) = engine(url).answer([IMAGE])
    assert (record["text"], record["coord_logprobs"], record["coord_quantiles"]) == ("", [], [])


def test_servers_share_images_by_load_and_a_lost_one_costs_none(capsys):
    lost, held = threading.Event(), threading.Event()

    def slow(number, request):
        held.wait(5)  # the others are answered by the second server
        return (200, chat_reply(TEXT)) if not lost.is_set() else (None, None)

    def fast(number, request):
        if number == 5:
            lost.set()
            held.set()
        return 200, chat_reply(TEXT)

    with served(slow) as (first, to_first), served(fast) as (second, to_second):
        both = EndpointEngine((first, second), "m", "find all", None, "qwen", 9, concurrency=2, timeout=9)
        with ThreadPoolExecutor(2) as pool:
            records = [record for answers in pool.map(both.answer, [[IMAGE]] * 8) for record in answers]
        assert [record["text"] for record in records] == [TEXT] * 8
        # One request was held by the first server and lost with it, and no other was sent there.
        assert len(to_first) == 1 and len(to_second) == 8
        both.report()
    assert f"{first} did not answer 1 request, which the other servers took over" in capsys.readouterr().out


def test_request_that_every_server_would_refuse_is_sent_to_one():
    with served(lambda number, request: (404, {"error": {"message": "no model m"}})) as (first, to_first):
        both = EndpointEngine((first, "http://127.0.0.1:9/v1"), "m", "find all", None, "qwen", 9)
        (record,) = both.answer([IMAGE])
    assert len(to_first) == 1 and "no model m" in record["error"] and "the path" not in record["error"]


REFUSALS = {
    "OpenAI's form": lambda names: {"error": {"message": f"unknown fields: {', '.join(names)}"}},
    "transformers serve": lambda names: {"detail": f"Unexpected fields in the request: {set(names)}"},
    "a list of FastAPI's": lambda names: {"detail": [{"loc": ["body", name], "msg": "extra"} for name in names]},
}


@pytest.mark.parametrize("form", REFUSALS)
@pytest.mark.parametrize("unknown", [("skip_special_tokens", "spaces_between_special_tokens"), ("logprobs",)])
def test_server_that_refuses_optional_fields_is_asked_without_them_and_told_once(form, unknown, capsys):
    def reply(number, request):
        named = [name for name in unknown if name in request]
        return (422, REFUSALS[form](named)) if named else (200, chat_reply(TEXT))

    with served(reply) as (url, requests):
        asked = engine(url)
        records = [record for _ in range(3) for record in asked.answer([IMAGE])]
    assert [record["text"] for record in records] == [TEXT] * 3
    assert len(requests) == 4 and "top_logprobs" in requests[0]
    assert not set(unknown) & set(requests[-1]) and ("top_logprobs" in requests[-1]) == ("logprobs" not in unknown)
    assert capsys.readouterr().out.count("it is asked without") == 1


@pytest.mark.parametrize(
    "body",
    [
        {"detail": [{"loc": ["body", "stream"], "msg": "missing", "input": {"logprobs": True}}]},
        {"detail": "chat_template_kwargs is unknown"},
    ],
)
def test_fields_that_answers_depend_on_or_that_are_only_repeated_stay(body):
    with served(lambda number, request: (422, body)) as (url, requests):
        (record,) = engine(url, chat_template_kwargs={"enable_thinking": False}).answer([IMAGE])
    assert len(requests) == 1 and "answered 422" in record["error"] and "input" not in record["error"]


def _tokenizer(*names):
    """A tokenizer of whole words, with the tokens of answers and an end of turn."""
    from tokenizers import AddedToken, Tokenizer, decoders, models

    words = Tokenizer(models.BPE({name: k for k, name in enumerate(names)}, []))
    words.decoder = decoders.Fuse()
    words.add_special_tokens([AddedToken(t) for t in ("<|im_end|>", *MARKERS["qwen"].tokens, *coord_tokens())])
    return words


@pytest.mark.parametrize("lists_ids", [True, False])
@pytest.mark.parametrize("with_tokenizer", [True, False])
@pytest.mark.parametrize("writes_markers", [True, False])
def test_tokens_written_as_nothing_are_put_back_by_their_ids_or_the_switch_is_named(
    lists_ids, with_tokenizer, writes_markers, capsys
):
    words = _tokenizer("cat", "dog")
    written = {"cat", *(MARKERS["qwen"].tokens if writes_markers else ())}

    def reply(number, request):
        body = chat_reply("".join(token for token, *_ in token_steps() if token in written), token_steps())
        for step in body["choices"][0]["logprobs"]["content"]:
            for item in (*step["top_logprobs"], step):
                if lists_ids:
                    item["id"] = words.token_to_id(item["token"])
                item["token"] = item["token"] if item["token"] in written else ""
        return 200, body

    with served(reply) as (url, _):
        asked = engine(url, tokens=AnswerTokens(words if with_tokenizer else None))
        _, record = asked.answer([IMAGE, IMAGE])
    said = capsys.readouterr().out
    if lists_ids and with_tokenizer:
        assert record["text"] == TEXT and "--special" not in said
        assert record["coord_logprobs"] == pytest.approx([math.log(0.5)] * 3 + [-0.2])
        assert record["coord_spread"] == pytest.approx([math.sqrt(0.01**2 / 3)] * 3 + [0.0])
    else:
        assert "coord" not in record["text"] and said.count("--special") == 1


def test_ids_of_another_tokenizer_put_nothing_back(capsys):
    def reply(number, request):
        body = chat_reply("cat", [("", -0.1, {}), ("cat", -0.1, {}), ("", -0.1, {})])
        for step, number in zip(body["choices"][0]["logprobs"]["content"], (7, 1, 2), strict=True):
            step["id"] = number
        return 200, body

    with served(reply) as (url, _):
        (record,) = engine(url, tokens=AnswerTokens(_tokenizer("cat", "dog"))).answer([IMAGE])
    assert record["text"] == "cat" and "--special" in capsys.readouterr().out


LIMITS = {"shortest_edge": 1024, "longest_edge": 9216}
QWEN = {"image_processor_type": "Qwen2VLImageProcessor", "patch_size": 16, "merge_size": 2, "size": LIMITS}

GEMMA = {"image_processor_type": "Gemma3ImageProcessorFast", "size": {"height": 48, "width": 64}, "resample": 2}


@pytest.mark.parametrize(
    ("files", "words", "size", "expected"),
    [
        ({"processor_config.json": {"image_processor": QWEN}}, {}, (108, 84), (96, 96)),
        ({"preprocessor_config.json": QWEN}, {}, (192, 192), (96, 96)),
        ({"preprocessor_config.json": QWEN}, {"max_pixels": 36864}, (192, 192), (192, 192)),
        ({"preprocessor_config.json": QWEN}, {}, (8, 8), (32, 32)),
        ({"preprocessor_config.json": QWEN}, {"min_pixels": 4096}, (8, 8), (64, 64)),
        ({"preprocessor_config.json": QWEN}, {}, (402, 2), (402, 2)),  # the processor refuses it
        ({"preprocessor_config.json": QWEN | {"do_resize": False}}, {}, (108, 84), (108, 84)),
        ({"preprocessor_config.json": {"image_processor_type": "SiglipImageProcessor"}}, {}, (108, 84), (108, 84)),
        ({"preprocessor_config.json": GEMMA}, {}, (108, 84), (64, 48)),
        ({"preprocessor_config.json": GEMMA | {"do_pan_and_scan": True}}, {}, (108, 84), (108, 84)),
        ({}, {}, (108, 84), (108, 84)),
    ],
)
def test_images_are_sent_at_the_sides_of_the_models_own_processor(tmp_path, files, words, size, expected):
    for name, content in files.items():
        (tmp_path / name).write_text(json.dumps(content))
    data = Settings().data.model_copy(update=words)
    with served(lambda number, request: (200, chat_reply(TEXT))) as (url, requests):
        engine(url, sides=SentSides.of_folder(tmp_path, data)).answer([Image.new("RGB", size)])
    sent = requests[0]["messages"][1]["content"][0]["image_url"]["url"].partition(",")[2]
    assert Image.open(io.BytesIO(base64.b64decode(sent))).size == expected


def test_sides_and_pixels_are_those_of_transformers():
    processors = pytest.importorskip("transformers")
    numpy = pytest.importorskip("numpy")
    processor = processors.Qwen2VLImageProcessor(patch_size=16, merge_size=2, size=LIMITS)
    sides, random = SentSides(32, **{"min_pixels": 1024, "max_pixels": 9216}), numpy.random.default_rng(0)
    for size in [(108, 84), (84, 108), (700, 40), (20, 20), (333, 777), (96, 96)]:
        image = Image.fromarray(random.integers(0, 256, (*size[::-1], 3), dtype=numpy.uint8))
        usual, resized = (processor(images=one, return_tensors="np") for one in (image, sides.resized(image)))
        assert usual["image_grid_thw"].tolist() == resized["image_grid_thw"].tolist()
        differences = numpy.abs(usual["pixel_values"] - resized["pixel_values"])
        grey = 1 / 255 / min(processor.image_std)
        assert differences.max() < 2.5 * grey and (differences > grey / 2).mean() < 0.01


@pytest.mark.parametrize(
    ("data", "told"),
    [
        ({"error": {"message": "too long"}}, "too long"),
        ({"error": {"message": 3}}, "3"),
        ({"detail": "Not Found"}, "Not Found"),
        (
            {"detail": [{"loc": ["body", 0], "msg": "bad", "input": "all of it"}, {"loc": [], "msg": "b"}]},
            "body.0: bad; : b",
        ),
        ({"message": "no"}, '{"message": "no"}'),
        (["no"], '["no"]'),
        (b"<html>", "<html>"),
        (b"\xff", "\ufffd"),
    ],
)
def test_complaint_of_a_server_is_what_it_says_without_the_request(data, told):
    assert _complaint(data if isinstance(data, bytes) else json.dumps(data).encode()) == told


@pytest.mark.parametrize(
    ("status", "message", "hints"),
    [(404, "Not Found", True), (404, "no such model", False), (400, "Not Found", False), (500, "x", False)],
)
def test_missing_path_of_an_api_is_named_where_the_server_does_not_know_it(status, message, hints):
    told = _refusal(status, json.dumps({"detail": message}).encode())
    assert told.startswith(f" answered {status}: {message}") and told.endswith("/v1") is hints


@pytest.mark.parametrize(
    ("others", "expected"),
    [(None, (0.5, 0.0, [0.5] * 7, 0.25)), ([], (0.5, 0.0, [0.5] * 7, 0.25)),
     ({500: 0.25, 250: 0.25}, (0.375, 0.125, [0.25] * 4 + [0.5] * 3, 0.5)),
     ({500: 0.9, 250: 0.75}, (0.3125, 0.1082531, [0.25] * 5 + [0.5] * 2, 1.0)),
     ({750: 0.95}, (0.6979167, 0.1015291, [0.5] * 1 + [0.75] * 6, 1.0))],
)  # fmt: skip
def test_moments_of_a_coordinate_are_those_of_the_bins_that_are_listed(others, expected):
    """The token's own probability stands once, also where the server lists it again, and others do not count."""
    step = {"token": "<|coord_500|>", "logprob": math.log(0.25), "top_logprobs": others}
    if others:
        listed = [{"token": f"<|coord_{n}|>", "logprob": math.log(p)} for n, p in others.items()]
        step["top_logprobs"] = [*listed, {"token": "cat", "logprob": math.log(0.2)}]
    mean, spread, quantiles, mass = _moments(step)
    assert (mean, spread, mass) == pytest.approx((expected[0], expected[1], expected[3]), abs=1e-6)
    assert quantiles == expected[2]
    assert _moments(step | {"logprob": -math.inf, "top_logprobs": None}) == (0.5, 0.0, [0.5] * 7, 0.0)
