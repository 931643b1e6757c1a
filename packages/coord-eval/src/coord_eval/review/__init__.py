"""Reviews labels: which of them are probably wrong, and what they should be, by the answers of a model."""

from coord_eval.review.findings import KINDS, Finding, JudgedLabel, Proposal
from coord_eval.review.likelihood import LabelLikelihood, read_likelihoods, write_likelihoods
from coord_eval.review.result import Review
from coord_eval.review.reviewing import review

__all__ = [
    "KINDS",
    "Finding",
    "JudgedLabel",
    "LabelLikelihood",
    "Proposal",
    "Review",
    "read_likelihoods",
    "review",
    "write_likelihoods",
]
