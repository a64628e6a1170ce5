"""Special tokens in a text: where they are, and which of them end a generation."""

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, MutableSequence

from foredraft.text.traced import SAID, WRITTEN
from foredraft.text.vocabulary import TokenKind

Accept = Callable[[str, int], bool]

_GROUP = 3  # characters by which special tokens are grouped, so that a text is searched for few of them


class SpecialSplitter:
    """Finds special tokens in a text, and cuts them out: longest first, each from left to right, as llama.cpp does.

    `control` and `user_defined` map texts to ids, `structural` are those of the latter that tell the parts of a
    conversation apart (see `is_structural`).
    """

    def __init__(
        self, control: Mapping[str, int], user_defined: Mapping[str, int], structural: Collection[str] = ()
    ) -> None:
        self.control = {text: i for text, i in control.items() if text}
        self.structural = frozenset(structural)
        self.ids = {text: i for text, i in user_defined.items() if text} | self.control
        self._groups: dict[str, list[str]] = {}
        for text in self.ids:
            self._groups.setdefault(text[:_GROUP], []).append(text)

    def found_in(self, text: str) -> list[str]:
        """Return the special tokens that occur in a text, longest first."""
        groups = (group for head, group in self._groups.items() if head in text)
        found = [special for group in groups for special in group if special in text]
        return sorted(found, key=lambda special: (-len(special.encode()), special))

    def split(self, text: str, accept: Accept) -> list[int | str]:
        """Return the text as token ids and the non-empty pieces of ordinary text between them.

        accept: whether a special token counts where it stands, at the place given.
        """
        pieces: list[int | tuple[int, int]] = [(0, len(text))]
        for special in self.found_in(text):
            cut: list[int | tuple[int, int]] = []
            for piece in pieces:
                if isinstance(piece, int):
                    cut.append(piece)
                    continue
                start, end = piece
                for place in _places(text, special, start, end, accept):
                    cut += [(start, place), self.ids[special]]
                    start = place + len(special)
                cut.append((start, end))
            pieces = cut
        found = (piece if isinstance(piece, int) else text[piece[0] : piece[1]] for piece in pieces)
        return [piece for piece in found if piece != ""]

    def of_sort(self, *, control: bool) -> Accept:
        """Accept user-defined tokens, and control tokens if wanted."""
        return lambda special, _: control or special not in self.control

    def by_origin(self, origins: bytes) -> Accept:
        """Accept what may be special in a conversation: see `Encoder.encode_traced`."""

        def accept(special: str, place: int) -> bool:
            there = origins[place : place + len(special)]
            if special in self.control:
                return there.count(WRITTEN) == len(there)
            return special not in self.structural or SAID not in there

        return accept


def _places(text: str, special: str, start: int, end: int, accept: Accept) -> Iterator[int]:
    place = text.find(special, start, end)
    while place >= 0:
        taken = accept(special, place)
        if taken:
            yield place
        place = text.find(special, place + (len(special) if taken else 1), end)


_BRACKETS = re.compile(r"<[^<>\s]+>|\[[^\[\]\s]+\]|<\|.+\|>|<｜.+｜>|\{[^{}\s]+\}", re.DOTALL)
_MARKUP = re.compile(
    r"</?(?:a|abbr|b|blockquote|br|caption|cite|code|col|colgroup|dd|del|div|dl|dt|em|figcaption|figure|h[1-6]|hr|i|img"
    r"|ins|kbd|li|mark|ol|p|pre|q|s|samp|small|span|strike|strong|sub|sup|table|tbody|td|tfoot|th|thead|tr|u|ul|var)/?>"
)


def is_structural(text: str, literals: str) -> bool:
    """Whether a token that is no control token tells the parts of a conversation apart, as `</think>` does.

    That is one in brackets, unless it is HTML of ordinary texts, and any that the chat template writes, unless it is
    white space. literals: what the template writes.
    """
    if _BRACKETS.fullmatch(text):
        return text in literals or not _MARKUP.fullmatch(text)
    return bool(text.strip(" \t\r\n\u2581")) and not text.isalnum() and text in literals


