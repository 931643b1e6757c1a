"""Evaluation, while a run trains and after: a checkpoint and images go in, predictions, scores and a report come out."""
