import numpy as np
from helpers.drafting import View, budgets, unspeculated

from foredraft.drafters.lookup import LONGEST_MATCH, SHORTEST_MATCH, LookupDrafter
from foredraft.drafters.none import NoDrafter


def draft(tokens: list[int], budget: int = 4) -> tuple[int, ...]:
    [tree] = LookupDrafter().propose([View(tokens)], budgets(budget))
    assert tree.is_chain
    assert tree.tokens[0] == tokens[-1]
    return tree.tokens[1:]


def test_what_followed_last_time() -> None:
    assert draft([1, 2, 3, 4, 5, 1, 2]) == (3, 4, 5, 1)
    assert draft([1, 2, 3, 9, 1, 2, 4, 9, 1, 2]) == (4, 9, 1, 2)  # the most recent place
    assert draft([7, 1, 2, 3, 8, 1, 2, 4, 7, 1, 2]) == (3, 8, 1, 2)  # but a longer match before that
    assert draft([1, 2, 3, 4, 5, 1, 2], budget=1) == (3,)
    assert draft([1, 2, 3, 4, 5, 1, 2], budget=0) == ()


def test_nothing_where_nothing_was() -> None:
    for tokens in ([1], [1, 2], [1, 2, 3], [1, 1], [1, 2, 3, 1], [2, 1, 3, 1]):
        assert draft(tokens) == ()


def test_a_repeated_word_goes_on() -> None:
    """Kind: degenerate repetition, where n-grams always match and the match reaches the end of the text."""
    assert draft([5] * 48, budget=6) == (5,) * 6
    assert draft([1, 2] * 10, budget=5) == (1, 2, 1, 2, 1)
    assert draft([1, 2, 3] * 3, budget=5) == (1, 2, 3, 1, 2)


def expected(tokens: list[int], budget: int) -> tuple[int, ...]:
    """By searching, as the method is described."""
    for length in range(LONGEST_MATCH, SHORTEST_MATCH - 1, -1):
        if length > len(tokens):
            continue
        for start in range(len(tokens) - length - 1, -1, -1):
            if tokens[start : start + length] == tokens[-length:]:
                copied = list(tokens)
                for i in range(budget):
                    copied.append(copied[start + length + i])
                return tuple(copied[len(tokens) :])
    return ()


def test_the_index_finds_what_a_search_finds() -> None:
    random = np.random.default_rng(1)
    for _ in range(30):
        drafter = LookupDrafter()
        view = View(random.integers(4, size=random.integers(1, 30)).tolist())
        for _ in range(25):
            budget = int(random.integers(7))
            [tree] = drafter.propose([view], budgets(budget))
            assert tree.tokens[1:] == expected(view.tokens, budget)
            assert all(0 < confidence < 1 for confidence in tree.confidence[1:])
            view.tokens.extend(random.integers(4, size=random.integers(1, 6)).tolist())
            drafter.observe([view], unspeculated([view]))


def test_sequences_do_not_share() -> None:
    """Kind: the text of one sequence drafts for another, at the same time or after it."""
    drafter = LookupDrafter()
    one, two = View([1, 2, 3, 1, 2], id=1), View([4, 1, 2], id=2)
    trees = drafter.propose([one, two], budgets(3, 3))
    assert [tree.num_draft_tokens for tree in trees] == [3, 0]
    drafter.end(1)
    drafter.end(1)
    [tree] = drafter.propose([View([9, 1, 2], id=1)], budgets(3))
    assert tree.num_draft_tokens == 0


def test_the_table_grows_with_the_text_alone() -> None:
    """Kind: the search takes longer the longer the text is."""
    drafter = LookupDrafter()
    view = View(list(range(20_000)))
    drafter.propose([view], budgets(4))
    index = drafter._indexes[0]
    before = len(index._ends)
    view.tokens.extend(range(30_000, 30_005))
    drafter.propose([view], budgets(4))
    assert len(index._ends) - before == 5 * 4  # matches of 2 to 5 tokens


def test_no_drafter_proposes_nothing() -> None:
    drafter = NoDrafter()
    [tree] = drafter.propose([View([1, 2])], budgets(4))
    assert (tree.tokens, drafter.name) == ((2,), "none")
