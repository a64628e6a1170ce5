"""Encoding by the `tokenizers` library."""

from collections.abc import Mapping, Sequence

from tokenizers import Tokenizer as RustTokenizer
from tokenizers import models


def bpe(ids: Mapping[str, int], merges: Sequence[tuple[str, str]], *, ignore_merges: bool) -> models.BPE:
    """A model of byte pairs. Raises ValueError for a vocabulary and merges that do not fit together.

    The library says so by an Exception, or, where a merge makes more than the longest token, by a panic, which is none.
    """
    try:
        return models.BPE(dict(ids), list(merges), ignore_merges=ignore_merges)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:
        raise ValueError(" ".join(str(error).split())) from error


def encoded(rust: RustTokenizer, text: str) -> list[int]:
    """Return the ids of a text, without what a post-processor would add.

    As a batch of one: `encode` would hold the interpreter meanwhile, and a long text takes seconds.
    """
    [found] = rust.encode_batch_fast([text], add_special_tokens=False)
    ids: list[int] = found.ids
    return ids
