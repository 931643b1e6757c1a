"""The objective: every term of a batch, undivided.

Shapes: N supervised rows, V vocabulary, K coordinate tokens, C rows whose target is a coordinate, M objects.
"""

from torch import Tensor

from coord_codec import CoordVocab
from coord_losses.batch import Batch
from coord_losses.config import ObjectiveConfig
from coord_losses.coordexp import coord_columns
from coord_losses.cross_entropy import token_cross_entropy
from coord_losses.gate import vocab_gate
from coord_losses.output import ObjectiveOutput
from coord_losses.precision import at_least_float32
from coord_losses.slots import ObjectSlots
from coord_losses.sub_vocabulary import sub_vocabulary_diagnostics, sub_vocabulary_terms
from coord_losses.terms import LossTerm


class CoordObjective:
    """Text CE, coordinate CE, soft CE, W1, gate and box loss of one batch.

    Args:
        config: which terms, with what weights.
        vocab: the coordinate tokens.
    """

    def __init__(self, config: ObjectiveConfig, vocab: CoordVocab) -> None:
        self.config = config
        self.vocab = vocab

    def __call__(
        self, logits_NV: Tensor, targets_N: Tensor, objects: ObjectSlots | None = None
    ) -> ObjectiveOutput:
        """The readable form: from the logits of the supervised rows (see `supervised_rows`).

        Args:
            logits_NV: rows, shifted already; bfloat16 and float16 are computed in float32.
            targets_N: the token id each row should predict; none is ignored.
            objects: the objects whose boxes the box term compares; None for no objects.

        Raises:
            ValueError: shapes disagree, a target lies outside the vocabulary, the vocabulary does not reach
                the coordinate tokens, or an object's row is not one whose target is a coordinate.
        """
        config, weights = self.config, self.config.weights
        batch = Batch.sort(targets_N, objects, self.vocab, *logits_NV.shape)
        coord_CV = logits_NV[batch.coord_rows_C]
        coord_logits_CK = at_least_float32(coord_columns(coord_CV, self.vocab))

        terms = sub_vocabulary_terms(coord_logits_CK, batch, config, self.vocab.grid)
        if "text_ce" in weights:
            terms["text_ce"] = token_cross_entropy(logits_NV[batch.text_rows], targets_N[batch.text_rows])
        if "coord_ce" in weights:
            terms["coord_ce"] = token_cross_entropy(coord_CV, targets_N[batch.coord_rows_C])
        if "gate" in weights:
            terms["gate"] = vocab_gate(coord_CV, self.vocab.ids, config.temperature)

        seen_CV = at_least_float32(coord_CV.detach())

        def diagnose() -> dict[str, LossTerm]:
            return {
                **sub_vocabulary_diagnostics(coord_columns(seen_CV, self.vocab), batch.bins_C, config),
                "gate": vocab_gate(seen_CV, self.vocab.ids, config.temperature),
                "coord_vocab_mass": LossTerm.of(coord_columns(seen_CV.softmax(1), self.vocab).sum(dim=1)),
            }

        return ObjectiveOutput({name: terms[name] for name in weights}, weights, batch.counts, diagnose)
