"""Ground truth and detections in, out comes which detection finds which object, one to one and as COCO ranks them."""
