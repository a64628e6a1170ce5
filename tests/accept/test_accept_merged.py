"""Trees of several drafters under a rule that goes by distributions, integrated exactly."""

from collections.abc import Sequence

import numpy as np
from helpers.chances import Course, distribution
from helpers.drafting import View

from foredraft.accept import rejection
from foredraft.drafters import merge_trees
from foredraft.drafters.base import Drafter, DrafterSpec, SequenceView
from foredraft.drafters.merge import MergeDrafter, likeliest_part
from foredraft.testing import ScriptedDrafter
from foredraft.tree import Budget, DraftTree

TARGET = np.array([0.5, 0.2, 0.2, 0.1])
DRAFT = np.array([0.1, 0.6, 0.2, 0.1])
KNOWN = 1  # what another drafter proposes without drawing


class Drawing(Drafter):
    """Draws one token by a course of chance."""

    spec = DrafterSpec(name="drawing")

    def __init__(self, course: Course) -> None:
        self._course = course

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[Budget]) -> list[DraftTree]:
        return [DraftTree((0, self._course.draw(DRAFT)), (-1, 0), (1.0, 0.5), draft_probs=(None, DRAFT))]


def first_tokens(tree: DraftTree, course: Course) -> int:
    return rejection(tree, lambda node: TARGET, course).tokens(tree)[0]


def merged(course: Course, budget: int) -> int:
    drafters = [Drawing(course), ScriptedDrafter([[KNOWN]])]
    [tree] = MergeDrafter(drafters).propose([View([0])], [Budget(budget)])
    return first_tokens(tree, course)


def probabilities(found: dict[int, float]) -> np.ndarray:
    return np.array([found[token] for token in range(4)])


def test_merged_trees_are_exact_whether_all_fits_or_not() -> None:
    for budget in (1, 2):
        found = distribution(lambda course, budget=budget: merged(course, budget))
        np.testing.assert_allclose(probabilities(found), TARGET, atol=1e-12)


def test_merging_alone_keeps_what_was_drawn_and_is_exact() -> None:
    def run(course: Course) -> int:
        [drawn] = Drawing(course).propose([View([0])], [Budget(1)])
        return first_tokens(merge_trees([drawn, DraftTree.chain(0, (KNOWN,))], ["a", "b"]), course)

    np.testing.assert_allclose(probabilities(distribution(run)), TARGET, atol=1e-12)


def test_to_keep_distributions_only_where_all_fits_would_be_a_bias() -> None:
    """The control: the two steps one after the other, which the drafter must not do."""

    def run(course: Course) -> int:
        [drawn] = Drawing(course).propose([View([0])], [Budget(1)])
        whole = merge_trees([drawn, DraftTree.chain(0, (KNOWN,))], ["a", "b"])
        return first_tokens(likeliest_part(whole, Budget(1)), course)

    assert np.abs(probabilities(distribution(run)) - TARGET).max() > 0.02
