"""Our drafters behind vLLM's interface: its batches are played here, as its model runner hands them over."""

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from foredraft.vllm.proposers import Lookup, Suffix, SuffixAlone
from foredraft.vllm.texts import Texts

LENGTH = 64


def config(num_tokens: int = 4, *, length: int = LENGTH) -> Any:
    return SimpleNamespace(
        speculative_config=SimpleNamespace(num_speculative_tokens=num_tokens),
        model_config=SimpleNamespace(max_model_len=length),
    )


def propose(proposer: Any, *rows: list[int], chosen: list[int] | None = None) -> list[list[int]]:
    """One step. chosen: how many tokens of each row are new, one where not given."""
    token_ids = np.full((8, LENGTH), 999, dtype=np.int32)
    sizes = np.zeros(8, dtype=np.int32)
    for number, row in enumerate(rows):
        token_ids[number, : len(row)] = row
        sizes[number] = len(row)
    sampled = [row[len(row) - new :] for row, new in zip(rows, chosen or [1] * len(rows), strict=True)]
    drafts: list[list[int]] = proposer.propose(sampled, sizes, token_ids, slot_mappings=None)
    return drafts


@pytest.mark.parametrize("proposer", [Lookup, Suffix, SuffixAlone])
def test_what_stood_there_before_is_proposed(proposer: Any) -> None:
    text = [1, 2, 3, 4, 5, 6, 7, 8, 1, 2, 3, 4]
    [draft] = propose(proposer(config()), text)
    assert draft == [5, 6, 7, 8]
    assert all(type(token) is int for token in draft)
    proposer(config()).load_model(object(), target=None)


def test_nothing_is_proposed_in_a_prompt_or_at_the_end() -> None:
    again = [1, 2, 3, 4, 5] * 4
    proposer = Lookup(config(length=len(again) + 3))
    assert propose(proposer, again, again, chosen=[0, 1]) == [[], [1, 2]]
    assert propose(Lookup(config(length=len(again) + 1)), again) == [[]]
    assert propose(proposer) == []


def test_rows_may_change_places() -> None:
    rows = [[10 * n + i for i in (1, 2, 3, 4, 5, 6)] for n in range(4)]
    proposer = SuffixAlone(config())
    alone = [SuffixAlone(config()) for _ in rows]
    random = np.random.default_rng(0)
    for step in range(30):
        order = random.permutation(4)[: 2 + step % 3]
        for number in order:
            row = rows[number]
            row.append(row[-6] if len(row) < LENGTH - 8 else 7)
        drafts = propose(proposer, *(rows[number] for number in order))
        assert drafts == [propose(alone[number], rows[number])[0] for number in order]
        assert step < 8 or any(drafts)
        if len(rows[0]) > LENGTH - 10:
            break


def test_a_sequence_stays_one_while_it_grows_and_moves() -> None:
    texts = Texts(max_length=LENGTH)

    def ids(*rows: list[int]) -> list[int]:
        arrays = [(number, np.array(row, dtype=np.int32), 1) for number, row in enumerate(rows)]
        found = texts.of_rows(arrays)
        for text, row in zip(found, rows, strict=True):
            assert text.tokens == row
        return [text.id for text in found]

    assert ids([1, 2, 3], [1, 2, 3], [4, 5]) == [0, 1, 2]
    assert ids([1, 2, 3, 4], [1, 2, 3, 5], [4, 5, 6]) == [0, 1, 2]
    assert not texts.ended()
    assert ids([4, 5, 6, 7, 8], [1, 2, 3, 5, 5]) == [2, 1]
    [over] = texts.ended()
    assert over.tokens == [1, 2, 3, 4]
    assert over.num_prompt_tokens == 2
    assert not texts.ended()
    assert ids([1, 2, 3, 4, 5], [4, 5, 6, 7, 8, 9]) == [3, 2]


def test_texts_that_are_over_serve_others_where_they_may() -> None:
    first, second = list(range(20, 40)), [1, 20, 21, 22, 23]
    for make, draft in ((Suffix, [24, 25, 26, 27]), (SuffixAlone, []), (Lookup, [])):
        proposer: Any = make(config())
        propose(proposer, first)
        assert propose(proposer, second) == [draft]
