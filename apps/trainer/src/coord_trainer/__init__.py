"""Train Qwen3-VL to draw boxes with coordinate tokens, through ms-swift."""

__version__ = "0.1.0"
__all__ = ["__version__"]
