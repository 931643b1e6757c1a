"""The objective: every term of a batch, undivided.

Shapes: N supervised rows, V vocabulary, K coordinate tokens, C rows whose target is a coordinate, M objects.
"""

from collections.abc import Iterable

from torch import Tensor

from coord_codec import CoordVocab
from coord_losses.batch import Batch
from coord_losses.config import ObjectiveConfig
from coord_losses.coordexp import coord_columns
from coord_losses.cross_entropy import token_cross_entropy
from coord_losses.fused import fused_objective
from coord_losses.gate import vocab_gate
from coord_losses.linear_head import LinearHead
from coord_losses.output import ObjectiveOutput
from coord_losses.precision import at_least_float32
from coord_losses.slots import ObjectSlots
from coord_losses.sub_vocabulary import sub_vocabulary_diagnostics, sub_vocabulary_terms
from coord_losses.terms import LossTerm


class CoordObjective:
    """Text CE, coordinate CE, soft CE, W1, gate and box loss of one batch.

    Args:
        config: which terms, with what weights.
        vocab: the coordinate tokens; None where there are none, so that all tokens are text.

    Raises:
        ValueError: a coordinate term has a weight and there are no coordinate tokens.
    """

    def __init__(self, config: ObjectiveConfig, vocab: CoordVocab | None) -> None:
        if vocab is None and (without := sorted(config.weights.keys() - {"text_ce"})):
            raise ValueError(f"vocab is None, but {without[0]} has a weight: it needs coordinate tokens")
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
        config, weights, vocab = self.config, self.config.weights, self.vocab
        batch = Batch.sort(targets_N, objects, vocab, *logits_NV.shape)
        if vocab is None:
            return self._text_alone(token_cross_entropy(logits_NV, targets_N), batch)
        coord_CV = logits_NV[batch.coord_rows_C]
        coord_logits_CK = at_least_float32(coord_columns(coord_CV, vocab))

        terms = sub_vocabulary_terms(coord_logits_CK, batch, config, vocab.grid)
        if "text_ce" in weights:
            terms["text_ce"] = token_cross_entropy(logits_NV[batch.text_rows], targets_N[batch.text_rows])
        if "coord_ce" in weights:
            terms["coord_ce"] = token_cross_entropy(coord_CV, targets_N[batch.coord_rows_C])
        if "gate" in weights:
            terms["gate"] = vocab_gate(coord_CV, vocab.ids, config.temperature)

        seen_CV = at_least_float32(coord_CV.detach())

        def diagnose() -> dict[str, LossTerm]:
            return {
                **sub_vocabulary_diagnostics(coord_columns(seen_CV, vocab), batch.bins_C, config),
                "gate": vocab_gate(seen_CV, vocab.ids, config.temperature),
                "coord_vocab_mass": LossTerm.of(coord_columns(seen_CV.softmax(1), vocab).sum(dim=1)),
                "coord_token_ce": token_cross_entropy(seen_CV, targets_N[batch.coord_rows_C]),
            }

        return ObjectiveOutput({name: terms[name] for name in weights}, weights, batch.counts, diagnose)

    def fused(
        self,
        hidden_NH: Tensor,
        head_weight_VH: Tensor,
        targets_N: Tensor,
        objects: ObjectSlots | None = None,
        offsets_KH: Tensor | None = None,
        *,
        offset_ids_K: Tensor | Iterable[int] | None = None,
        chunk_rows: int | None = None,
        chunk_vocab: int | None = None,
    ) -> ObjectiveOutput:
        """The fast form: the same from hidden states, with the logits of a part of the vocabulary at a time.

        Terms, totals and gradients are those of the readable form on `hidden · weightᵀ` (+ offsets). With a
        frozen weight everything is computed in the forward pass and the weight is not needed again; with a
        trained one (`head_weight_VH.requires_grad`) logits are computed a second time in the backward pass.
        Under autocast the products have its dtype. `diagnostics()` reads the head again.

        Args:
            hidden_NH: what the head is applied to, rows selected and shifted (see `supervised_rows`).
            head_weight_VH: the head's weight; a bias is not supported.
            targets_N: the token id each row should predict; none is ignored.
            objects: the objects whose boxes the box term compares; None for no objects.
            offsets_KH: added to rows of the weight, trained or not; None for no offsets.
            offset_ids_K: those rows; None for the coordinate tokens.
            chunk_rows: rows that are read together; None for 4,096 on a processor, 16,384 on a GPU.
            chunk_vocab: tokens whose logits exist at a time; None for 8 MiB of logits (64 on a GPU), but
                at least 1,024 tokens.

        Raises:
            ValueError: as the readable form, or the head's parts do not fit together.
        """
        head = LinearHead(self.vocab, head_weight_VH, offsets_KH, offset_ids_K, chunk_rows, chunk_vocab)
        if hidden_NH.shape[1:] != head_weight_VH.shape[1:]:
            raise ValueError(
                f"hidden_NH is {list(hidden_NH.shape)}, head_weight_VH {list(head_weight_VH.shape)}: "
                "the last dimension must agree"
            )
        batch = Batch.sort(targets_N, objects, self.vocab, len(hidden_NH), len(head_weight_VH))
        if self.vocab is None:
            nothing = hidden_NH[:0]
            return self._text_alone(LossTerm.of(head.read(hidden_NH, targets_N, nothing, nothing)[0]), batch)
        return fused_objective(self.config, head, hidden_NH, targets_N, batch)

    def _text_alone(self, text_ce: LossTerm, batch: Batch) -> ObjectiveOutput:
        """Without coordinate tokens: one term, and no diagnostics of coordinates."""
        return ObjectiveOutput({"text_ce": text_ce}, self.config.weights, batch.counts, dict)
