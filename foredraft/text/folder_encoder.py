"""Encoding with the tokenizer of a model folder, where some special tokens are meant and others are text."""

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from tokenizers import AddedToken
from tokenizers import Tokenizer as RustTokenizer

from foredraft.text.rust import encoded
from foredraft.text.special import Accept, SpecialSplitter


@dataclass(frozen=True)
class FolderEncoder:
    """Encodes with the `tokenizers` object of a folder, as transformers does, wherever all special tokens are meant.

    Where the text of one is just text, a twin encodes in which all special tokens are written in a way that no text
    is: those that are meant are put in in that form, and everything else, spaces and normalisation, stays as it is.

    hidden: the control tokens and structural ones, by text.
    """

    splitter: SpecialSplitter
    rust: RustTokenizer
    hidden: Mapping[str, AddedToken]

    def encode(self, text: str, *, parse_special: bool) -> list[int]:
        """Return the ids of a whole text."""
        return self._plain(text) if parse_special else self._encode(text, self.splitter.of_sort(control=False))

    def encode_traced(self, text: str, origins: bytes) -> list[int]:
        """Return the ids of a conversation, where each character has an origin."""
        return self._encode(text, self.splitter.by_origin(origins))

    def _plain(self, text: str) -> list[int]:
        return encoded(self.rust, text)

    def _encode(self, text: str, accept: Accept) -> list[int]:
        meant = self._meant(text, accept)
        ids = self._plain(text)
        hidden_ids = self._hidden_ids
        if [i for i in ids if i in hidden_ids] == [self.splitter.ids[special] for _, special in meant]:
            return ids
        return self._twin.encode(text, meant)

    @cached_property
    def _hidden_ids(self) -> frozenset[int]:
        return frozenset(self.splitter.ids[text] for text in self.hidden)

    def _meant(self, text: str, accept: Accept) -> list[tuple[int, str]]:
        """The hidden tokens that count as such, and where: from left to right, of several the longest."""
        found: list[tuple[int, str]] = []
        for special in self.splitter.found_in(text):
            if special not in self.hidden:
                continue
            place = text.find(special)
            while place >= 0:
                if accept(special, place) and self._stands_alone(text, special, place):
                    found.append((place, special))
                place = text.find(special, place + 1)
        meant: list[tuple[int, str]] = []
        end = 0
        for place, special in sorted(found, key=lambda one: (one[0], -len(one[1]))):
            if place >= end:
                meant.append((place, special))
                end = place + len(special)
        return meant

    def _stands_alone(self, text: str, special: str, place: int) -> bool:
        if not self.hidden[special].single_word:
            return True
        around = text[max(0, place - 1) : place], text[place + len(special) : place + len(special) + 1]
        return not any(char.isalnum() or char == "_" for char in around)

    @cached_property
    def _twin(self) -> "_Twin":
        return _Twin(self.rust, {text: self.splitter.ids[text] for text in self.hidden})


class _Twin:
    """A tokenizer in which hidden tokens have texts that nobody writes. ids: of the hidden tokens, by text."""

    def __init__(self, rust: RustTokenizer, ids: Mapping[str, int]) -> None:
        start = "".join(chr(0x100000 + secrets.randbelow(0xFFFD)) for _ in range(3))
        self._stand_ins = {text: start + chr(0xF0000 + place) for place, text in enumerate(ids)}
        state = json.loads(rust.to_str())
        for token in state["added_tokens"]:
            token["content"] = self._stand_ins.get(token["content"], token["content"])
        self._rename(state["model"])
        state["post_processor"] = None  # it may name tokens, and is not used
        self._rust = RustTokenizer.from_str(json.dumps(state))
        self._back = {self._rust.token_to_id(self._stand_ins[text]): token_id for text, token_id in ids.items()}

    def _rename(self, model: dict[str, Any]) -> None:
        """Take the hidden tokens out of the reach of the model itself, which may put them together from letters."""
        names = self._stand_ins
        vocab = model.get("vocab")
        if isinstance(vocab, dict):
            model["vocab"] = {names.get(text, text): token_id for text, token_id in vocab.items()}
        elif isinstance(vocab, list):
            model["vocab"] = [[names.get(text, text), score] for text, score in vocab]
        if isinstance(model.get("unk_token"), str):
            model["unk_token"] = names.get(model["unk_token"], model["unk_token"])
        if isinstance(model.get("merges"), list):
            model["merges"] = [pair for pair in model["merges"] if not self._is_hidden(pair)]

    def _is_hidden(self, pair: Any) -> bool:
        first, second = pair.split(" ", 1) if isinstance(pair, str) else pair
        return not self._stand_ins.keys().isdisjoint((first, second, first + second))

    def encode(self, text: str, meant: list[tuple[int, str]]) -> list[int]:
        """Return the ids of a text in which the hidden tokens at the places given are meant, and no others."""
        parts, end = [], 0
        for place, special in meant:
            parts += [text[end:place], self._stand_ins[special]]
            end = place + len(special)
        ids = encoded(self._rust, "".join([*parts, text[end:]]))
        return [self._back.get(token_id, token_id) for token_id in ids]
