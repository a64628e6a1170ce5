"""Drafts from a second, smaller model: a chain, or a tree of its likeliest tokens.

Source: Leviathan et al., "Fast Inference from Transformers via Speculative Decoding" (2023); Chen et al. (2023). The
drafter draws with the noise of the target (coupled sampling, see `foredraft.sampling`), so what both find likely,
both choose. Trees grow where they are likely to be accepted, as in Li et al., "EAGLE-2" (2024).
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile
from typing import NamedTuple

import numpy as np

from foredraft.cache import CacheSequence
from foredraft.drafters.base import Outcome, RequestView, no_draft
from foredraft.errors import ForedraftError
from foredraft.kernels.batch import Ints
from foredraft.kernels.operations import Floats
from foredraft.models.cached_decoder import CachedDecoder, Entry
from foredraft.sampling import Choosing, choose_processed, coupled_chances, draw, processed
from foredraft.sampling.noise import FloatArray
from foredraft.tree import Budget, DraftTree

MAX_BRANCHES = 16
_NUM_RIVALS = 4  # tokens that a confidence weighs against each other one by one, at least
_RIGHT_AT_FIRST, _WRONG_BEFORE = 0.7, 0.3  # rough chances of drawn children, by their place alone
_MAX_ROWS = 8  # nodes of one request in a pass: more would cost the model noticeably more than one

Original = Callable[[RequestView], Choosing]


@dataclass
class _Read:
    """What the drafter's model has read of a request.

    sequence: tokens read for good. num_left_out: tokens before these, which are not read at all. tokens, parents: a
    tree of tokens behind them, as yet undecided, the first `num_run` of which were run; its root is the token after
    those of the sequence. begun: whether more was read than what was kept of earlier requests.
    """

    sequence: CacheSequence
    num_left_out: int = 0
    tokens: list[int] = field(default_factory=list)
    parents: list[int] = field(default_factory=list)
    num_run: int = 0
    begun: bool = False

    @property
    def end(self) -> int:
        """Place in the request behind what was read for good."""
        return self.num_left_out + len(self.sequence)


class _Choice(NamedTuple):
    """A token that may follow: see `_Candidate`."""

    token: int
    name: int
    confidence: float
    draft_probs_V: FloatArray | None = None


@dataclass
class _Candidate:
    """A token that may be drafted.

    token, name: as the drafter's model knows it, and as the target does. parent: index of a candidate, -1 where it
    follows the request's last token. draft_probs_V: what it was drawn from, where it was.
    """

    token: int
    name: int
    parent: int
    confidence: float
    survival: float
    depth: int
    draft_probs_V: FloatArray | None = None
    expanded: bool = False


@dataclass
class _Growing:
    """A tree in the making, for one request.

    end_ids: names of tokens after which nothing follows. max_depth: as far as the context of the model reaches.
    sources: for each row of the next pass whose logits are wanted, the candidate that they follow, -1 for the root.
    nodes: where each expanded candidate is in the tree that is run; the root's place is under -1.
    """

    request: RequestView
    read: _Read
    budget: Budget
    end_ids: frozenset[int]
    max_depth: int
    candidates: list[_Candidate] = field(default_factory=list)
    sources: list[int] = field(default_factory=lambda: [-1])
    nodes: dict[int, int] = field(default_factory=dict)
    num_ready: int = 0

    def start(self) -> None:
        """Lay out what the model has not read: tokens of the request down to the root."""
        pending = list(self.request.tokens[self.read.end :])
        self.read.tokens, self.read.parents = pending, list(range(-1, len(pending) - 1))
        self.nodes[-1] = len(pending) - 1

    def entry(self) -> Entry:
        """The next pass."""
        tree = DraftTree(tuple(self.read.tokens), tuple(self.read.parents))
        return Entry(self.read.sequence, tree, "all" if self.num_ready else "last", self.num_ready)

    def path(self, source: int) -> list[int]:
        """The names of the tokens from below the root down to a candidate; empty for the root, -1."""
        names: list[int] = []
        while source >= 0:
            names.append(self.candidates[source].name)
            source = self.candidates[source].parent
        return names[::-1]

    def add(self, source: int, choices: Sequence[_Choice]) -> None:
        """Note the likeliest tokens after a candidate."""
        survival, depth = 1.0, 1
        if source >= 0:
            survival, depth = self.candidates[source].survival, self.candidates[source].depth + 1
        for token, name, confidence, draft_probs_V in choices:
            survives = survival * self.budget.chance(confidence, depth)
            self.candidates.append(_Candidate(token, name, source, confidence, survives, depth, draft_probs_V))

    def best(self, number: int) -> list[int]:
        """The candidates most likely to be accepted, best first; none before its parent."""
        order = sorted(range(len(self.candidates)), key=lambda index: -self.candidates[index].survival)
        return order[:number]

    def descend(self) -> None:
        """Lay out the next level: what follows may be better than the worst of what there is."""
        self.num_ready = len(self.read.tokens)
        self.sources = [index for index in self.best(self.budget.num_tokens - 1) if self._may_grow(index)][:_MAX_ROWS]
        for index in self.sources:
            candidate = self.candidates[index]
            candidate.expanded = True
            self.nodes[index] = len(self.read.tokens)
            self.read.tokens.append(candidate.token)
            self.read.parents.append(self.nodes[candidate.parent])

    def _may_grow(self, index: int) -> bool:
        candidate = self.candidates[index]
        if not self.budget.goes_on(candidate.survival, candidate.depth):
            return False
        return not candidate.expanded and candidate.name not in self.end_ids and candidate.depth < self.max_depth

    def tree(self) -> DraftTree:
        """The best candidates, within the budget."""
        chosen = sorted(self.best(self.budget.num_tokens))
        index = {-1: 0} | {candidate: node for node, candidate in enumerate(chosen, start=1)}
        picked = [self.candidates[candidate] for candidate in chosen]
        return DraftTree(
            tokens=(self.request.tokens[-1], *(c.token for c in picked)),
            parents=(-1, *(index[c.parent] for c in picked)),
            confidence=(1.0, *(c.confidence for c in picked)),
            draft_probs=(None, *(c.draft_probs_V for c in picked)),
        )


class ModelDrafter:
    """Proposes what a model finds likely. A `CostlyDrafter`.

    decoder: the drafter's model.
    vocab_size: the real tokens it shares with the target; others are never proposed.
    token_ids: the tokens that its logits belong to, in rising order and all real, where some were left out to make
    the drafter cheaper; None: the i-th logit is token i's.
    own_ids: the same tokens as the drafter's model reads and proposes them, where it has another vocabulary than the
    target. `token_ids` then are the target's names of them, which the noise goes by, and from `vocab_size` on stand
    for tokens that the target does not have. original: from a request in the drafter's tokens to the target's own.
    num_branches: tokens that may follow each; 1 drafts chains.
    draws_over: size of the target's vocabulary, to draw tokens with numbers of the drafter's own where a request
    samples, and say from which distribution over it. None, or with `own_ids`: share the target's noise.
    end_ids: names of tokens that end a text. A request that does not ignore them gets nothing drafted behind one.

    A request for which the model computes logits that are not numbers gets no more drafts from it: `problem` then
    says so, and `num_given_up` counts them.
    """

    identity = ""

    def __init__(
        self,
        decoder: CachedDecoder,
        *,
        vocab_size: int,
        token_ids: Ints | None = None,
        own_ids: Ints | None = None,
        original: Original = lambda request: request,
        num_branches: int = 1,
        draws_over: int | None = None,
        end_ids: frozenset[int] = frozenset(),
        name: str = "model",
    ) -> None:
        self.name = name
        self.free = False
        self.problem = ""
        self.num_given_up = 0
        self._decoder = decoder
        self._token_ids = np.arange(vocab_size, dtype=np.int32) if token_ids is None else token_ids
        self._own_ids = self._token_ids if own_ids is None else own_ids
        self._original = original
        self._num_shared = int(np.searchsorted(self._token_ids, vocab_size))
        self._num_branches = num_branches
        self._draws_over = draws_over if own_ids is None else None
        self._end_ids = end_ids
        self._read: dict[int, _Read] = {}
        self._given_up: set[int] = set()

    def propose(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> list[DraftTree]:
        """See `Drafter`. Requests beyond the context of the model get no draft."""
        growing: dict[int, _Growing] = {}
        for request, budget in zip(requests, budgets, strict=True):
            if budget.num_tokens > 0 and self._can_draft(request):
                self.read(request, len(request.tokens), most_left=1)  # a single one rides along with the root
                read = self._read[request.id]
                max_depth = self._decoder.config.context_length - len(request.tokens) + read.num_left_out
                growing[request.id] = _Growing(request, read, budget, self._ends(request), max_depth)
                growing[request.id].start()
        level = list(growing.values())
        while level:
            self._grow(level)
            for one in level:
                one.descend()
            level = [one for one in level if one.sources and one.request.id not in self._given_up]
        drafted = growing.keys() - self._given_up
        return [growing[one.id].tree() if one.id in drafted else no_draft(one) for one in requests]

    def _ends(self, request: RequestView) -> frozenset[int]:
        own = frozenset() if request.params.ignore_eos else self._end_ids
        return own.union(request.params.stop_token_ids)

    def _can_draft(self, request: RequestView) -> bool:
        """Whether the text leaves room in the context, and the model knows each token and is sound for it."""
        read, config = self._read.get(request.id), self._decoder.config
        begin, end = (read.num_left_out, read.end) if read else (0, 0)
        if request.id in self._given_up or len(request.tokens) - begin >= config.context_length:
            return False
        return all(0 <= token < config.vocab_size for token in request.tokens[end:])

    def _grow(self, level: Sequence[_Growing]) -> None:
        """One forward pass for all requests, and the tokens that may follow each node that was run."""
        for one, logits in zip(level, self._decoder.forward([one.entry() for one in level]), strict=True):
            one.read.num_run, one.read.begun = len(one.read.tokens), True
            try:
                for source, row in zip(one.sources, logits, strict=True):
                    one.add(source, self._following(row, one, source))
            except ForedraftError as error:  # the logits are not numbers
                self._give_up(one.request, error)

    def _following(self, row: Floats, one: _Growing, source: int) -> list[_Choice]:
        """The tokens that may follow a candidate."""
        request, path = self._original(one.request), one.path(source)
        if self._draws_over is None or request.params.greedy:
            return self._choices(row, request, path)
        ids = self._token_ids[: np.searchsorted(self._token_ids, self._draws_over)]
        drawn = draw(
            row[: len(ids)],
            request,
            path,
            count=self._num_branches,
            first_event=len(one.candidates),
            vocab_size=self._draws_over,
            token_ids=ids,
        )
        # A confidence that looked at what was drawn would bias what is kept of the tree.
        confidences = [_RIGHT_AT_FIRST * _WRONG_BEFORE**place for place in range(len(drawn))]
        return [_Choice(t, t, confidence, row_V) for (t, row_V), confidence in zip(drawn, confidences, strict=True)]

    def _choices(self, row: Floats, request: Choosing, path: Sequence[int]) -> list[_Choice]:
        """The tokens that may follow, the one the model would choose first, with the chances that they are right."""
        ids = self._token_ids
        if request.processors is not None:
            ids = ids[: self._num_shared]  # options are about the target's tokens
        row = processed(row[: len(ids)], request, path, token_ids=ids)
        count = self._num_branches if request.params.greedy else max(self._num_branches, _NUM_RIVALS)
        chosen = choose_processed(self._decoder.kernels, row, request, len(path), count=count, token_ids=ids)
        if not chosen:
            return []
        names = np.array(chosen, dtype=np.int32)
        indices = np.searchsorted(ids, names).astype(np.int32)
        noise = (request.params.seed or 0, request.choice, len(request.tokens) + len(path))
        first = self._decoder.kernels.token_probability(row, int(indices[0]), 0.0)
        chances = coupled_chances(first, row, indices, names, request.params.temperature, noise)
        choices = zip(self._own_ids[indices].tolist(), chosen, chances, strict=True)
        return [_Choice(*choice) for choice in choices][: self._num_branches]

    def _give_up(self, request: RequestView, error: ForedraftError) -> None:
        """Ask the model for this request no more."""
        if not self.num_given_up:
            self.problem = f"{self.name}: {error}; it drafts no more for such requests"
            logging.getLogger("foredraft").warning(self.problem)
        self.num_given_up += 1
        self._given_up.add(request.id)
        read = self._read.pop(request.id)
        read.sequence.truncate(0)  # nothing of it is to be found by others
        read.sequence.close()

    def read(self, request: RequestView, num_tokens: int, *, most_left: int = 0) -> None:
        """Read at most `num_tokens` of the tokens that `num_unread` counts; nothing where `most_left` are unread.

        So a long prompt can be read over several rounds. A request that the model cannot draft for is not read.
        """
        if not self._can_draft(request):
            return
        read = self._opened(request)
        missing = request.tokens[read.end : min(len(request.tokens) - 1, read.end + num_tokens)]
        if len(missing) > most_left:
            self._decoder.prefill(read.sequence, missing)
            read.begun = True

    def _opened(self, request: RequestView) -> _Read:
        """What was read of the request; at first, what is kept of earlier ones that begin alike."""
        self._settle(request)
        read = self._read.get(request.id)
        if read is None:
            read = self._read[request.id] = _Read(self._decoder.cache.open(request.tokens))
        return read

    def _settle(self, request: RequestView) -> None:
        """Keep what was read of the request, and of the last tree what has become part of it."""
        read = self._read.get(request.id)
        if read is None:
            return
        tokens, parents = tuple(read.tokens[: read.num_run]), tuple(read.parents[: read.num_run])
        read.tokens, read.parents, read.num_run = [], [], 0
        if read.num_left_out >= len(request.tokens):  # a text in other tokens may become shorter
            self._close(request.id)
            return
        committed = request.tokens[read.num_left_out : -1]
        shared = _common_prefix(read.sequence.tokens, committed)
        if shared < len(read.sequence):
            read.sequence.truncate(shared)
        elif tokens and shared < len(committed) and committed[shared] == tokens[0]:
            tree = DraftTree(tokens, parents)
            self._decoder.commit(read.sequence, tree, _path(tree, committed[shared + 1 :]))

    def num_unread(self, request: RequestView) -> int:
        """See `CostlyDrafter`. Of a request that the model cannot draft for, nothing will ever be read."""
        return len(request.tokens) - 1 - self._opened(request).end if self._can_draft(request) else 0

    def read_only_end(self, request: RequestView, num_tokens: int) -> None:
        """See `LateReader`."""
        if not self._can_draft(request):
            return
        read, num_left_out = self._opened(request), len(request.tokens) - 1 - num_tokens
        if not read.begun and read.end < num_left_out:
            self._close(request.id)
            self._read[request.id] = _Read(self._decoder.cache.open(request.tokens[num_left_out:]), num_left_out)

    def _close(self, request_id: int) -> None:
        read = self._read.pop(request_id, None)
        if read is not None:
            read.sequence.close()

    def time_step(self, *, num_tokens: int, context: int) -> float:
        """See `CostlyDrafter`."""
        return self._decoder.time_forward(num_tokens=num_tokens, context=context)

    def observe(self, requests: Sequence[RequestView], outcomes: Sequence[Outcome]) -> None:
        """Nothing to do: the cache is brought in line when the request is next looked at."""

    def forget(self, request_id: int) -> None:
        """See `Drafter`. What the model has read stays findable for requests that begin alike."""
        self._given_up.discard(request_id)
        self._close(request_id)

    def forget_texts(self) -> None:
        """Drop what is kept of requests that have ended: another one that begins alike is read anew."""
        self._decoder.cache.pool.forget_kept()


def _common_prefix(cached: Sequence[int], tokens: Sequence[int]) -> int:
    """How many tokens at the start are the same."""
    length = min(len(cached), len(tokens))
    if cached[:length] == tokens[:length]:
        return length
    return sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(cached, tokens, strict=False)))


def _path(tree: DraftTree, tokens: Sequence[int]) -> list[int]:
    """The nodes below the root that hold the tokens, as far as they go."""
    path = [0]
    for token in tokens:
        node = tree.child(path[-1], token)
        if node is None:
            break
        path.append(node)
    return path[1:]
