import gc
import json
import os
import stat
from pathlib import Path

import numpy as np
import pytest
from helpers.drafting import View, budgets, unspeculated

from foredraft.drafters.suffix import (
    KEY_LENGTHS,
    LONGEST_MATCH,
    MAX_PLACES,
    SharedTexts,
    SuffixDrafter,
    TextIndex,
    grow_tree,
)
from foredraft.errors import OptionError
from foredraft.planner.select import survivals
from foredraft.tree import DraftTree


def draft(tokens: list[int], budget: int = 4) -> DraftTree:
    [tree] = SuffixDrafter().propose([View(tokens)], budgets(budget))
    assert tree.tokens[0] == tokens[-1]
    return tree


def test_one_earlier_place_makes_a_chain() -> None:
    tree = draft([1, 2, 3, 4, 5, 1, 2])
    assert tree.is_chain
    assert tree.tokens[1:] == (3, 4, 5, 1)
    assert list(tree.confidence[1:]) == sorted(tree.confidence[1:])  # the further it is right, the longer the match
    assert draft([1, 2, 3, 4, 5, 1, 2], budget=1).tokens == (2, 3)
    assert draft([1, 2, 3, 4, 5, 1, 2], budget=0).tokens == (2,)


def test_several_places_make_a_tree_by_votes() -> None:
    tree = draft([1, 2, 3, 7, 1, 2, 3, 8, 1, 2, 4, 9, 1, 2], budget=6)
    children = {tree.tokens[node]: tree.confidence[node] for node in tree.children(0)}
    assert children[3] == pytest.approx(2 * children[4])
    assert sum(children.values()) < 1
    paths = {tuple(tree.tokens[n] for n in tree.path(node)) for node in range(1, tree.num_nodes)}
    assert paths >= {(3, 7), (3, 8), (4, 9)}


def test_a_longer_match_outweighs_later_and_more_ones() -> None:
    tree = draft([7, 1, 2, 3, 8, 8, 1, 2, 4, 9, 1, 2, 4, 7, 1, 2], budget=1)
    assert tree.tokens == (2, 3)


def test_nothing_where_nothing_was() -> None:
    for tokens in ([1], [1, 2], [1, 2, 3], [1, 1], [1, 2, 3, 1], [2, 1, 3, 1]):
        assert draft(tokens).num_draft_tokens == 0


def test_a_repeated_word_goes_on() -> None:
    """Kind: degenerate repetition, where n-grams always match and the match reaches the end of the text."""
    for tokens, expected in [
        ([5] * 48, [5]),
        ([1, 2] * 10, [1, 2]),
        ([1, 2, 3] * 20, [1, 2, 3]),
        ([1, 2, 3] * 2, [1, 2, 3]),
    ]:
        tree = draft(tokens, budget=7)
        assert tree.is_chain
        assert list(tree.tokens[1:]) == (expected * 7)[:7]


def longest_matches(text: list[int], tail: list[int]) -> dict[int, int]:
    """By searching: each place that follows the last tokens, and how many of them."""
    found = {}
    for place in range(1, len(text)):
        length = 0
        while length < min(place, len(tail)) and text[place - 1 - length] == tail[-1 - length]:
            length += 1
        if length >= min(KEY_LENGTHS):
            found[place] = length
    return found


def test_the_index_finds_what_a_search_finds() -> None:
    random = np.random.default_rng(1)
    for _ in range(30):
        index, text = TextIndex(), []
        for _ in range(25):
            new = random.integers(4, size=random.integers(1, 9)).tolist()
            index.extend(new)
            text += new
            tail = text[-LONGEST_MATCH:]
            found, expected = index.find(tail, MAX_PLACES), longest_matches(text, tail)
            assert found.items() <= expected.items()
            assert len(found) == min(len(expected), MAX_PLACES)
            # No place is preferred to one with a longer n-gram that is found by it.
            levels = [max(n for n in KEY_LENGTHS if n <= length) for length in found.values()]
            best = sorted((max(n for n in KEY_LENGTHS if n <= length) for length in expected.values()), reverse=True)
            assert levels == best[: len(levels)]


def test_an_index_that_grows_in_pieces_is_the_same() -> None:
    random = np.random.default_rng(2)
    text = random.integers(5, size=300).tolist()
    whole, pieces = TextIndex(), TextIndex()
    whole.extend(text)
    for start in range(0, 300, 7):
        pieces.extend(text[start : start + 7])
        pieces.extend([])
    for length in range(2, 20):
        assert whole.find(text[-length:], 8) == pieces.find(text[-length:], 8)


