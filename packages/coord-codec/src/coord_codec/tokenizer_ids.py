"""Looking up tokens in a Hugging Face tokenizer, and making sure that each of them is one token."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_NAMED = 3  # how many offenders an error names


def single_token_ids(tokenizer: Any, tokens: Sequence[str], *, what: str, advice: str) -> list[int]:
    """Return the id of each token.

    Args:
        tokenizer: a Hugging Face tokenizer, or a processor that holds one as `.tokenizer`.
        tokens: the texts to look up.
        what: what they are, for the error messages ("marker").
        advice: what to do when one is missing, for the error messages.

    Raises:
        ValueError: if a token is missing or split into several, naming it.
    """
    tokenizer = getattr(tokenizer, "tokenizer", tokenizer)
    vocab = tokenizer.get_vocab()
    missing = [token for token in tokens if token not in vocab]
    if missing:
        named = ", ".join(missing[:_NAMED]) + (", ..." if len(missing) > _NAMED else "")
        raise ValueError(
            f"the tokenizer lacks {len(missing)} of {len(tokens)} {what} tokens: {named}; {advice}"
        )
    ids = [vocab[token] for token in tokens]
    # A listed token may still be split (an entry of the BPE table that no merge reaches). One call over all
    # of them is a thousand times cheaper than a call each and proves that neighbours stay apart as well.
    if _encode(tokenizer, "".join(tokens)) != ids:
        for token, token_id in zip(tokens, ids, strict=True):
            found = _encode(tokenizer, token)
            if found != [token_id]:
                raise ValueError(
                    f"the {what} token {token} has id {token_id} but its text is encoded as {found}: "
                    "add it with tokenizer.add_tokens so that it is never split"
                )
        raise ValueError(
            f"the {what} tokens are not encoded one by one side by side: check the tokenizer's added tokens"
        )
    return ids


def _encode(tokenizer: Any, text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False))
