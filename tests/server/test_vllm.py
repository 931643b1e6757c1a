"""vLLM serves what a run has trained: the answers are those of this process, and a failure costs its image alone."""

import json
import os
import re
import shutil
import signal
import threading
import time
import urllib.error
import urllib.request

import numpy as np
import pytest
from PIL import Image
from vllm_server import ROOT, Vllm

from coord_codec import RunError

pytestmark = pytest.mark.server
IMAGES = 40


def predict(model, folder, *words, **options):
    """Answer images by the command's function, and return the records by image."""
    from coord_detect.detection.command import answer_request
    from coord_detect.served.request import Request
    from coord_trainer.config.run_config import load_run_config

    sources = options.pop("sources", None) or (str(folder.parent / "images"),)
    config = load_run_config(None, list(words), trains=False)
    answered = answer_request(Request(model, sources, folder, draw=False, **options), config)
    return {record["image"]: record for record in answered.records}


@pytest.fixture(scope="module")
def place(trained, tmp_path_factory):
    """A folder with the images, below which answers are written."""
    folder = tmp_path_factory.mktemp("served")
    (folder / "images").mkdir()
    for image in sorted((trained / "data").glob("**/heldout/**/*.png"))[:IMAGES]:
        shutil.copy(image, folder / "images")
    return folder


@pytest.fixture(scope="module")
def checkpoint(trained):
    from coord_detect.model.checkpoints import locate_model

    return locate_model(trained)


@pytest.fixture(scope="module")
def here(checkpoint, place):
    """The answers of this process."""
    return predict(checkpoint, place / "here")


@pytest.fixture(scope="module")
def server(vllm_environment, checkpoint, place):
    with Vllm(vllm_environment, checkpoint, place / "server.log") as started:
        yield started


@pytest.fixture
def ask(checkpoint, place, server, request):
    """Ask the server, into a folder of the test's own."""

    def answers(*words, **options):
        options = {"endpoints": (server.url,), "served_name": "boxes"} | options
        return predict(checkpoint, place / request.node.name, *words, **options)

    return answers


def texts(records):
    return {name: record["text"] for name, record in records.items()}


def test_answers_and_scores_are_those_of_this_process(here, ask):
    there = ask()
    assert texts(there) == texts(here) and len(there) == IMAGES
    mine, served = (
        {
            name: np.concatenate([side[image][name] for image in here])
            for name in ("coord_logprobs", "coord_expected", "coord_spread", "coord_mass", "desc_logprobs")
        }
        for side in (here, there)
    )
    for name in ("coord_logprobs", "desc_logprobs"):
        assert np.abs(mine[name] - served[name]).max() < 1e-4
    # A server lists 20 tokens: of their bins, with a share m of the probability, the mean is within s * sqrt(1 / m - 1)
    # of that of all, which look less sure.
    share = np.minimum(served["coord_mass"] / mine["coord_mass"], 1)
    bound = mine["coord_spread"] * np.sqrt(1 / share - 1)
    assert (np.abs(mine["coord_expected"] - served["coord_expected"]) <= bound + 1e-4).all()
    objects = [pair for name in here for pair in zip(here[name]["objects"], there[name]["objects"], strict=True)]
    assert np.median([served["score"] - mine["score"] for mine, served in objects]) > 0


@pytest.mark.parametrize("concurrency", [1, 4, 16, 40])
def test_answers_do_not_depend_on_the_number_of_requests_at_once(concurrency, here, ask):
    assert texts(ask(concurrency=concurrency)) == texts(here)


def test_grammar_mends_ill_formed_answers_and_changes_no_other(here, ask):
    formed = re.compile(r"(<obj_start>[^<]+(<\|coord_\d+\|>){4}<obj_end>)*")
    mine, served = texts(here), texts(ask(grammar="vllm"))
    assert all(map(formed.fullmatch, served.values()))
    assert {name for name in mine if mine[name] != served[name]} == {n for n in mine if not formed.fullmatch(mine[n])}


def test_labels_are_obeyed(ask):
    labels = ("red square", "blue circle")
    records = ask(grammar="vllm", labels=labels)
    found = {item["desc"] for record in records.values() for item in record["objects"]}
    assert found and found <= set(labels)