def test_a_draft_has_the_likeliest_nodes() -> None:
    random = np.random.default_rng(5)
    for _ in range(40):
        text = random.integers(3, size=60).tolist()
        places = [
            (text, int(start), 60 - int(start), int(random.integers(2, 9))) for start in random.integers(60, size=6)
        ]
        large, small = grow_tree(0, places, 40), grow_tree(0, places, 10)
        survival = [1.0]
        for node in range(1, large.num_nodes):
            survival.append(survival[large.parents[node]] * large.confidence[node])
        assert survival[1:] == sorted(survival[1:], reverse=True)
        assert small == large.cut(10)


# --- texts of others ------------------------------------------------------------------------------------------------


def test_texts_of_sequences_that_ended_serve_others() -> None:
    drafter = SuffixDrafter(SharedTexts())
    one, two = View([1, 2, 3, 4, 5], id=1), View([9, 2, 3], id=2)
    assert [tree.num_draft_tokens for tree in drafter.propose([one, two], budgets(3, 3))] == [0, 0]  # not ended yet
    one.tokens.append(6)
    drafter.observe([one], unspeculated([one]))
    drafter.end(1)
    [tree] = drafter.propose([two], budgets(5))
    assert tree.tokens == (3, 4, 5, 6)  # up to the end of the other text, and no further


def test_sequences_do_not_share_unless_asked_to() -> None:
    """Kind: the text of one sequence drafts for another that has nothing to do with it."""
    drafter = SuffixDrafter()
    one, two = View([1, 2, 3, 1, 2], id=1), View([4, 1, 2], id=2)
    assert [tree.num_draft_tokens for tree in drafter.propose([one, two], budgets(3, 3))] == [3, 0]
    drafter.end(1)
    drafter.end(1)
    assert drafter.propose([View([9, 1, 2], id=3)], budgets(3))[0].num_draft_tokens == 0


def test_a_sequence_that_was_only_watched_is_kept_too() -> None:
    drafter = SuffixDrafter(SharedTexts())
    view = View([1, 2, 3, 4])
    drafter.observe([view], unspeculated([view]))
    drafter.end(view.id)
    assert drafter.propose([View([7, 1, 2], id=1)], budgets(2))[0].tokens == (2, 3, 4)


def test_memory_of_others_is_bounded_and_the_oldest_goes_first() -> None:
    shared = SharedTexts(100)
    texts = [[10 * i + j for j in range(8)] for i in range(60)]
    for text in texts:
        shared.add(text)
        assert len(shared._older.tokens) + len(shared._newer.tokens) <= 100
    known = [bool(shared.places(text[:3])) for text in texts]
    assert known == sorted(known)
    assert 5 <= sum(known) <= 12
    shared.add(list(range(1000, 1200)))  # longer than there is room for: its end
    assert not shared.places([1000, 1001])
    assert shared.places([1190, 1191])


def test_what_texts_have_in_common_is_kept_once() -> None:
    """Kind: every turn of a conversation begins with all turns before, every answer with the prompt."""
    shared, text = SharedTexts(), list(range(500))
    for turn in range(20):
        text += range(1000 * (turn + 1), 1000 * (turn + 1) + 100)
        shared.add(text)
        shared.add(text)
        shared.add([*text[:-50], turn])
    assert len(shared._newer.tokens) < len(text) + 20 * (2 * LONGEST_MATCH + 60)
    for place in (3, 250, 499, 700, len(text) - 2):  # and all of it is found
        [(tokens, start, _, length), *_] = shared.places(text[max(place - 20, 0) : place])
        assert tokens[start] == text[place]
        assert length == min(place, 20)


def test_no_draft_reaches_from_one_text_into_the_next() -> None:
    shared = SharedTexts()
    shared.add([1, 2, 3])
    shared.add([4, 5, 6])
    drafter = SuffixDrafter(shared)
    assert drafter.propose([View([0, 1, 2])], budgets(5))[0].tokens == (2, 3)
    assert drafter.propose([View([0, 2, 3], id=1)], budgets(5))[0].tokens == (3,)


# --- the file -------------------------------------------------------------------------------------------------------


def remembering(path: Path, fingerprint: str = "abc") -> SuffixDrafter:
    return SuffixDrafter.with_file(path, fingerprint)


def test_a_file_keeps_texts_from_one_start_to_the_next(tmp_path: Path) -> None:
    path = tmp_path / "memory"
    drafter = remembering(path)
    for number, tokens in enumerate(([1, 2, 3, 4, 5], [6, 7, 8])):
        drafter.observe([View(tokens, id=number)], [])
        drafter.end(number)
    del drafter
    gc.collect()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert os.listdir(tmp_path) == ["memory"]
    again = remembering(path)
    assert again.propose([View([0, 2, 3])], budgets(4))[0].tokens == (3, 4, 5)
    assert again.propose([View([0, 6, 7], id=1)], budgets(4))[0].tokens == (7, 8)


