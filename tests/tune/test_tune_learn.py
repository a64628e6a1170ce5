"""What rounds say of drafters, without a planner."""

from dataclasses import replace

import pytest
from helpers.drafting import View
from helpers.traces import TREE

from foredraft.planner.survival import Survival
from foredraft.testing import SimulatedClock, SyntheticDrafter
from foredraft.trace import Proposal, RoundRecord
from foredraft.tune.learn import Learning

TEXT = list(range(600))


def records(acceptance: float, *, recorded: bool) -> list[RoundRecord]:
    """Rounds with chains of four, verified; or one at every place, kept as proposals."""
    drafter = SyntheticDrafter(TEXT, acceptance, clock=SimulatedClock(), name="model", confidence=lambda chance: 0.95)
    text, view, found = [1, *TEXT], View([1]), []
    while len(view.tokens) < len(text):
        tree = drafter.draft(view, 4)
        at, path = 0, []
        for token in text[len(view.tokens) :]:
            child = None if recorded else tree.child(at, token)
            if child is None:
                break
            at, path = child, [*path, child]
        emitted = tuple(text[len(view.tokens) :][: len(path) + 1])
        proposal = Proposal(drafter="model", tokens=tree.tokens, parents=tree.parents, confidence=tree.confidence)
        if recorded:
            root = replace(TREE, tokens=tree.tokens[:1], parents=(-1,), confidence=(1.0,), sources=("",))
            found.append(replace(root, emitted=emitted, proposals=(proposal,)))
        else:
            sources = ("", *["model"] * tree.num_draft_tokens)
            whole = replace(TREE, tokens=tree.tokens, parents=tree.parents, confidence=tree.confidence, sources=sources)
            found.append(replace(whole, emitted=emitted))
        view.tokens.extend(emitted)
    return found


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("acceptance", [0.2, 0.8])
def test_acceptance_rates_and_chances_are_those_of_the_drafter(acceptance: float, *, recorded: bool) -> None:
    learning = Learning()
    for record in records(acceptance, recorded=recorded):
        learning(record)
    known = learning.learned["model"]
    accepted, drafted = known.greedy_acceptance
    assert drafted == 30.0  # a planner remembers no more of them itself
    assert accepted / drafted == pytest.approx(acceptance, abs=0.06)
    assert Survival.from_json(known.greedy).chance(-1, 0.95, 1) == pytest.approx(acceptance, abs=0.08)


def test_trees_of_several_drafters_say_nothing_of_either() -> None:
    learning = Learning()
    learning(TREE)
    assert not learning.learned
