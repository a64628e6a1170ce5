"""Fill-in-the-middle: the prompt of a text whose middle is wanted, with the tokens that the model was trained on."""

from typing import NamedTuple

from foredraft.errors import UserError
from foredraft.inputs import Prompt
from foredraft.text import Tokenizer


class _Marks(NamedTuple):
    prefix: str
    suffix: str
    middle: str


_KNOWN = (
    _Marks("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),  # Qwen2.5-Coder, CodeGemma
    _Marks("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),  # StarCoder, Granite
    _Marks("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),  # SantaCoder
    _Marks("<|fim▁begin|>", "<|fim▁hole|>", "<|fim▁end|>"),  # DeepSeek-Coder
    _Marks("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>"),  # the same, as its vocabulary spells it
    _Marks("▁<PRE>", "▁<SUF>", "▁<MID>"),  # CodeLlama
    _Marks("<PRE>", "<SUF>", "<MID>"),
)


def infill_prompt(tokenizer: Tokenizer, prefix: str, suffix: str) -> Prompt:
    """The ids of a prompt in the order prefix, suffix, middle, which all of these models know.

    Raises UserError where the vocabulary has no such tokens.
    """
    ids = {text: token for token, text in enumerate(tokenizer.vocabulary.tokens) if "<" in text}
    marks = next((marks for marks in _KNOWN if all(mark in ids for mark in marks)), None)
    if marks is None:
        raise UserError("suffix: this model has no tokens for filling in the middle")

    def encoded(text: str) -> list[int]:
        return tokenizer.encode(text, add_special=False) if text else []

    begin = tokenizer.encode("", add_special=True)
    parts = [ids[marks.prefix], *encoded(prefix), ids[marks.suffix], *encoded(suffix), ids[marks.middle]]
    return {"prompt_token_ids": [*begin, *parts]}