def test_a_file_that_is_no_memory_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "memory"
    shared = SharedTexts()
    shared.add([1, 2, 3])
    shared.save(path, "abc")
    good = path.read_bytes()
    header, _, content = good.partition(b"\n")
    fields = json.loads(header)
    for damaged, part in [
        (b"", "not a draft memory"),
        (b"my precious notes\n", "not a draft memory"),
        (b"[1, 2]\n", "not a draft memory"),
        (b'{"kind": "something else", "version": 1}\n', "not a draft memory"),
        (json.dumps(fields | {"version": 2}).encode() + b"\n" + content, "version 2"),
        (good[:-1], "damaged"),
        (header + b"\n" + bytes(len(content)), "damaged"),
        (json.dumps(fields | {"tokenizer": "other"}).encode() + b"\n" + content, "another tokenizer"),
    ]:
        path.write_bytes(damaged)
        with pytest.raises(OptionError, match=part) as caught:
            remembering(path)
        assert str(path) in str(caught.value)
        assert "\n" not in str(caught.value)
        gc.collect()
        assert path.read_bytes() == damaged


def test_places_where_no_file_can_be(tmp_path: Path) -> None:
    for path in (tmp_path / "missing" / "memory", tmp_path):
        with pytest.raises(OptionError, match=r"cannot be (read|written)"):
            remembering(path)


def test_what_is_no_file_is_refused_and_a_link_stays_one(tmp_path: Path) -> None:
    """Kind: a pipe is waited for without end, a name too long is a traceback, a link is replaced by a file."""
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", tmp_path / ("x" * 300)):
        with pytest.raises(OptionError, match="draft memory"):
            remembering(path)
    link = tmp_path / "link"
    link.symlink_to("file")
    drafter = remembering(link)
    drafter.observe([View([1, 2, 3], id=0)], [])
    drafter.end(0)
    del drafter
    gc.collect()
    assert link.is_symlink()
    assert remembering(link).propose([View([0, 1, 2], id=1)], budgets(4))[0].tokens == (2, 3)


def test_writing_is_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "memory"
    shared = SharedTexts()
    shared.add([1, 2, 3])
    shared.save(path, "abc")
    before = path.read_bytes()
    shared.add([4, 5, 6])

    def fail(*_: object) -> None:
        raise OSError("disk full")

    monkeypatch.setattr(os, "replace", fail)
    with pytest.raises(OSError, match="disk full"):
        shared.save(path, "abc")
    assert path.read_bytes() == before
    assert os.listdir(tmp_path) == ["memory"]


# --- time -----------------------------------------------------------------------------------------------------------


def test_a_file_that_cannot_be_written_at_the_end_is_told_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    drafter = remembering(folder / "memory")
    folder.rmdir()
    del drafter
    gc.collect()
    assert len(caplog.messages) == 1
    assert "memory" in caplog.messages[0]
    assert "\n" not in caplog.messages[0]


def steps_of_a_round(num_tokens: int) -> int:
    """Lines of Python executed by one round on a text of so many tokens: what a clock would measure, but exact."""
    import sys

    random = np.random.default_rng(0)
    drafter, view = SuffixDrafter(SharedTexts()), View(random.integers(50, size=num_tokens).tolist())
    drafter.propose([view], budgets(8))
    count = 0

    def trace(frame: object, event: str, _: object) -> object:
        nonlocal count
        count += event == "line"
        return trace

    view.tokens.extend([1, 2, 3, 4])
    before = sys.gettrace()
    sys.settrace(trace)
    try:
        drafter.observe([view], [])
        drafter.propose([view], budgets(8))
    finally:
        sys.settrace(before)
    return count


def test_a_round_does_as_much_in_a_long_text_as_in_a_short_one() -> None:
    """Kind: the search takes longer the longer the text is."""
    assert steps_of_a_round(50_000) < 1.5 * steps_of_a_round(5_000) + 200


def test_a_text_that_was_dropped_can_be_kept_again() -> None:
    """Kind: a text that was kept once is taken to be there for ever."""
    shared, text = SharedTexts(64), list(range(20))
    for tokens in (text, *(list(range(start, start + 20)) for start in (100, 200, 300))):
        shared.add(tokens)
    assert not shared.places(text[:10])
    shared.add(text)
    assert shared.places(text[:10])


def test_tokens_that_cannot_be_of_use_are_left_out() -> None:
    """Kind: time goes into nodes that nobody would verify."""
    texts = [[1, 2, 3, 3, -1], [1, 2, 4, 4, -1], [1, 2, 5, 5, -1]]
    places: list[tuple[list[int], int, int, int]] = [(text, 2, 0, 2) for text in texts]
    whole = grow_tree(9, places, 6)
    part = grow_tree(9, places, 6, 0.2)
    survival = survivals(whole, whole.confidence)
    assert whole.num_draft_tokens == 6
    assert 0 < part.num_draft_tokens < 6
    assert part.num_draft_tokens == sum(chance >= 0.2 for chance in survival[1:])
