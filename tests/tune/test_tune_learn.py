"""What rounds say of drafters, without a planner."""

from dataclasses import replace

import pytest
from helpers.traces import TREE

from foredraft.planner.survival import Survival
from foredraft.testing import SimulatedClock, SyntheticDrafter
from foredraft.trace import Proposal, RoundRecord
from foredraft.tune.learn import MOST_COUNTED, Learning
from foredraft.tune.simulate import KnownRequest

TEXT = list(range(600))


def records(acceptance: float, *, recorded: bool) -> list[RoundRecord]:
    """Rounds with chains of four, verified; or one at every place, kept as proposals."""
    drafter = SyntheticDrafter(TEXT, acceptance, clock=SimulatedClock(), name="model", confidence=lambda chance: 0.95)
    request, found = KnownRequest(0, [1, *TEXT], 1), []
    while not request.finished:
        tree = drafter.draft(request, 4)
        at, path = 0, []
        for token in request.text[len(request.tokens) :]:
            child = None if recorded else tree.child(at, token)
            if child is None:
                break
            at, path = child, [*path, child]
        emitted = tuple(request.text[len(request.tokens) :][: len(path) + 1])
        proposal = Proposal(drafter="model", tokens=tree.tokens, parents=tree.parents, confidence=tree.confidence)
        if recorded:
            root = replace(TREE, tokens=tree.tokens[:1], parents=(-1,), confidence=(1.0,), sources=("",))
            found.append(replace(root, emitted=emitted, proposals=(proposal,)))
        else:
            sources = ("", *["model"] * tree.num_draft_tokens)
            whole = replace(TREE, tokens=tree.tokens, parents=tree.parents, confidence=tree.confidence, sources=sources)
            found.append(replace(whole, emitted=emitted))
        request.tokens.extend(emitted)
    return found


@pytest.mark.parametrize("recorded", [False, True])
@pytest.mark.parametrize("acceptance", [0.2, 0.8])
def test_shares_and_chances_are_those_of_the_drafter(acceptance: float, *, recorded: bool) -> None:
    learning = Learning()
    for record in records(acceptance, recorded=recorded):
        learning(record)
    known = learning.learned["model"]
    right, total = known.greedy_share
    assert total == MOST_COUNTED
    assert right / total == pytest.approx(acceptance, abs=0.06)
    assert Survival.from_json(known.greedy).chance(-1, 0.95, 1) == pytest.approx(acceptance, abs=0.08)


def test_trees_of_several_drafters_say_nothing_of_either() -> None:
    learning = Learning()
    learning(TREE)
    assert not learning.learned
