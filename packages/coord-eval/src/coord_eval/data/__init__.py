"""Reads ground truth and predictions from files or records, as arrays and frozen dataclasses."""
