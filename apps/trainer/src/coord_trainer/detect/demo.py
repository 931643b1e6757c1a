"""A page on which one drops an image and sees what the model finds in it."""

from __future__ import annotations

import os
import socket
from typing import Any

from coord_codec import InputError
from coord_trainer.console import say
from coord_trainer.detect.detector import Detector


def build_demo(detector: Detector) -> Any:
    """Return the page as `gradio.Blocks`; nothing on it is loaded from elsewhere.

    Raises:
        InputError: gradio is not installed
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
            raise _mistake("Drop an image first.")
        wanted = [label for label in map(str.strip, (labels or "").split(",")) if label]
        try:
            found = detector.asking((prompt or "").strip() or None, wanted)(image)
        except InputError as error:
            raise _mistake(str(error)) from None
        rows = [[item.label, round(item.score, 3), *(round(side, 1) for side in item.box)] for item in found]
        return found.drawn(1600), rows, found.text

    def _mistake(told: str) -> Exception:
        return gr.Error(told, print_exception=False)  # on the page alone: it is none of the server's

    with gr.Blocks(title=f"coordexp: {detector.engine.name}", analytics_enabled=False) as page:
        gr.Markdown(f"### What does `{detector.engine.name}` find?")
        with gr.Row():
            with gr.Column():
                image = gr.Image(type="pil", image_mode=None, label="Image")  # as it is: `open_image` makes it RGB
                prompt = gr.Textbox(detector.config.data.prompt, label="Prompt")
                labels = gr.Textbox("", label="Labels, separated by commas", info="Empty: any label may be given.")
                button = gr.Button("Find", variant="primary")
            with gr.Column():
                kept = ["download", "fullscreen"]  # without gradio's button that uploads an image
                drawn = gr.Image(type="pil", format="png", label="Boxes", interactive=False, buttons=kept)
                table = gr.Dataframe(headers=["label", "score", "x1", "y1", "x2", "y2"], label="Objects, in pixels")
                text = gr.Textbox(label="Answer", lines=4)
        button.click(find, [image, prompt, labels], [drawn, table, text], api_name="find")
    return page


def serve_demo(detector: Detector, host: str, port: int) -> None:
    """Serve the page until Ctrl-C.

    Raises:
        InputError: nothing can listen at that address and port
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

    look = gr.themes.Base(font=["sans-serif"], font_mono=["monospace"])  # the machine's own: no font is fetched
    page.launch(server_name=host, server_port=port, share=False, theme=look, quiet=True, inbrowser=False)
