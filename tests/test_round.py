"""One round, looked at from outside: what is kept, counted, committed and told to the drafter."""

from helpers.engines import table_decoder

from foredraft.drafters.base import Drafter
from foredraft.planner import FixedPlanner
from foredraft.round import RoundRequest, run_round
from foredraft.sampling import SamplingParams
from foredraft.testing import ScriptedDrafter, TableModel
from foredraft.tree import DraftTree
from foredraft.verify import Verifier

V = 40
MODEL = TableModel(2, V, seed=5)
DECODER, _ = table_decoder(MODEL)
VERIFIER = Verifier(DECODER, V)
PROMPT = [1, 2, 3]
SAID = MODEL.generate(PROMPT, SamplingParams(), 20)
WRONG = (SAID[0] + 1) % V


def request(id: int = 0, prompt: list[int] = PROMPT, max_length: int = 100) -> RoundRequest:
    sequence, _ = VERIFIER.open(prompt)
    return RoundRequest(id, list(prompt), len(prompt), SamplingParams(seed=0), max_length, sequence)


def play(drafter: Drafter, requests: list[RoundRequest], *, keep: int = 99, budget: int = 8) -> list[tuple[int, int]]:
    """Drafted and accepted tokens of each request."""

    def emit(request: RoundRequest, tokens: tuple[int, ...]) -> int:
        request.tokens.extend(tokens[:keep])
        return min(keep, len(tokens))

    report = run_round(requests, FixedPlanner(drafter, budget), VERIFIER, emit)
    for one in requests:
        assert one.sequence.tokens == one.tokens[:-1]
    return [(one.num_draft_tokens, one.num_accepted_tokens) for one in report.outcomes]


class Tree(ScriptedDrafter):
    """Proposes a fixed tree below whatever the root is."""

    def __init__(self, tokens: tuple[int, ...], parents: tuple[int, ...]) -> None:
        super().__init__([])
        self._tokens, self._parents = tokens, parents

    def draft(self, request: RoundRequest, budget: int) -> DraftTree:
        return DraftTree((request.tokens[-1], *self._tokens), (-1, *self._parents))


def test_right_half_right_and_wrong_chains() -> None:
    """Kind: after a rejection the next token is taken from the wrong row, or a position too many stays cached."""
    for chain, accepted in [
        ([], 0),
        ([WRONG], 0),
        ([WRONG, SAID[1]], 0),
        (SAID[:1], 1),
        ([*SAID[:3], WRONG, SAID[4]], 3),
        (SAID[:8], 8),
    ]:
        one = request()
        [result] = play(ScriptedDrafter([chain]), [one])
        assert result == (len(chain), accepted)
        assert one.tokens == [*PROMPT, *SAID[: accepted + 1]]
        one.sequence.close()


def test_a_chain_given_as_a_tree_is_a_chain() -> None:
    """Kind: a tree that is really a chain is refused, or computed in another way."""
    one, two = request(0), request(1)
    [first] = play(ScriptedDrafter([SAID[:4]]), [one])
    [second] = play(Tree(tuple(SAID[:4]), (0, 1, 2, 3)), [two])
    assert (first, one.tokens) == (second, two.tokens)


def test_branches_move_to_where_they_belong() -> None:
    """Kind: the accepted branch stays in the slots of the tree, so that later tokens see the wrong ones."""
    a, b, c = SAID[:3]
    tokens = (WRONG, a, WRONG, (b + 1) % V, b, WRONG, c)
    one = request()
    [result] = play(Tree(tokens, (0, 0, 1, 2, 2, 3, 5)), [one])
    assert result == (7, 3)
    assert one.tokens == [*PROMPT, *SAID[:4]]
    for _ in range(3):  # the table reads the cache: it would show what was left behind
        play(ScriptedDrafter([]), [one])
    assert one.tokens == [*PROMPT, *SAID[:7]]


def test_five_shapes_one_text() -> None:
    a, b, c = SAID[:3]
    for tokens, parents in [
        ((), ()),
        ((a, b, c), (0, 1, 2)),
        ((WRONG, a), (0, 0)),
        ((a, WRONG, b, WRONG), (0, 0, 1, 1)),
        ((WRONG, a, b, (c + 1) % V, c), (0, 0, 2, 3, 3)),
    ]:
        one = request()
        play(Tree(tokens, parents), [one])
        while len(one.tokens) < 14:
            play(ScriptedDrafter([]), [one])
        assert one.tokens == [*PROMPT, *SAID[:11]]


def test_a_request_may_end_anywhere_in_a_round() -> None:
    """Kind: tokens accepted beyond the end stay in the cache."""
    for keep in range(1, 6):
        one = request()
        [result] = play(ScriptedDrafter([SAID[:4]]), [one], keep=keep)
        assert result == (4, min(4, keep))
        assert one.tokens == [*PROMPT, *SAID[:keep]]


def test_the_drafter_is_asked_only_where_something_fits() -> None:
    drafter = ScriptedDrafter([SAID[:4]])
    one, two = request(0, max_length=4), request(1, max_length=4)
    assert play(drafter, [one, two]) == [(0, 0)] * 2
    assert drafter.num_calls == 0
    assert drafter.observed == {0: (*PROMPT, SAID[0]), 1: (*PROMPT, SAID[0])}
    three, four = request(2, max_length=4), request(3, max_length=6)
    assert play(ScriptedDrafter([SAID[:4]], obey_budget=False), [three, four]) == [(0, 0), (2, 2)]


def test_ragged_drafts_keep_to_their_requests() -> None:
    """Kind: rows are taken from a neighbour when one request has no draft."""
    prompts = [[i, i + 1, i + 2] for i in range(6)]
    said = [MODEL.generate(prompt, SamplingParams(), 9) for prompt in prompts]
    script = {i: [tokens[: i % 4]] for i, tokens in enumerate(said)}
    requests = [request(i, prompt) for i, prompt in enumerate(prompts)]
    results = play(ScriptedDrafter(script), requests)
    assert results == [(i % 4, i % 4) for i in range(6)]
    for one, tokens in zip(requests, said, strict=True):
        assert one.tokens[3:] == tokens[: one.id % 4 + 1]
