"""Matches detections with ground-truth objects: one to one by IoU, and greedily by descending score as COCO does."""
