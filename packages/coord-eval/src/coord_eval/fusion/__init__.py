"""Fusion of boxes: of several views of an image, of several models' answers, or of near-duplicates in one answer."""
