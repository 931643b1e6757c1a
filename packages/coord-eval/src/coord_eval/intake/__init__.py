"""Takes ground truth and predictions, returns one table of scored detections and counts of all that was left out."""
