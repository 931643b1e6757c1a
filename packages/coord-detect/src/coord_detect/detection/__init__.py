"""`predict` and the detector in Python: images in, boxes and pages out."""
