"""The file of a run folder that keeps the boxes of a few images while the run trains, and how many images those are."""

WATCHED = "watched.jsonl"
"""Boxes at each measurement of AP during training, a line each."""
WATCHED_IMAGES = 4
