"""Scores shapes other than boxes: similarity measures, average precision and its quantisation ceiling."""
