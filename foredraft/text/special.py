"""Special tokens in a text: where they are, and which of them end a generation."""

from collections.abc import Iterable, Mapping, MutableSequence

from foredraft.text.vocabulary import TokenKind

_GROUP = 3  # characters by which special tokens are grouped, so that a text is searched for few of them


class SpecialSplitter:
    """Cuts special tokens out of a text, longest first, each from left to right (the order of llama.cpp).

    `control` and `user_defined` map texts to ids. User-defined tokens are cut out of every text, control
    tokens only on request.
    """

    def __init__(self, control: Mapping[str, int], user_defined: Mapping[str, int]) -> None:
        self.control = {text: i for text, i in control.items() if text}
        self._ids = {text: i for text, i in user_defined.items() if text} | self.control
        self._groups: dict[str, list[str]] = {}
        for text in self._ids:
            self._groups.setdefault(text[:_GROUP], []).append(text)

    def found_in(self, text: str, *, control: bool, user_defined: bool) -> list[str]:
        """Return the special tokens of the wanted sorts that occur in a text, longest first."""
        found = [
            special
            for head, group in self._groups.items()
            if head in text
            for special in group
            if (control if special in self.control else user_defined) and special in text
        ]
        return sorted(found, key=lambda special: (-len(special.encode()), special))

    def split(self, text: str, *, control: bool, user_defined: bool = True) -> list[int | str]:
        """Return the text as token ids and the non-empty pieces of ordinary text between them."""
        pieces: list[int | str] = [text] if text else []
        for special in self.found_in(text, control=control, user_defined=user_defined):
            token_id = self._ids[special]
            cut: list[int | str] = []
            for piece in pieces:
                if isinstance(piece, int) or special not in piece:
                    cut.append(piece)
                    continue
                for place, part in enumerate(piece.split(special)):
                    if place:
                        cut.append(token_id)
                    if part:
                        cut.append(part)
            pieces = cut
        return pieces


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
