"""Text and tokens: tokenizers from model files, chat templates, streaming detokenisation."""

from foredraft.text.detokenize import Detokenizer
from foredraft.text.folder_vocab import tokenizer_from_folder
from foredraft.text.gguf_vocab import tokenizer_from_gguf
from foredraft.text.tokenizer import Tokenizer, first_difference

__all__ = ["Detokenizer", "Tokenizer", "first_difference", "tokenizer_from_folder", "tokenizer_from_gguf"]
