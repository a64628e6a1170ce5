"""Drafts of what a grammar forces; with real grammars in tests/engine/test_engine_grammar.py."""

from collections.abc import Sequence

from helpers.drafting import View, budgets

from foredraft.drafters.grammar import GrammarDrafter


class Forcing:
    """Stands for processors whose grammar leaves no choice."""

    def forced(self, tokens: Sequence[int]) -> list[int]:
        return [tokens[-1] + step for step in range(1, 6)]


def test_what_is_forced_is_proposed_as_far_as_the_budget_goes() -> None:
    view = View([1, 7], processors=Forcing())  # type: ignore[arg-type]
    trees = GrammarDrafter().propose([view, view, view, View([1, 7])], budgets(3, 9, 0, 3))
    assert [tree.tokens for tree in trees] == [(7, 8, 9, 10), (7, 8, 9, 10, 11, 12), (7,), (7,)]
    assert all(tree.is_chain for tree in trees)