def _words(text: str) -> tuple[str, ...]:
    return tuple(text.split())


_ENDS = frozenset(
    _words(
        "<|eot_id|> <|im_end|> <|end|> <|return|> <|call|> <|flush|> <|calls|> <end_of_turn> <|endoftext|> "
        "</s> <|eom_id|> <EOT> _<EOT> [EOT] [EOS] <|end_of_text|> <end_of_utterance> <eos> <turn|> "
        "<|tool_response> <｜end▁of▁sentence｜> [e~["
    )
)
_FILL_IN_ENDS = (
    _words("<|fim_pad|> <fim-pad> <fim_pad> <PAD> [PAD]"),
    _words("<|fim_repo|> <|repo_name|> <fim-repo> <REPO> <reponame>"),
    _words("<|file_sep|>"),
)
_FILL_IN = (
    _words("<|fim_prefix|> <fim-prefix> <fim_prefix> <｜fim▁begin｜> <PRE> ▁<PRE> <|code_prefix|> <|prefix|>"),
    _words("<|fim_suffix|> <fim-suffix> <fim_suffix> <｜fim▁hole｜> <SUF> ▁<SUF> <|code_suffix|> <|suffix|>"),
    _words("<|fim_middle|> <fim-middle> <fim_middle> <｜fim▁end｜> <MID> ▁<MID> <|code_middle|> <|middle|>"),
)
_ALWAYS_SHOWN = _words("<|channel|> <|message|> <|start|> <|constrain|>")


def find_ends(
    ids: Mapping[str, int],
    kinds: MutableSequence[int],
    *,
    stated: Iterable[int],
    fill_in: tuple[int | None, int | None, int | None] = (None, None, None),
) -> frozenset[int]:
    """Return every id that ends a generation, and correct the kinds of tokens that are special in fact.

    `ids` maps token texts to ids, `stated` are the ends that the model file names (eos, eot, eom), `fill_in`
    the padding, repository and file-separator tokens of fill-in-the-middle models where the file names them.
    Files often name one end and use several, so known texts count as well: the rules are those of llama.cpp's
    end-of-generation set. `kinds` is changed in place: tokens with such texts become control tokens.
    """
    ends = {i for i in stated if 0 <= i < len(kinds)}
    for text in _ENDS & ids.keys():
        ends.add(ids[text])
        kinds[ids[text]] = TokenKind.CONTROL
    for named, texts in zip(fill_in, _FILL_IN_ENDS, strict=True):
        token_id = next((ids[text] for text in texts if text in ids), None) if named is None else named
        if token_id is not None and token_id < len(kinds):
            ends.add(token_id)
            kinds[token_id] = TokenKind.CONTROL
    for texts in _FILL_IN:
        token_id = next((ids[text] for text in texts if text in ids), None)
        if token_id is not None:
            kinds[token_id] = TokenKind.CONTROL
    for text in _ALWAYS_SHOWN:
        if text in ids:
            kinds[ids[text]] = TokenKind.USER_DEFINED
    end_texts = {text for text in _ENDS if text in ids}
    if "<|end|>" in end_texts and ({"<|return|>", "<|call|>"} <= end_texts or _solar(end_texts)):
        # In these formats <|end|> only closes one of several messages of an answer.
        ends.discard(ids["<|end|>"])
        kinds[ids["<|end|>"]] = TokenKind.USER_DEFINED
    if "</s>" in end_texts and ("<|tool_response>" in end_texts or "<|plamo:eos|>" in ids):
        ends.discard(ids["</s>"])
        kinds[ids["</s>"]] = TokenKind.NORMAL
    return frozenset(ends)


def _solar(end_texts: set[str]) -> bool:
    return "<|flush|>" in end_texts and bool({"<|call|>", "<|calls|>"} & end_texts)
