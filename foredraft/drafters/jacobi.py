"""Drafts from the target's own guesses at the tokens to come, which every verify pass makes better.

Sources: Santilli et al., "Accelerating Transformer Inference for Translation via Parallel Decoding" (2023), for the
iteration of Jacobi; Fu et al., "Break the Sequential Dependency of LLM Inference Using Lookahead Decoding" (2024), for
the pool of n-grams that it leaves behind.

Below a drafted token that was wrong the target has still said what it would say next. That is a guess at the token
after the right one: often wrong, but better than the one before, since it was made with more of the text known. The
guesses are drafted again, and so on until they are right or overtaken. Only verified guesses become better, so the
method needs rounds that verify what is unlikely; each costs a token of the pass and nothing else.
"""

from collections import OrderedDict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from foredraft.drafters.base import Drafter, DrafterSpec, Outcome, SequenceView, no_draft
from foredraft.errors import ForedraftError
from foredraft.kernels.operations import Kernels
from foredraft.tree import Budget, DraftTree

WINDOW = 8
"""Guesses kept ahead of the text."""
GRAM_TOKENS = 4
"""Tokens of an n-gram, the one it is found by included."""
MAX_KEYS, MAX_GRAMS = 4096, 3
"""Most tokens of a sequence that n-grams are found by, and n-grams of each; those longest not seen go first."""
_MOST_LOOKED_AT = 16  # rows of logits of a sequence in a round
_PRIORS = {"gram": 0.4, "guess": 0.2}  # chances before anything was seen
_PRIOR_WEIGHT = 10.0
_MEMORY = 500.0  # cases after which older ones count half

Gram = tuple[int, ...]


@dataclass
class _Ahead:
    """What is kept of a sequence.

    guesses: the tokens that may follow the last one. pool: n-grams by their first token. proposed: the tree last
    proposed, where each of its nodes is from, and after how many tokens.
    """

    guesses: list[int] = field(default_factory=list)
    pool: OrderedDict[int, OrderedDict[Gram, None]] = field(default_factory=OrderedDict)
    proposed: DraftTree | None = None
    kinds: list[str] = field(default_factory=list)
    length: int = 0

    def remember(self, first: int, rest: Gram) -> None:
        """Put an n-gram into the pool, in place of a shorter one that it begins with."""
        grams = self.pool.setdefault(first, OrderedDict())
        self.pool.move_to_end(first)
        for known in list(grams):
            if known == rest[: len(known)]:
                del grams[known]
            elif rest == known[: len(rest)]:
                rest = known
        grams[rest] = None
        grams.move_to_end(rest)
        while len(grams) > MAX_GRAMS:
            grams.popitem(last=False)
        while len(self.pool) > MAX_KEYS:
            self.pool.popitem(last=False)

    def grams(self, first: int) -> Iterator[Gram]:
        """What followed a token, the latest first."""
        return reversed(self.pool.get(first, {}))


