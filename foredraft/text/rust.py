"""Encoding by the `tokenizers` library."""

from tokenizers import Tokenizer as RustTokenizer


def encoded(rust: RustTokenizer, text: str) -> list[int]:
    """Return the ids of a text, without what a post-processor would add.

    As a batch of one: `encode` would hold the interpreter meanwhile, and a long text takes seconds.
    """
    [found] = rust.encode_batch_fast([text], add_special_tokens=False)
    ids: list[int] = found.ids
    return ids
