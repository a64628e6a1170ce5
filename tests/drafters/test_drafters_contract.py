"""What every drafter keeps to, whatever becomes of its proposals. `helpers.drafters.CASES` says which there are."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import pytest
from helpers.drafters import CASES, TABLE, WORLDS
from helpers.drafting import View, budgets
from helpers.engines import VOCAB_SIZE, make_engine, result, run

from foredraft.accept import walk
from foredraft.drafters.base import Drafter, Outcome, PromptFeatures
from foredraft.engine import completion_of
from foredraft.sampling import SamplingParams
from foredraft.tree import Budget, DraftTree

every_case = pytest.mark.parametrize("name", CASES)
BUDGETS = (0, 1, 3, 8, 20)
PROMPTS = [[5], [3, 1, 4, 1, 5, 9, 2, 6], list(b"and then the"), [7, 8, 9] * 5, [6] * 48]


def params_of(name: str, **options: object) -> SamplingParams:
    return SamplingParams(**{"seed": 11, **CASES[name].params, **options})  # type: ignore[arg-type]


def checked(tree: DraftTree, view: View, budget: int) -> DraftTree:
    """A proposal, well formed. That parents come first and siblings differ, the tree itself makes sure of."""
    assert isinstance(tree, DraftTree)
    assert tree.tokens[0] == view.tokens[-1]
    assert tree.num_draft_tokens <= max(budget, 0)
    assert all(type(token) is int and 0 <= token < VOCAB_SIZE for token in tree.tokens[1:])
    assert all(0.0 <= confidence <= 1.0 for confidence in tree.confidence)
    return tree


@dataclass
class Play:
    """Rounds on the table, without an engine: who is asked, how much, and whose tree is verified is left to chance."""

    drafter: Drafter
    params: SamplingParams
    random: np.random.Generator
    num_sequences: int = 3
    views: list[View] = field(default_factory=list)
    proposals: list[DraftTree] = field(default_factory=list)
    num_accepted: int = 0
    next_id: int = 0

    def run(self, num_rounds: int) -> None:
        for _ in range(num_rounds):
            while len(self.views) < self.num_sequences:
                self.begin()
            self.round()
            if self.random.random() < 0.05:
                self.drafter.end(self.views.pop(0).id)

    def begin(self, tokens: Sequence[int] | None = None) -> View:
        prompt = list(PROMPTS[self.next_id % len(PROMPTS)] if tokens is None else tokens)
        view = View(prompt, self.next_id, len(prompt), self.params)
        self.views.append(view)
        self.next_id += 1
        for start in range(0, len(prompt) - 1, 16):
            self.drafter.begin(view, PromptFeatures(start, min(16, len(prompt) - 1 - start)))
        return view

    def round(self) -> None:
        asked = [view for view in self.views if self.random.random() < 0.7]
        numbers = [int(self.random.choice(BUDGETS)) for _ in asked]
        trees = self.drafter.propose(asked, budgets(*numbers))
        assert len(trees) == len(asked)
        own = {}
        for view, number, tree in zip(asked, numbers, trees, strict=True):
            own[view.id] = checked(tree, view, number)
        self.proposals += trees
        outcomes = [self.verified(view, self.chosen(view, own.get(view.id))) for view in self.views]
        self.drafter.observe(self.views, outcomes)

    def chosen(self, view: View, own: DraftTree | None) -> DraftTree:
        """The whole proposal, part of it, another's tree, or nothing."""
        kind = self.random.random()
        if own is not None and kind < 0.5:
            return own
        if own is not None and kind < 0.7:
            return own.cut(int(self.random.integers(own.num_nodes)))
        return self.foreign(view) if kind < 0.9 else DraftTree.chain(view.tokens[-1])

    def foreign(self, view: View) -> DraftTree:
        """Somebody else's tree: some of it right."""
        tokens, parents, paths = [view.tokens[-1]], [-1], [list[int]()]
        for _ in range(int(self.random.integers(1, 9))):
            parent = int(self.random.integers(len(tokens)))
            right = TABLE.next_token([*view.tokens, *paths[parent]], view.params)
            token = int(self.random.choice([right, self.random.integers(VOCAB_SIZE)]))
            if (parent, token) not in zip(parents, tokens, strict=True):
                tokens.append(token)
                parents.append(parent)
                paths.append([*paths[parent], token])
        return DraftTree(tuple(tokens), tuple(parents))

    def verified(self, view: View, tree: DraftTree) -> Outcome:
        def target_token(node: int) -> int:
            return TABLE.next_token([*view.tokens, *(tree.tokens[n] for n in tree.path(node))], view.params)

        accepted = walk(tree, target_token)
        logits = TABLE.tree_logits(view.tokens, tree)
        view.tokens.extend(accepted.tokens(tree))
        self.num_accepted += len(accepted.path)
        return Outcome(tree, accepted.path, logits)


def played(name: str, seed: int, num_rounds: int = 15, **options: object) -> Play:
    play = Play(CASES[name].make(WORLDS["table"]), params_of(name, **options), np.random.default_rng(seed))
    play.run(num_rounds)
    return play


def asked_again(play: Play, make: Callable[[], Drafter]) -> None:
    """A drafter that sees the sequences for the first time proposes what the one that went through the rounds does."""
    for budget in BUDGETS:
        want = [Budget(budget)] * len(play.views)
        assert make().propose(play.views, want) == play.drafter.propose(play.views, want)


