"""Matched detections and image weights in, metrics out: the row of ones gives the point values, a resample its own.

A metric is prepared once for a set and returns a function of weights [B, I], how often each of I images counts in each
of B weightings, whose values are arrays [B].
"""
