"""Evaluation while a run trains and after: checkpoint and images in; predictions, scores and a report out."""
