"""Detects objects with a model or a server: boxes in pixels, in Python or in an output folder that can be resumed."""