@every_case
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_proposals_are_well_formed_and_deterministic(name: str, temperature: float) -> None:
    first, second = (played(name, seed=3, temperature=temperature) for _ in range(2))
    assert first.proposals == second.proposals
    assert [view.tokens for view in first.views] == [view.tokens for view in second.views]
    if name != "none":
        assert any(tree.num_draft_tokens for tree in first.proposals)


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.by_text_alone])
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_only_the_accepted_tokens_count(name: str, temperature: float) -> None:
    """After partial acceptance, after rounds without drafts, after trees of others, after being left out."""
    for seed in range(2):
        play = played(name, seed, temperature=temperature)
        asked_again(play, lambda: CASES[name].make(WORLDS["table"]))


@pytest.mark.parametrize("name", [name for name, case in CASES.items() if case.by_text_alone])
def test_a_sequence_that_is_over_leaves_nothing(name: str) -> None:
    play = played(name, seed=1)
    for view in play.views:
        play.drafter.end(view.id)
        play.drafter.end(view.id)
    play.drafter.end(12345)
    play.views.clear()
    for tokens in ([1, 2], [7, 8, 9, 7, 8]):
        play.begin(tokens)
    asked_again(play, lambda: CASES[name].make(WORLDS["table"]))


@every_case
def test_sequences_do_not_disturb_each_other(name: str) -> None:
    """In the same round, in whatever order: each has the tree it would have alone."""
    views = [View([*PROMPTS[i % 5], i], i, 1, params_of(name)) for i in range(8)]
    numbers = [BUDGETS[i % 5] for i in range(8)]
    together = CASES[name].make(WORLDS["table"]).propose(views, budgets(*numbers))
    backwards = CASES[name].make(WORLDS["table"]).propose(views[::-1], budgets(*numbers[::-1]))
    assert together == backwards[::-1]
    for view, number, tree in zip(views, numbers, together, strict=True):
        [alone] = CASES[name].make(WORLDS["table"]).propose([view], budgets(number))
        assert alone == tree


@every_case
def test_asking_twice_changes_nothing(name: str) -> None:
    play = played(name, seed=2)
    want = budgets(*[6] * len(play.views))
    assert play.drafter.propose(play.views, want) == play.drafter.propose(play.views, want)
    assert play.drafter.propose([], []) == []
    play.drafter.observe([], [])


@every_case
def test_it_says_who_it_is(name: str) -> None:
    drafter = CASES[name].make(WORLDS["tiny"])
    assert drafter.name
    assert isinstance(drafter.model_free, bool)
    assert drafter.names
    assert drafter.problem == ""
    view = View([1, 2, 3, 4], params=params_of(name))
    drafter.prefill(View([5, 6, 7], id=1, params=params_of(name)), 2)
    drafter.reset_prefix_cache()
    if drafter.model_free:
        assert drafter.num_uncached_tokens(view) == 0
        return
    assert drafter.num_uncached_tokens(view) == 3
    drafter.prefill(view, 2)
    assert drafter.num_uncached_tokens(view) == 1
    drafter.propose([view], budgets(2))
    assert drafter.num_uncached_tokens(view) <= 1
    assert drafter.time_step(num_tokens=1, context=4) > 0
    long = View([*range(100)], id=2, params=params_of(name))
    drafter.begin_late(long, 8)
    assert drafter.num_uncached_tokens(long) == (8 if drafter.spec.can_begin_late else 99)


@every_case
def test_whatever_it_is_told_and_in_whatever_order(name: str) -> None:
    """Ends of sequences it never saw, rounds of ones that never began, beginnings after rounds, and all of it twice."""
    play = played(name, seed=4, num_rounds=3)
    drafter, random = play.drafter, play.random
    unknown = [View([*PROMPTS[i % 5], i], id=100 + i, params=play.params) for i in range(4)]
    for _ in range(40):
        view = (play.views + unknown)[int(random.integers(len(play.views) + len(unknown)))]
        kind = int(random.integers(4))
        if kind == 0:
            drafter.begin(view, PromptFeatures(int(random.integers(3)), 5))
        elif kind == 1:
            drafter.observe([view], [play.verified(view, play.foreign(view))])
        elif kind == 2:
            drafter.end(view.id)
        else:
            [tree] = drafter.propose([view], budgets(5))
            checked(tree, view, 5)
    views = play.views + unknown
    if CASES[name].by_text_alone:
        want = budgets(*[6] * len(views))
        assert CASES[name].make(WORLDS["table"]).propose(views, want) == drafter.propose(views, want)
    for view in views * 2:
        drafter.end(view.id)


@every_case
@pytest.mark.parametrize("world", WORLDS)
@pytest.mark.parametrize("num_sequences", [1, 8])
def test_the_engine_says_the_same_with_it(name: str, world: str, num_sequences: int) -> None:
    prompts = [[*PROMPTS[i % len(PROMPTS)], i] for i in range(num_sequences)]
    for temperature in (0.0, 0.8):
        params = [params_of(name, temperature=temperature, max_tokens=14 + i, seed=i) for i in range(num_sequences)]
        plain = run(make_engine(WORLDS[world].decoder()), prompts, params)
        engine = make_engine(WORLDS[world].decoder(), CASES[name].make(WORLDS[world]), num_draft_tokens=5)
        for _ in range(2):  # the second time drafters have learned, and the cache has the prompts
            assert [*map(result, run(engine, prompts, params))] == [*map(result, plain)]


@pytest.mark.parametrize("name", [name for name in CASES if name not in ("none", "model-other", "prediction")])
def test_it_helps_where_a_text_repeats_itself(name: str) -> None:
    """No drafter passes by proposing nothing, or nothing right."""
    params = params_of(name, max_tokens=100)
    engine = make_engine(WORLDS["table"].decoder(), CASES[name].make(WORLDS["table"]))
    done = completion_of(run(engine, [[5]], params), methods=["x"], load_s=0.0)
    assert done.speculation.mean_acceptance_length > 1.5