class JacobiDrafter(Drafter):
    """Proposes n-grams of earlier guesses, and the present ones, as branches of one tree.

    kernels: those of the target, to choose from its logits as it would.
    """

    spec = DrafterSpec(name="jacobi")

    def __init__(self, kernels: Kernels) -> None:
        self._kernels = kernels
        self._ahead: dict[int, _Ahead] = {}
        self._right = {kind: chance * _PRIOR_WEIGHT for kind, chance in _PRIORS.items()}
        self._cases = dict.fromkeys(_PRIORS, _PRIOR_WEIGHT)

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[Budget]) -> list[DraftTree]:
        """See `Drafter`."""
        return [
            self._propose_one(sequence, budget.num_tokens) if budget.num_tokens > 0 else no_draft(sequence)
            for sequence, budget in zip(sequences, budgets, strict=True)
        ]

    def _propose_one(self, sequence: SequenceView, budget: int) -> DraftTree:
        ahead = self._ahead.setdefault(sequence.id, _Ahead())
        if len(sequence.tokens) != ahead.length:
            _fill(ahead, sequence)
        tokens, parents, kinds = [sequence.tokens[-1]], [-1], [""]
        nodes: dict[tuple[int, int], int] = {}
        grams = [("gram", gram) for gram in ahead.grams(sequence.tokens[-1])]
        guesses = tuple(ahead.guesses)
        # Guesses that are never verified never become better: half of the budget is theirs.
        branches = [("guess", guesses[: -(-budget // 2)]), *grams, ("guess", guesses)]
        for kind, branch in branches:
            parent = 0
            for token in branch:
                node = nodes.get((parent, token))
                if node is None:
                    if len(tokens) > budget:
                        break
                    node = nodes[parent, token] = len(tokens)
                    tokens.append(token)
                    parents.append(parent)
                    kinds.append(kind)
                parent = node
        confidence = (1.0, *(self._chance(kind) for kind in kinds[1:]))
        ahead.proposed = DraftTree(tuple(tokens), tuple(parents), confidence)
        ahead.kinds, ahead.length = kinds, len(sequence.tokens)
        return ahead.proposed

    def _chance(self, kind: str) -> float:
        return self._right[kind] / self._cases[kind]

    def observe(self, sequences: Sequence[SequenceView], outcomes: Sequence[Outcome]) -> None:
        """See `Drafter`. The tree verified may be anyone's: what the target says after its nodes is as good."""
        for sequence, outcome in zip(sequences, outcomes, strict=True):
            ahead = self._ahead.setdefault(sequence.id, _Ahead())
            begin = len(sequence.tokens) - len(outcome.path) - 1
            if ahead.proposed is not None and ahead.length == begin:
                self._count(ahead, ahead.proposed, sequence.tokens[begin:])
            ahead.proposed = None
            self._refine(ahead, sequence, outcome, begin)

    def _count(self, ahead: _Ahead, tree: DraftTree, followed: Sequence[int]) -> None:
        """Learn how often proposals were right, of those whose parent was."""
        for _, nodes, right in tree.compared(followed):
            for node in nodes:
                kind = ahead.kinds[node]
                self._cases[kind] += 1
                self._right[kind] += node == right
                if self._cases[kind] > _MEMORY:
                    self._cases[kind] /= 2
                    self._right[kind] /= 2

    def _refine(self, ahead: _Ahead, sequence: SequenceView, outcome: Outcome, begin: int) -> None:
        """New guesses from what the target said below the token that was wrong; n-grams from all it said."""
        tree = outcome.tree
        below = _longest_branch(tree, outcome.path[-1] if outcome.path else 0)
        said = {
            node: self._said(sequence, outcome, node, begin) for node in (0, *outcome.path, *below)[-_MOST_LOOKED_AT:]
        }
        guesses = [token for node in below if (token := said.get(node)) is not None]
        drafted = [tree.tokens[node] for node in below]
        for token, node in zip(drafted, below, strict=True):
            if (next_token := said.get(node)) is not None:
                ahead.remember(token, (next_token,))
        for text in (guesses, sequence.tokens[max(0, begin - GRAM_TOKENS) :]):  # what was said for sure comes last
            for start in range(len(text) - 1):
                ahead.remember(text[start], tuple(text[start + 1 : start + GRAM_TOKENS]))
        ahead.guesses = guesses + ahead.guesses[len(sequence.tokens) - begin + len(guesses) :]
        _fill(ahead, sequence)

    def _said(self, sequence: SequenceView, outcome: Outcome, node: int, begin: int) -> int | None:
        """The token that the target chose after a node, or would have; options on earlier tokens apart."""
        params = sequence.params
        try:
            [token] = self._kernels.pick(
                outcome.logits_NV[node],
                temperature=params.temperature,
                top_k=params.top_k,
                top_p=params.top_p,
                min_p=params.min_p,
                noise=(params.seed or 0, sequence.sample_index, begin + outcome.tree.depths[node]),
            )
        except ForedraftError:  # not a number, after a token that was not accepted
            return None
        return token

    def end(self, sequence_id: int) -> None:
        """See `Drafter`. Nothing of a sequence is used for another."""
        self._ahead.pop(sequence_id, None)


def _fill(ahead: _Ahead, sequence: SequenceView) -> None:
    """Complete the guesses: along the pool as far as it goes, then with any tokens of the prompt."""
    ahead.length = len(sequence.tokens)
    del ahead.guesses[WINDOW:]
    while len(ahead.guesses) < WINDOW:
        last = ahead.guesses[-1] if ahead.guesses else sequence.tokens[-1]
        gram = next(ahead.grams(last), None)
        place = (len(sequence.tokens) + len(ahead.guesses)) * 7 % sequence.num_prompt_tokens
        ahead.guesses.extend((sequence.tokens[place],) if gram is None else gram[: WINDOW - len(ahead.guesses)])


def _longest_branch(tree: DraftTree, node: int) -> list[int]:
    """The nodes of the longest way down from a node, without it; of equally long ones the first."""
    height = [0] * tree.num_nodes
    for child in range(tree.num_nodes - 1, 0, -1):
        height[tree.parents[child]] = max(height[tree.parents[child]], height[child] + 1)
    branch: list[int] = []
    while children := tree.children(node):
        node = max(children, key=lambda child: height[child])
        branch.append(node)
    return branch
