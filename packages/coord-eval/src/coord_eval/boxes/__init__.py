"""Boxes as arrays: all detections, IoU, and the IoU that a model's probabilities let expect."""
