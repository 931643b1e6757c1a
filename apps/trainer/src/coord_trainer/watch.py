"""`watch`: the page of a run while it trains, with its curves, the time left, and the boxes of a fixed few images."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import yaml

from coord_codec import InputError
from coord_codec.files import read_json, read_json_lines, write_text
from coord_codec.html import Drawn, figure, image_svg, label_key, label_slots, page, safe, section, tiles
from coord_codec.images import ImageError, data_url, decode_image
from coord_trainer.console import say
from coord_trainer.watched import WATCHED

PAGE = "watch.html"
_STEPS_SHOWN = 5
_SIDE = 360


def watch(folder: Path, port: int, every: float, once: bool) -> Path:
    """Write the page of a run again whenever its log has grown, and serve it, until the run has ended.

    Args:
        folder: the run folder
        port: port on this machine; 0 for any free one
        every: seconds between two looks at the log
        once: write the page once and serve nothing

    Raises:
        InputError: there is no run, or nothing can listen on the port
    """
    if not (folder / "manifest.json").is_file():
        raise InputError(f"{folder}: expected a run folder with manifest.json; give run.dir of a run that has started")
    target = folder / PAGE
    write_text(target, run_page(folder, None if once else every))
    say(f"page: {target}")
    if once:
        return target
    try:
        server = ThreadingHTTPServer(("127.0.0.1", port), partial(_Handler, target))
    except (OSError, OverflowError) as error:
        raise InputError(f"--port {port}: {error}; choose another") from None
    Thread(target=server.serve_forever, daemon=True).start()
    say(f"http://127.0.0.1:{server.server_port} (Ctrl-C ends it)")
    try:
        while read_json(folder / "manifest.json").get("status") == "running":
            time.sleep(every)
            write_text(target, run_page(folder, every))
    finally:
        write_text(target, run_page(folder, None))
        server.shutdown()
        server.server_close()
    report = folder / "report.html"
    say(f"the run has ended; {f'its report: {report}' if report.is_file() else f'its page: {target}'}")
    return target


def run_page(folder: Path, refresh: float | None = None) -> str:
    """Return the page of a run folder as it is now.

    Args:
        folder: the run folder
        refresh: seconds after which a browser loads it anew; None for never
    """
    from coord_trainer.answers.run_sections import run_sections

    manifest = read_json(folder / "manifest.json")
    config = yaml.safe_load((folder / "config.yaml").read_text(encoding="utf-8"))
    metrics = folder / "metrics.jsonl"
    lines = [line for _, line in read_json_lines(metrics)] if metrics.is_file() else []
    training = config.get("training", {})
    total = total_steps(lines, training)
    step = max((line["step"] for line in lines), default=0)
    status = str(manifest.get("status"))
    left = seconds_left(lines, total, manifest, metrics) if status == "running" else None
    last = {key: value for line in lines for key, value in line.items()}
    cells = [
        ("Step", f"{step:,}", f"of about {total:,}" if total else ""),
        ("Time left", "" if left is None else _duration(left), status),
        ("Loss", _number(last.get("train_total_loss")), f"evaluation {_number(last.get('eval_total_loss'))}"),
        ("AP during training", _number(last.get("eval_AP")), "set evaluation.ap_steps to measure it"),
    ]
    body = tiles(cells if "eval_AP" not in last else [*cells[:3], (*cells[3][:2], "of the last measurement")])
    if images := _watched(folder / WATCHED):
        body += section("The same images over time", images)
    body += "".join(section(part.title, part.html) for part in run_sections(folder))
    facts = {"started": manifest.get("started", ""), "losses": manifest.get("loss_terms", "")}
    facts |= {"status": status, "written": time.strftime("%H:%M:%S")}
    return page(f"{folder.resolve().name}: step {step:,}", body, facts=facts, refresh=refresh and max(int(refresh), 1))


def total_steps(lines: Sequence[Mapping[str, Any]], training: Mapping[str, Any]) -> int | None:
    """Return the number of steps of a run: `max_steps`, or as many as its epochs take; None before the first line."""
    if (steps := training.get("max_steps") or -1) > 0:
        return int(steps)
    last = next((line for line in reversed(lines) if line.get("epoch")), None)
    if last is None:
        return None
    return round(last["step"] / last["epoch"] * float(training.get("num_train_epochs", 3)))


def seconds_left(
    lines: Sequence[Mapping[str, Any]], total: int | None, manifest: Mapping[str, Any], metrics: Path
) -> float | None:
    """Return the time for the remaining steps at the mean speed since the start; None before the first line."""
    step = max((line["step"] for line in lines), default=0)
    if not total or not step:
        return None
    started = datetime.fromisoformat(manifest["started"].replace("Z", "+00:00")).timestamp()
    return (metrics.stat().st_mtime - started) / step * max(total - step, 0)


def _watched(path: Path) -> str:
    """Return the images in rows, the first and the last few measurements side by side; empty without any."""
    if not path.is_file():
        return ""
    by_step = {line["step"]: line["images"] for _, line in read_json_lines(path)}
    steps = sorted(by_step)
    steps = steps if len(steps) <= _STEPS_SHOWN else [steps[0], *steps[1 - _STEPS_SHOWN :]]
    labels = [box[0] for images in by_step.values() for image in images for box in (*image["truth"], *image["boxes"])]
    slots = label_slots(labels)
    rows = []
    for place in range(min(map(len, by_step.values()), default=0)):
        cells = [figure(_drawn(by_step[step][place], slots), f"step {step:,}") for step in steps]
        rows.append(f'<div class="row steps">{"".join(cells)}</div>')
    return f"<p>Dashed: ground truth; solid: the answer.</p>{label_key(slots, folded=False)}{''.join(rows)}"


def _drawn(image: Mapping[str, Any], slots: Mapping[str, int]) -> str:
    try:
        picture = decode_image(Path(image["file"]), at_most=(_SIDE, _SIDE))
    except (ImageError, OSError) as error:
        return f"<p>{safe(image['image'])}: {safe(error)}</p>"
    size = picture.size
    picture.thumbnail((_SIDE, _SIDE))
    truth = [Drawn(label, box, "truth", slot=slots[label], named=False) for label, *box in image["truth"]]
    found = [Drawn(label, box, slot=slots[label], named=False) for label, *box in image["boxes"]]
    return image_svg(image["image"], size, [*truth, *found], data_url(picture))


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"


def _duration(seconds: float) -> str:
    minutes = round(seconds / 60)
    return f"{minutes // 60} h {minutes % 60} min" if minutes >= 60 else f"{minutes} min"


class _Handler(BaseHTTPRequestHandler):
    """Serves the one page."""

    def __init__(self, target: Path, *args: Any) -> None:
        self._target = target
        super().__init__(*args)

    def do_GET(self) -> None:
        """Send the page, whatever the path."""
        content = self._target.read_bytes()
        self.send_response(200)
        self.send_header("Content-Type", "text/html; charset=utf-8")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: Any) -> None:
        """Print nothing for a request."""
