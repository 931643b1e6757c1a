"""Evaluation, while a run trains and after: checkpoint and images go in, predictions, scores and a report come out."""
