"""Pairs detections and objects: overlaps, one-to-one matches, and COCO's matching by score."""
