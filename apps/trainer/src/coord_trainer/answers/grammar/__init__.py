"""The grammar of well-formed answers: as a `LogitsProcessor` for transformers, and as text that servers compile."""

from coord_trainer.answers.grammar.boxes import BoxRules
from coord_trainer.answers.grammar.markers import CoordGrammar
from coord_trainer.answers.grammar.matched import MatchedGrammar
from coord_trainer.answers.grammar.served import AnswerForm, ebnf_grammar, lark_grammar

__all__ = ["AnswerForm", "BoxRules", "CoordGrammar", "MatchedGrammar", "ebnf_grammar", "lark_grammar"]
