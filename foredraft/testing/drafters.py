"""Drafters that propose what a test wants them to.

Each keeps within its budget, counted in drafted tokens, and notes what the engine told it: `num_calls` (of
propose), `observed` (request id to the tokens last seen) and `forgotten` (request ids in order).
"""

from collections.abc import Mapping, Sequence

import numpy as np

from foredraft.drafters.base import Outcome, RequestView
from foredraft.sampling.choose import processed
from foredraft.sampling.drawing import Drawing, draw
from foredraft.sampling.noise import FloatArray, Noise
from foredraft.sampling.pick import top_perturbed
from foredraft.testing.table_model import TableModel
from foredraft.tree import Budget, DraftTree


class _Double:
    """The bookkeeping that all doubles share."""

    name = "double"
    free = True

    def __init__(self) -> None:
        self.num_calls = 0
        self.observed: dict[int, tuple[int, ...]] = {}
        self.forgotten: list[int] = []

    def propose(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> list[DraftTree]:
        """One tree for each request, of at most its budget of drafted tokens."""
        self.num_calls += 1
        return [self.draft(request, budget.num_tokens) for request, budget in zip(requests, budgets, strict=True)]

    def draft(self, request: RequestView, budget: int) -> DraftTree:
        """The tree for one request."""
        raise NotImplementedError

    def observe(self, requests: Sequence[RequestView], outcomes: Sequence[Outcome]) -> None:
        """Note the tokens of each request after a commit."""
        self.observed.update({request.id: tuple(request.tokens) for request in requests})

    def forget(self, request_id: int) -> None:
        """Note the end of a request."""
        self.observed.pop(request_id, None)
        self.forgotten.append(request_id)


class ScriptedDrafter(_Double):
    """Proposes the given chains, one a round for each request, and nothing after the last.

    rounds: for each round the tokens to draft; may be ragged, and empty in any round. A mapping gives each
    request id its own rounds; a request that is not in it gets no drafts.
    vocab_size: refuse ids outside the vocabulary here, with a ValueError; None: they are proposed as they
    are, to see what the engine makes of them.
    obey_budget: False proposes whole chains, whatever the budget.
    """

    name = "scripted"

    def __init__(
        self,
        rounds: Sequence[Sequence[int]] | Mapping[int, Sequence[Sequence[int]]],
        *,
        vocab_size: int | None = None,
        obey_budget: bool = True,
    ) -> None:
        super().__init__()
        self._rounds, self._obey_budget = rounds, obey_budget
        self._next_round: dict[int, int] = {}
        scripts = rounds.values() if isinstance(rounds, Mapping) else [rounds]
        tokens = [token for script in scripts for chain in script for token in chain]
        if vocab_size is not None and not all(0 <= token < vocab_size for token in tokens):
            raise ValueError(f"the script holds tokens outside the vocabulary of {vocab_size}")

    def draft(self, request: RequestView, budget: int) -> DraftTree:
        """The chain of this request's next round."""
        script = self._rounds.get(request.id, ()) if isinstance(self._rounds, Mapping) else self._rounds
        index = self._next_round.get(request.id, 0)
        self._next_round[request.id] = index + 1
        chain = tuple(script[index]) if index < len(script) else ()
        return DraftTree.chain(request.tokens[-1], chain[: max(budget, 0)] if self._obey_budget else chain)

    def forget(self, request_id: int) -> None:
        """Note the end of a request; one with the same id would start the script anew."""
        super().forget(request_id)
        self._next_round.pop(request_id, None)


class OracleDrafter(_Double):
    """Knows the output and proposes it, so that every draft is accepted.

    outputs: all the output tokens of a request, or a mapping from request ids to them. What lies beyond an
    end token or a limit is proposed too.
    """

    name = "oracle"

    def __init__(self, outputs: Sequence[int] | Mapping[int, Sequence[int]]) -> None:
        super().__init__()
        self._outputs = outputs

    def draft(self, request: RequestView, budget: int) -> DraftTree:
        """The next tokens of the known output, as many as the budget allows."""
        output = self._outputs[request.id] if isinstance(self._outputs, Mapping) else self._outputs
        num_output = len(request.tokens) - request.num_prompt_tokens
        return DraftTree.chain(request.tokens[-1], tuple(output[num_output : num_output + max(budget, 0)]))


class WrongDrafter(_Double):
    """Proposes the least likely tokens, and never the one the target chooses, so that every draft is
    rejected."""

    name = "wrong"

    def __init__(self, target: TableModel) -> None:
        super().__init__()
        self._target = target

    def draft(self, request: RequestView, budget: int) -> DraftTree:
        """A chain of wrong tokens, as long as the budget allows."""
        sequence = list(request.tokens)
        for _ in range(budget):
            path = sequence[len(request.tokens) :]
            right = self._target.next_token(sequence, request.params, request=request, path=path)
            by_rising_logit = np.argsort(self._target.logits(sequence), kind="stable")
            sequence.append(int(by_rising_logit[by_rising_logit != right][0]))
        return DraftTree.chain(request.tokens[-1], tuple(sequence[len(request.tokens) :]))


class DistDrafter(_Double):
    """Draws from the distribution of a model of its own, with all options of the request.

    shape: children of each node at each depth, in the order drawn: (1, 1, 1) is a chain of three, (3, 2) a tree of nine
    nodes below the root. The budget cuts the tree from its end, level by level.
    drawing: "coupled" takes the noise of the request, so that the most likely choices of the model come first;
    "independent" draws with numbers of its own and says from which distribution, children without replacement.
    """

    name = "dist"

    def __init__(self, model: TableModel, shape: Sequence[int] = (1, 1, 1, 1), *, drawing: Drawing = "coupled") -> None:
        super().__init__()
        self._model, self._shape, self._drawing = model, tuple(shape), drawing

    def draft(self, request: RequestView, budget: int) -> DraftTree:
        """A tree of the given shape, or its first nodes."""
        tokens, parents = [request.tokens[-1]], [-1]
        draft_probs: list[FloatArray | None] = [None]
        paths: list[tuple[int, ...]] = [()]
        level = [0]
        for num_children in self._shape:
            below: list[int] = []
            for node in level:
                for token, probs in self._children(request, paths[node], num_children, first_event=len(tokens)):
                    if len(tokens) > budget:
                        break
                    below.append(len(tokens))
                    tokens.append(token)
                    parents.append(node)
                    draft_probs.append(probs)
                    paths.append((*paths[node], token))
            level = below
        return DraftTree(tokens=tuple(tokens), parents=tuple(parents), draft_probs=tuple(draft_probs))

    def _children(
        self, request: RequestView, path: tuple[int, ...], num_children: int, *, first_event: int
    ) -> Sequence[tuple[int, FloatArray | None]]:
        sequence, params = [*request.tokens, *path], request.params
        logits = self._model.logits(sequence)
        if self._drawing == "independent" and not params.greedy:
            size = self._model.vocab_size
            return draw(logits, request, path, count=num_children, first_event=first_event, vocab_size=size)
        noise = None if params.seed is None else Noise(params.seed, request.choice, len(sequence))
        row = processed(logits, request, path)
        if row.max() == -np.inf:
            return []
        return [(token, None) for token in top_perturbed(row, params, noise, num_children)]
