"""Text and tokens: tokenizers from model files, chat templates, streaming detokenisation."""

from collections.abc import Mapping
from pathlib import Path

from foredraft.text.detokenize import Detokenizer
from foredraft.text.folder_vocab import tokenizer_from_folder
from foredraft.text.gguf_vocab import tokenizer_from_gguf
from foredraft.text.tokenizer import Tokenizer, first_difference

__all__ = [
    "Detokenizer",
    "Tokenizer",
    "first_difference",
    "load_tokenizer",
    "tokenizer_from_folder",
    "tokenizer_from_gguf",
]


def load_tokenizer(data: Mapping[str, object] | Path) -> Tokenizer:
    """The tokenizer of an opened model: `data` is the metadata of a GGUF file, or a folder."""
    return tokenizer_from_folder(data) if isinstance(data, Path) else tokenizer_from_gguf(data)
