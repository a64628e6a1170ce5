"""Drafters that propose what a test wants them to.

Each keeps within its budget, counted in drafted tokens, and notes what the engine told it: `num_calls` (of propose),
`begun` (sequence id to the number of tokens computed outside of rounds), `observed` (sequence id to the tokens last
seen) and `ended` (sequence ids in order).
"""

from abc import abstractmethod
from collections.abc import Mapping, Sequence

import numpy as np

from foredraft.drafters.base import Drafter, DrafterSpec, Outcome, PromptFeatures, SequenceView
from foredraft.sampling.choose import processed
from foredraft.sampling.drawing import Drawing, draw
from foredraft.sampling.noise import FloatArray, Noise
from foredraft.sampling.pick import top_perturbed
from foredraft.testing.table_model import TableModel
from foredraft.tree import Budget, DraftTree


class Double(Drafter):
    """The bookkeeping that all doubles share."""

    def __init__(self) -> None:
        self.num_calls = 0
        self.begun: dict[int, int] = {}
        self.observed: dict[int, tuple[int, ...]] = {}
        self.ended: list[int] = []

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[Budget]) -> list[DraftTree]:
        """One tree for each sequence, of at most its budget of drafted tokens."""
        self.num_calls += 1
        return [self.draft(sequence, budget.num_tokens) for sequence, budget in zip(sequences, budgets, strict=True)]

    @abstractmethod
    def draft(self, sequence: SequenceView, budget: int) -> DraftTree:
        """The tree for one sequence."""

    def begin(self, sequence: SequenceView, features: PromptFeatures) -> None:
        """Note how many tokens were computed."""
        self.begun[sequence.id] = self.begun.get(sequence.id, 0) + features.num_tokens

    def observe(self, sequences: Sequence[SequenceView], outcomes: Sequence[Outcome]) -> None:
        """Note the tokens of each sequence after a commit."""
        self.observed.update({sequence.id: tuple(sequence.tokens) for sequence in sequences})

    def end(self, sequence_id: int) -> None:
        """Note the end of a sequence."""
        self.begun.pop(sequence_id, None)
        self.observed.pop(sequence_id, None)
        self.ended.append(sequence_id)


class ScriptedDrafter(Double):
    """Proposes the given chains, one a round for each sequence, and nothing after the last.

    rounds: for each round the tokens to draft; may be ragged, and empty in any round. A mapping gives each sequence id
    its own rounds; a sequence that is not in it gets no drafts.
    vocab_size: refuse ids outside the vocabulary here, with a ValueError; None: they are proposed as they are, to see
    what the engine makes of them.
    obey_budget: False proposes whole chains, whatever the budget.
    """

    spec = DrafterSpec(name="scripted")

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

    def draft(self, sequence: SequenceView, budget: int) -> DraftTree:
        """The chain of this sequence's next round."""
        script = self._rounds.get(sequence.id, ()) if isinstance(self._rounds, Mapping) else self._rounds
        index = self._next_round.get(sequence.id, 0)
        self._next_round[sequence.id] = index + 1
        chain = tuple(script[index]) if index < len(script) else ()
        return DraftTree.chain(sequence.tokens[-1], chain[: max(budget, 0)] if self._obey_budget else chain)

    def end(self, sequence_id: int) -> None:
        """Note the end of a sequence; one with the same id would start the script anew."""
        super().end(sequence_id)
        self._next_round.pop(sequence_id, None)


class OracleDrafter(Double):
    """Knows the output and proposes it, so that every draft is accepted.

    outputs: all the output tokens of a sequence, or a mapping from sequence ids to them. What lies beyond an end token
    or a limit is proposed too.
    """

    spec = DrafterSpec(name="oracle")

    def __init__(self, outputs: Sequence[int] | Mapping[int, Sequence[int]]) -> None:
        super().__init__()
        self._outputs = outputs

    def draft(self, sequence: SequenceView, budget: int) -> DraftTree:
        """The next tokens of the known output, as many as the budget allows."""
        output = self._outputs[sequence.id] if isinstance(self._outputs, Mapping) else self._outputs
        num_output = len(sequence.tokens) - sequence.num_prompt_tokens
        return DraftTree.chain(sequence.tokens[-1], tuple(output[num_output : num_output + max(budget, 0)]))


class WrongDrafter(Double):
    """Proposes the least likely tokens, and never the one the target chooses, so that every draft is rejected."""

    spec = DrafterSpec(name="wrong")

    def __init__(self, target: TableModel) -> None:
        super().__init__()
        self._target = target

    def draft(self, sequence: SequenceView, budget: int) -> DraftTree:
        """A chain of wrong tokens, as long as the budget allows."""
        path: list[int] = []
        for _ in range(budget):
            tokens = [*sequence.tokens, *path]
            right = self._target.next_token(tokens, sequence.params, sequence=sequence, path=path)
            by_rising_logit = np.argsort(self._target.logits(tokens), kind="stable")
            path.append(int(by_rising_logit[by_rising_logit != right][0]))
        return DraftTree.chain(sequence.tokens[-1], tuple(path))


class DistDrafter(Double):
    """Draws from the distribution of a model of its own, with all options of the sequence.

    shape: children of each node at each depth, in the order drawn: (1, 1, 1) is a chain of three, (3, 2) a tree of nine
    nodes below the root. The budget cuts the tree from its end, level by level.
    drawing: "coupled" takes the noise of the sequence, so that the most likely choices of the model come first;
    "independent" draws with numbers of its own and says from which distribution, children without replacement.
    """

    spec = DrafterSpec(name="dist")

    def __init__(self, model: TableModel, shape: Sequence[int] = (1, 1, 1, 1), *, drawing: Drawing = "coupled") -> None:
        super().__init__()
        self._model, self._shape, self._drawing = model, tuple(shape), drawing

    def draft(self, sequence: SequenceView, budget: int) -> DraftTree:
        """A tree of the given shape, or its first nodes."""
        tokens, parents = [sequence.tokens[-1]], [-1]
        draft_probs: list[FloatArray | None] = [None]
        paths: list[tuple[int, ...]] = [()]
        level = [0]
        for num_children in self._shape:
            below: list[int] = []
            for node in level:
                for token, probs in self._children(sequence, paths[node], num_children, first_event=len(tokens)):
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
        self, sequence: SequenceView, path: tuple[int, ...], num_children: int, *, first_event: int
    ) -> Sequence[tuple[int, FloatArray | None]]:
        tokens, params = [*sequence.tokens, *path], sequence.params
        logits_V = self._model.logits(tokens)
        if self._drawing == "independent" and not params.greedy:
            size = self._model.vocab_size
            return draw(logits_V, sequence, path, count=num_children, first_event=first_event, vocab_size=size)
        noise = None if params.seed is None else Noise(params.seed, sequence.sample_index, len(tokens))
        row_V = processed(logits_V, sequence, path)
        if row_V.max() == -np.inf:
            return []
        return [(token, None) for token in top_perturbed(row_V, params, noise, num_children)]
