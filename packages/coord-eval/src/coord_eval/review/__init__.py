"""Reviews labels: which of them are probably wrong, and what they should be, by the answers of a model."""

from coord_eval.review.correcting import Correction, apply_decisions
from coord_eval.review.decisions import Decision, Decisions, read_decisions
from coord_eval.review.exports import TOOLS, proposed_records, write_review_exports
from coord_eval.review.findings import KINDS, Proposal, ReviewFinding
from coord_eval.review.likelihood import LabelLikelihood, read_likelihoods, write_likelihoods
from coord_eval.review.result import Review
from coord_eval.review.reviewing import review

__all__ = [
    "KINDS",
    "TOOLS",
    "Correction",
    "Decision",
    "Decisions",
    "LabelLikelihood",
    "Proposal",
    "Review",
    "ReviewFinding",
    "apply_decisions",
    "proposed_records",
    "read_decisions",
    "read_likelihoods",
    "review",
    "write_likelihoods",
    "write_review_exports",
]
