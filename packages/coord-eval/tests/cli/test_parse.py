"""The `parse` command: which files it reads as one answer and which as many."""

import io
import json
import os
import subprocess
import sys

import pytest

from coord_eval.cli.main import main


def test_parse_shows_objects_and_drops(files, tmp_path, capsys):
    path = tmp_path / "answer.txt"
    path.write_text('```json\n[{"bbox_2d": [12, 34, 56, 78], "label": "cat"}, {"bbox_2d": [1, 2], "label": "x"}]')
    assert main(["parse", str(path)]) == 0
    printed = capsys.readouterr().out
    assert "0.012 0.034 0.056 0.078  'cat'  complete" in printed
    assert "dropped: wrong_arity" in printed
    assert "divided by 1000, 1000 (assumed)" in printed
    assert main(["parse", str(path), "--json", "--scale", "100"]) == 0
    (item,) = json.loads(capsys.readouterr().out)["objects"]
    assert (item["desc"], item["box"], item["scale"]) == ("cat", [0.12, 0.34, 0.56, 0.78], [100, 100])
    assert main(["parse", files[3], "--json"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 20


def test_parse_refuses_a_results_list_and_reads_an_answer_of_the_same_keys(results, tmp_path, capsys):
    assert main(["parse", "results.json"]) == 2
    told = capsys.readouterr().err
    assert "results.json: expected the text of an answer, found a COCO results list" in told
    assert told.count("\n") == 1
    (tmp_path / "answer.json").write_text('[{"bbox": [100, 200, 300, 400], "label": "cat"}]')
    assert main(["parse", "answer.json"]) == 0
    assert "0.100 0.200 0.300 0.400" in capsys.readouterr().out


@pytest.mark.slow
@pytest.mark.parametrize("name", ["\\ud800.jpg", "\u732b.jpg"], ids=["surrogate", "another script"])
def test_text_without_a_form_in_the_encoding_of_the_terminal_is_escaped(tmp_path, name):
    (tmp_path / "p.jsonl").write_text(f'{{"image": "{name}", "text": "[]"}}\n', encoding="utf-8")
    command = [sys.executable, "-m", "coord_eval", "parse", str(tmp_path / "p.jsonl")]
    environment = os.environ | {"PYTHONIOENCODING": "ascii"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(r"\ud800.jpg: empty" if "ud800" in name else r"\u732b.jpg: empty")


def test_parse_of_standard_input(monkeypatch, capsys):
    def lines(data):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8"))
        code = main(["parse", "-"])
        return code, *capsys.readouterr()

    code, out, _ = lines(b'\xef\xbb\xbf[{"bbox_2d": [10, 20, 30, 40], "label": "cat"}]')
    assert code == 0 and "0.010 0.020 0.030 0.040  'cat'  complete" in out
    assert lines(b"cat \xff") == (2, "", "error: standard input: not UTF-8 text (byte 4)\n")


@pytest.mark.parametrize("name", ["p.jsonl", "P.JSONL", "p.json"])
def test_parse_reads_the_predictions_that_score_reads(tmp_path, capsys, name):
    """Those of images without an id are named by the image, as `predict` writes them."""
    records = [
        {"image_id": 7, "text": "cat [100, 200, 300, 400]"},
        {"image_id": None, "image": "b.jpg", "finish_reason": "error"},
    ]
    if name == "p.json":
        records[1]["text"] = None
    lines = [json.dumps(record) for record in records]
    (tmp_path / name).write_text(f"[{','.join(lines)}]" if name == "p.json" else "\n".join(lines))
    assert main(["parse", str(tmp_path / name)]) == 0
    assert [line for line in capsys.readouterr().out.splitlines() if line[0] != " "] == [
        "7: ok, format lists, 1 object",
        "b.jpg: empty, format none, 0 objects",
    ]


def test_byte_order_mark_of_standard_input_is_no_part_of_the_answer(monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO("\ufeffcat: [1, 2, 30, 40]"))
    assert main(["parse", "-", "--json"]) == 0
    (line,) = capsys.readouterr().out.splitlines()
    assert [(item["desc"], item["span"]) for item in json.loads(line)["objects"]] == [("cat", [0, 19])]