def test_views_are_fused_as_in_this_process(ask, checkpoint, place):
    mine = predict(checkpoint, place / "here-mirror", "evaluation.views=[mirror]")
    served = ask("evaluation.views=[mirror]")
    far, alone = [], 0
    for name, record in mine.items():
        for item in record["objects"]:
            same = [other["bbox_xyxy"] for other in served[name]["objects"] if other["desc"] == item["desc"]]
            alone += not same
            far += [min(np.abs(np.subtract(box, item["bbox_xyxy"])).max() for box in same)] if same else []
    # A server lists 20 bins of each coordinate, of which scores and boxes are computed.
    assert alone <= len(far) / 20 and np.median(far) < 2


def test_image_that_the_server_refuses_costs_itself_alone(ask, tmp_path):
    Image.new("RGB", (2, 900)).save(tmp_path / "long.png")
    Image.new("RGB", (96, 96)).save(tmp_path / "plain.png")
    records = ask(sources=(str(tmp_path),))
    assert records["plain.png"]["finish_reason"] == "stop"
    assert records["long.png"]["finish_reason"] == "error" and "answered 400" in records["long.png"]["error"]


def test_wrong_name_of_the_model_is_named(ask):
    with pytest.raises(RunError, match=r"answered 404.*model.*`circles`"):
        ask("evaluation.limit=2", served_name="circles")


def guide_code(title):
    """Return the Python of a titled block of the guide."""
    text = (ROOT / "docs" / "guides" / "faster.md").read_text()
    return re.search(rf'^```python title="{title}[^\n]*\n(.*?)^```$', text, re.DOTALL | re.MULTILINE)[1]


def test_drafts_of_the_guide_change_no_answer_and_save_passes(vllm_environment, checkpoint, place, here):
    (place / "form_drafts.py").write_text(guide_code("form_drafts.py"))
    sources = [*ROOT.glob("packages/*/src"), ROOT / "apps" / "trainer" / "src", place]
    settings = {"method": "custom_class", "model": "form_drafts.VllmProposer", "num_speculative_tokens": 4}
    words = ("--speculative-config", json.dumps(settings))
    path = os.pathsep.join(map(str, sources))
    with Vllm(vllm_environment, checkpoint, place / "drafts.log", *words, PYTHONPATH=path) as drafting:
        options = {"endpoints": (drafting.url,), "served_name": "boxes", "concurrency": 1}
        there = predict(checkpoint, place / "drafted", **options)
        accepted = drafting.metric("vllm:spec_decode_num_accepted_tokens_total")
    boxes = sum(len(record["objects"]) for record in there.values())
    assert texts(there) == texts(here)
    assert accepted > boxes  # the end of each box, and the start of the next


def test_lora_is_served_beside_a_base_with_its_rows_and_an_adapter_with_offsets_is_refused(
    vllm_environment, checkpoint, place, adapter
):
    from coord_exporter import merge

    merge(checkpoint, adapter, place / "merged", quiet=True, verify=False)
    merge(checkpoint, adapter, place / "rows", keep_lora=place / "lora", quiet=True)
    mine = predict(place / "merged", place / "here-merged")
    words = ("--enable-lora", "--max-lora-rank", "32", "--lora-modules", f"task={place / 'lora'}")
    words += ("--enable-tower-connector-lora",)  # else LoRA on the vision tower is left out
    allowed = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"}
    with Vllm(vllm_environment, place / "rows", place / "lora.log", *words, **allowed) as serving:
        served = predict(place / "lora", place / "there", endpoints=(serving.url,), served_name="task")
        unmerged = {"lora_name": "whole", "lora_path": str(adapter)}
        request = urllib.request.Request(
            f"{serving.url}/load_lora_adapter", json.dumps(unmerged).encode(), {"Content-Type": "application/json"}
        )
        with pytest.raises(urllib.error.HTTPError) as refusal:
            urllib.request.urlopen(request, timeout=60)
    assert texts(served) == texts(mine)
    assert "modules_to_save" in refusal.value.read().decode()


def test_server_that_dies_and_comes_back_costs_the_images_of_the_meantime(ask, here, server, place, request):
    """The last test of this server: it is killed while it answers, and another call completes the folder."""
    file = place / request.node.name / "predictions.jsonl"

    def kill():
        while not file.is_file() or file.read_text().count("\n") < 3:
            time.sleep(0.02)
        server.stop(signal.SIGKILL)

    killer = threading.Thread(target=kill)
    killer.start()
    first = ask("evaluation.limit=12", concurrency=2)
    killer.join()
    lost = [record for record in first.values() if record["finish_reason"] == "error"]
    assert 0 < len(lost) < 12 and all("Connection" in record["error"] for record in lost)
    server.start()
    answered = texts(ask("evaluation.limit=12", concurrency=2))
    assert len(answered) == 12 and answered.items() <= texts(here).items()
