"""Computes metrics from matched detections, under weights of the images.

A measure is prepared once for a matched set. It is a function of weights [B, I], the number of times that each of I
images counts in each of B weightings, and returns arrays [B]. Weights of one give the metrics of the set itself.
"""
