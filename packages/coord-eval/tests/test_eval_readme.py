"""The example of the README runs and prints what it says."""

import re
from pathlib import Path


def test_the_example_prints_what_its_comments_say(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    readme = (Path(__file__).parents[1] / "README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    exec(compile(code, "README.md", "exec"), {})
    expected = re.findall(r"print\(.*\)  # (.*)", code)
    assert capsys.readouterr().out.splitlines() == expected
    assert (tmp_path / "report" / "report.html").exists()


def test_every_public_name_is_listed():
    import coord_eval
    import coord_eval.html

    readme = (Path(__file__).parents[1] / "README.md").read_text()
    section = readme.split("## Public names")[1].split("##")[0]
    names, pieces = section.split("`coord_eval.html`")
    assert set(re.findall(r"`(\w+)`", names)) == set(coord_eval.__all__)
    assert set(re.findall(r"`(\w+)`", pieces)) == set(coord_eval.html.__all__)
