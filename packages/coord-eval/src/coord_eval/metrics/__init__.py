"""Computes metrics from matched detections, under weights of the images.

A metric is prepared once for a set of matches. It is a function of weights [B, I], the number of times that each of I
images counts in each of B weightings, and returns arrays [B]. Weights of one give the metrics of the set itself.
"""
