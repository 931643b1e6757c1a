"""Web page of `demo`: shows the objects that the model finds in an image."""

from __future__ import annotations

import os
import socket
from pathlib import PurePath
from typing import Any, Literal

from coord_codec import InputError
from coord_codec.counts import counted
from coord_codec.pages import safe
from coord_detect.answers.answering_model import AnsweringModel
from coord_detect.console import say
from coord_detect.detection.detector import Detector
from coord_detect.views.registry import VIEWS


def build_demo(detector: Detector) -> Any:
    """Return the page as `gradio.Blocks`, which have to be installed; it loads nothing from other hosts."""
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # read when gradio is imported
    try:
        import gradio as gr
    except ImportError:
        raise InputError("gradio is not installed: pip install 'coord-detect[demo]'") from None

    def find(
        image: Any, prompt: str, labels: str, views: list[str] | None = None, least: float | None = None, only: str = ""
    ) -> tuple[Any, list[list[Any]], str]:
        if image is None:
            raise _error("Drop an image first.")
        try:
            asked = detector.asking((prompt or "").strip() or None, _listed(labels), _listed(only))
            detections = asked.predict(image, views=views, min_score=least)
        except InputError as error:
            raise _error(str(error)) from None
        rows = [[item.label, round(item.score, 3), *(round(side, 1) for side in item.box)] for item in detections]
        notes = asked.model.unknown_names()
        if others := detections.dropped.get("other_label"):
            notes.append(f"{counted(others, 'box', 'boxes')} with other labels left out")
        for note in notes:
            gr.Info(note)
        return detections.drawn(1600), rows, detections.text

    def _listed(words: str) -> list[str]:
        return [word for word in map(str.strip, (words or "").split(",")) if word]

    def _error(message: str) -> Exception:
        return gr.Error(message, print_exception=False)  # shown on the page only, since it is the visitor's mistake

    model = detector.model
    name = PurePath(model.engine.name).name  # a checkpoint's folders are the server's own business
    offered = list(dict.fromkeys([*model.config.evaluation.views, *(row.example for row in VIEWS.values())]))
    with gr.Blocks(title=f"coordexp: {name}", analytics_enabled=False) as page:
        gr.HTML(f"<h1>What does {safe(name)} find?</h1><p>{_facts(model)}</p>")
        with gr.Row():
            with gr.Column():
                image = gr.Image(type="pil", image_mode=None, label="Image")  # unconverted: `open_image` makes it RGB
                prompt = gr.Textbox(model.config.data.prompt, label="Prompt")
                labels = gr.Textbox("", label="Labels, separated by commas", info="Boxes with others are left out.")
                only = gr.Textbox(
                    "", label="Only, separated by commas", info="Every object is called by one of these names."
                )
                views = gr.CheckboxGroup(
                    offered,
                    value=list(model.config.evaluation.views),
                    label="Further views",
                    info="Each is another answer, fused with that of the image.",
                )
                least = gr.Slider(0, 1, model.threshold.value, label="Least score", info="0 keeps all boxes.")
                button = gr.Button("Find", variant="primary")
            with gr.Column():
                buttons: list[Literal["download", "share", "fullscreen"] | gr.Button]
                buttons = ["download", "fullscreen"]  # without gradio's button that uploads the image
                drawn = gr.Image(type="pil", format="png", label="Boxes", interactive=False, buttons=buttons)
                table = gr.Dataframe(headers=["label", "score", "x1", "y1", "x2", "y2"], label="Objects, in pixels")
                text = gr.Textbox(label="Answer", lines=4)
        button.click(find, [image, prompt, labels, views, least, only], [drawn, table, text], api_name="find")
    return page


def _facts(detector: AnsweringModel) -> str:
    """Return what the visitor should know of the model, as HTML."""
    decoding = detector.config.evaluation.decoding[0]
    scores = "Scores are calibrated probabilities" if detector.calibration else "Scores are not calibrated"
    return f"Decoding: {safe(decoding.name)}. {scores}."


def launch_demo(page: Any, **options: Any) -> None:
    """Launch the page with local fonts, so that nothing is downloaded; `options` are those of gradio's `launch`."""
    import gradio as gr

    theme = gr.themes.Base(font=["system-ui", "sans-serif"], font_mono=["ui-monospace", "monospace"])
    page.launch(theme=theme, quiet=True, inbrowser=False, share=False, **options)


def serve_demo(detector: Detector, host: str, port: int) -> None:
    """Serve the page until Ctrl-C; an `InputError` if the server cannot listen on that address and port."""
    try:
        with socket.create_server((host, port)):
            pass
    except (OSError, UnicodeError) as error:
        raise InputError(
            f"--host {host} --port {port}: {getattr(error, 'strerror', None) or error}; choose others"
        ) from None
    say(f"http://{host}:{port} (Ctrl-C ends it)")
    launch_demo(build_demo(detector), server_name=host, server_port=port)
