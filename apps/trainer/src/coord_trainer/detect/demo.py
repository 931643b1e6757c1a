"""Web page of `demo`: shows the objects that the model finds in an image."""

from __future__ import annotations

import os
import socket
from pathlib import PurePath
from typing import Any

from coord_codec import InputError
from coord_trainer.console import say
from coord_trainer.detect.detector import Detector


def build_demo(detector: Detector) -> Any:
    """Return the page as `gradio.Blocks`; it loads nothing from other hosts.

    Raises:
        InputError: if gradio is not installed
    """
    os.environ["GRADIO_ANALYTICS_ENABLED"] = "False"  # read when gradio is imported
    try:
        import gradio as gr
    except ImportError:
        raise InputError(
            "gradio is not installed: uv sync --extra demo, or pip install 'coord-trainer[demo]'"
        ) from None

    def find(image: Any, prompt: str, labels: str) -> tuple[Any, list[list[Any]], str]:
        if image is None:
            raise _error("Drop an image first.")
        allowed = [label for label in map(str.strip, (labels or "").split(",")) if label]
        try:
            detections = detector.asking((prompt or "").strip() or None, allowed)(image)
        except InputError as error:
            raise _error(str(error)) from None
        rows = [[item.label, round(item.score, 3), *(round(side, 1) for side in item.box)] for item in detections]
        return detections.drawn(1600), rows, detections.text

    def _error(message: str) -> Exception:
        return gr.Error(message, print_exception=False)  # shown on the page only, since it is the visitor's mistake

    name = PurePath(detector.engine.name).name  # a checkpoint's folders are the server's own business
    with gr.Blocks(title=f"coordexp: {name}", analytics_enabled=False) as page:
        gr.Markdown(f"### What does `{name}` find?")
        with gr.Row():
            with gr.Column():
                image = gr.Image(type="pil", image_mode=None, label="Image")  # unconverted: `open_image` makes it RGB
                prompt = gr.Textbox(detector.config.data.prompt, label="Prompt")
                labels = gr.Textbox("", label="Labels, separated by commas", info="Empty: all labels are allowed.")
                button = gr.Button("Find", variant="primary")
            with gr.Column():
                buttons = ["download", "fullscreen"]  # without gradio's button that uploads the image
                drawn = gr.Image(type="pil", format="png", label="Boxes", interactive=False, buttons=buttons)
                table = gr.Dataframe(headers=["label", "score", "x1", "y1", "x2", "y2"], label="Objects, in pixels")
                text = gr.Textbox(label="Answer", lines=4)
        button.click(find, [image, prompt, labels], [drawn, table, text], api_name="find")
    return page


def serve_demo(detector: Detector, host: str, port: int) -> None:
    """Serve the page until Ctrl-C.

    Raises:
        InputError: if the server cannot listen on that address and port
    """
    try:
        with socket.create_server((host, port)):
            pass
    except (OSError, UnicodeError) as error:
        raise InputError(
            f"--host {host} --port {port}: {getattr(error, 'strerror', None) or error}; choose others"
        ) from None
    say(f"http://{host}:{port} (Ctrl-C ends it)")
    page = build_demo(detector)
    import gradio as gr

    theme = gr.themes.Base(font=["sans-serif"], font_mono=["monospace"])  # local fonts: none is downloaded
    page.launch(server_name=host, server_port=port, share=False, theme=theme, quiet=True, inbrowser=False)
