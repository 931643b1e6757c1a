"""Turns predictions into one table of scored detections of the ground truth's images, and counts what is left out."""
