"""Drafts from a second, smaller model: a chain, or a tree of its likeliest tokens.

Source: Leviathan et al., "Fast Inference from Transformers via Speculative Decoding" (2023); Chen et al. (2023). The
drafter draws with the noise of the target (coupled sampling, see `foredraft.sampling`), so what both find likely,
both choose.
"""

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import takewhile

import numpy as np

from foredraft.cache import BlockTable, OutOfBlocksError
from foredraft.drafters.base import Drafter, DrafterSpec, SequenceView, no_draft
from foredraft.drafters.growth import Following, Growth
from foredraft.errors import ForedraftError
from foredraft.kernels.batch import Ints
from foredraft.kernels.operations import Floats
from foredraft.models.cached_decoder import CachedDecoder, Entry
from foredraft.sampling import choose_processed, coupled_chances, draw, processed
from foredraft.tree import Budget, DraftTree

_NUM_RIVALS = 4  # tokens that a confidence weighs against each other one by one, at least
_RIGHT_AT_FIRST, _WRONG_BEFORE = 0.7, 0.3  # rough chances of drawn children, by their place alone

Original = Callable[[SequenceView], SequenceView]


@dataclass
class _Computed:
    """What the drafter's model has computed of a sequence.

    tokens: whose keys and values are in its cache for good. num_left_out: tokens before these, which are not computed
    at all. tree: tokens behind them that were run as yet undecided; its root is the token after `tokens`.
    begun: whether more was computed than what was found of earlier sequences.
    """

    blocks: BlockTable
    tokens: list[int] = field(default_factory=list)
    num_left_out: int = 0
    tree: DraftTree | None = None
    begun: bool = False

    @property
    def end(self) -> int:
        """Place in the sequence behind what was computed for good."""
        return self.num_left_out + len(self.tokens)


class ModelDrafter(Drafter):
    """Proposes what a model finds likely.

    decoder: the drafter's model.
    vocab_size: the real tokens it shares with the target; others are never proposed.
    token_ids: the tokens that its logits belong to, in rising order and all real, where some were left out to make
    the drafter cheaper; None: the i-th logit is token i's.
    own_ids: the same tokens as the drafter's model computes and proposes them, where it has another vocabulary than the
    target. `token_ids` then are the target's names of them, which the noise goes by, and from `vocab_size` on stand
    for tokens that the target does not have. original: from a sequence in the drafter's tokens to the target's own.
    num_branches: tokens that may follow each; 1 drafts chains.
    draws_over: size of the target's vocabulary, to draw tokens with numbers of the drafter's own where a sequence is
    sampled, and say from which distribution over it. None, or with `own_ids`: share the target's noise.
    end_ids: names of tokens that end a text. A sequence that does not ignore them gets nothing drafted behind one.
    name, identity: of its spec.

    A sequence for which the model computes logits that are not numbers gets no more drafts from it: `problem` then
    says so, and `num_given_up` counts them. One for which its cache has no room gets none for now, and gives back what
    it holds of it.
    """

    def __init__(
        self,
        decoder: CachedDecoder,
        *,
        vocab_size: int,
        token_ids: Ints | None = None,
        own_ids: Ints | None = None,
        original: Original = lambda sequence: sequence,
        num_branches: int = 1,
        draws_over: int | None = None,
        end_ids: frozenset[int] = frozenset(),
        name: str = "model",
        identity: str = "",
    ) -> None:
        self.spec = DrafterSpec(name=name, model_free=False, can_begin_late=True, identity=identity)
        self.num_given_up = 0
        self._problem = ""
        self._decoder = decoder
        self._token_ids = np.arange(vocab_size, dtype=np.int32) if token_ids is None else token_ids
        self._own_ids = self._token_ids if own_ids is None else own_ids
        self._original = original
        self._num_shared = int(np.searchsorted(self._token_ids, vocab_size))
        self._num_branches = num_branches
        self._draws_over = draws_over if own_ids is None else None
        self._end_ids = end_ids
        self._computed: dict[int, _Computed] = {}
        self._given_up: set[int] = set()

    @property
    def problem(self) -> str:
        """See `Drafter`."""
        return self._problem

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[Budget]) -> list[DraftTree]:
        """See `Drafter`. Sequences beyond the context of the model, or for which it has no room, get no draft."""
        growths: dict[int, Growth] = {}
        for sequence, budget in zip(sequences, budgets, strict=True):
            if budget.num_tokens > 0 and self._can_draft(sequence):
                self._prefill(sequence, len(sequence.tokens), most_left=1)  # a single one rides along with the root
                if sequence.id in self._computed:
                    growths[sequence.id] = self._growth(sequence, budget)
        level = list(growths.values())
        while level := [growth for growth in level if growth.sources and self._has_room(growth)]:
            self._grow(level)
            for growth in level:
                growth.descend()
        drafted = growths.keys() & self._computed.keys()  # without those that were given up, or had no room
        return [growths[one.id].tree() if one.id in drafted else no_draft(one) for one in sequences]

    def _growth(self, sequence: SequenceView, budget: Budget) -> Growth:
        computed, ends = self._computed[sequence.id], set(sequence.params.stop_token_ids)
        if not sequence.params.ignore_eos:
            ends |= self._end_ids
        max_depth = self._decoder.config.context_length - len(sequence.tokens) + computed.num_left_out
        return Growth(sequence, sequence.tokens[computed.end :], budget, frozenset(ends), max_depth)

    def _has_room(self, growth: Growth) -> bool:
        """Whether the model can go on with a sequence: its cache has room for the tree, and it was not given up."""
        computed = self._computed.get(growth.sequence.id)
        if computed is None:
            return False
        try:
            computed.blocks.reserve(len(growth.tokens))
        except OutOfBlocksError:
            self._close(growth.sequence.id)
            return False
        return True

    def _can_draft(self, sequence: SequenceView) -> bool:
        """Whether the text leaves room in the context, and the model knows each token and is sound for it."""
        computed, config = self._computed.get(sequence.id), self._decoder.config
        begin, end = (computed.num_left_out, computed.end) if computed else (0, 0)
        if sequence.id in self._given_up or len(sequence.tokens) - begin >= config.context_length:
            return False
        return all(0 <= token < config.vocab_size for token in sequence.tokens[end:])

    def _grow(self, level: Sequence[Growth]) -> None:
        """One forward pass for all sequences, and the tokens that may follow each node that was run."""
        trees = [DraftTree(tuple(growth.tokens), tuple(growth.parents)) for growth in level]
        entries = [
            Entry(self._computed[one.sequence.id].blocks, tree, "all" if one.num_ready else "last", one.num_ready)
            for one, tree in zip(level, trees, strict=True)
        ]
        rows_NV = self._decoder.forward(entries).logits_NV
        for growth, tree, logits_NV in zip(level, trees, rows_NV, strict=True):
            computed = self._computed[growth.sequence.id]
            computed.tree, computed.begun = tree, True
            try:
                for source, logits_V in zip(growth.sources, logits_NV, strict=True):
                    growth.add(source, self._following(logits_V, growth, source))
            except ForedraftError as error:  # the logits are not numbers
                self._give_up(growth.sequence, error)

    def _following(self, logits_V: Floats, growth: Growth, source: int) -> list[Following]:
        """The tokens that may follow a candidate."""
        sequence, path = self._original(growth.sequence), growth.path(source)
        if self._draws_over is None or sequence.params.greedy:
            return self._likeliest(logits_V, sequence, path)
        ids = self._token_ids[: np.searchsorted(self._token_ids, self._draws_over)]
        drawn = draw(
            logits_V[: len(ids)],
            sequence,
            path,
            count=self._num_branches,
            first_event=len(growth.candidates),
            vocab_size=self._draws_over,
            token_ids=ids,
        )
        # A confidence that looked at what was drawn would bias what is kept of the tree.
        confidences = [_RIGHT_AT_FIRST * _WRONG_BEFORE**place for place in range(len(drawn))]
        return [Following(t, t, confidence, row_V) for (t, row_V), confidence in zip(drawn, confidences, strict=True)]

    def _likeliest(self, logits_V: Floats, sequence: SequenceView, path: Sequence[int]) -> list[Following]:
        """The tokens that may follow, the one the model would choose first, with the chances that they are right."""
        ids = self._token_ids
        if sequence.processors is not None:
            ids = ids[: self._num_shared]  # options are about the target's tokens
        row_V = processed(logits_V[: len(ids)], sequence, path, token_ids=ids)
        count = self._num_branches if sequence.params.greedy else max(self._num_branches, _NUM_RIVALS)
        chosen = choose_processed(self._decoder.kernels, row_V, sequence, len(path), count=count, token_ids=ids)
        if not chosen:
            return []
        names = np.array(chosen, dtype=np.int32)
        indices = np.searchsorted(ids, names).astype(np.int32)
        noise = (sequence.params.seed or 0, sequence.sample_index, len(sequence.tokens) + len(path))
        first = self._decoder.kernels.token_probability(row_V, int(indices[0]), 0.0)
        chances = coupled_chances(first, row_V, indices, names, sequence.params.temperature, noise)
        found = zip(self._own_ids[indices].tolist(), chosen, chances, strict=True)
        return [Following(*one) for one in found][: self._num_branches]

    def _give_up(self, sequence: SequenceView, error: ForedraftError) -> None:
        """Ask the model for this sequence no more."""
        if not self.num_given_up:
            self._problem = f"{self.name}: {error}; it drafts no more for such sequences"
            logging.getLogger("foredraft").warning(self._problem)
        self.num_given_up += 1
        self._given_up.add(sequence.id)
        self._computed.pop(sequence.id).blocks.close()
        self.reset_prefix_cache()  # nothing of it is to be found by others

    def prefill(self, sequence: SequenceView, num_tokens: int) -> None:
        """See `Drafter`. So a long prompt can be computed over several rounds.

        Nothing is computed for a sequence that the model cannot draft for.
        """
        self._prefill(sequence, num_tokens)

    def _prefill(self, sequence: SequenceView, num_tokens: int, *, most_left: int = 0) -> None:
        """As `prefill`; nothing where no more than `most_left` tokens are uncached."""
        if not self._can_draft(sequence):
            return
        computed = self._opened(sequence)
        missing = sequence.tokens[computed.end : min(len(sequence.tokens) - 1, computed.end + num_tokens)]
        if len(missing) <= most_left:
            return
        if computed.blocks.num_missing(len(missing)) > self._decoder.cache.pool.num_available:
            self._close(sequence.id)
            return
        computed.begun = True
        try:
            self._decoder.prefill(computed.blocks, missing)
        finally:  # where a pass fails, those before it count
            computed.tokens.extend(missing[: len(computed.blocks) - len(computed.tokens)])
        computed.blocks.publish(computed.tokens)

    def _opened(self, sequence: SequenceView, num_left_out: int = 0) -> _Computed:
        """What was computed of the sequence; at first, what is found of earlier ones that begin alike."""
        self._settle(sequence)
        computed = self._computed.get(sequence.id)
        if computed is None:
            blocks, tokens = self._decoder.cache.open(), sequence.tokens[num_left_out:]
            found = list(tokens[: blocks.reuse(tokens)])
            computed = self._computed[sequence.id] = _Computed(blocks, found, num_left_out)
        return computed

    def _settle(self, sequence: SequenceView) -> None:
        """Keep what was computed of the sequence, and of the last tree what has become part of it."""
        computed = self._computed.get(sequence.id)
        if computed is None:
            return
        tree, computed.tree = computed.tree, None
        if computed.num_left_out >= len(sequence.tokens):  # a text in other tokens may become shorter
            self._close(sequence.id)
            return
        committed = sequence.tokens[computed.num_left_out : -1]
        num_same = _common_prefix(computed.tokens, committed)
        if num_same < len(computed.tokens):
            computed.blocks.truncate(num_same)
            del computed.tokens[len(computed.blocks) :]
        elif tree is not None and num_same < len(committed) and committed[num_same] == tree.tokens[0]:
            path = _path(tree, committed[num_same + 1 :])
            self._decoder.commit(computed.blocks, tree, path)
            computed.tokens.extend(tree.tokens[node] for node in (0, *path))

    def num_uncached_tokens(self, sequence: SequenceView) -> int:
        """See `Drafter`."""
        return max(0, len(sequence.tokens) - 1 - self._opened(sequence).end) if self._can_draft(sequence) else 0

    def begin_late(self, sequence: SequenceView, num_tokens: int) -> None:
        """See `Drafter`."""
        if not self._can_draft(sequence):
            return
        computed, num_left_out = self._opened(sequence), len(sequence.tokens) - 1 - num_tokens
        if not computed.begun and computed.end < num_left_out:
            self._close(sequence.id)
            self._opened(sequence, num_left_out)

    def _close(self, sequence_id: int) -> None:
        """Give back what the sequence holds of the cache. It stays findable for sequences that begin alike."""
        computed = self._computed.pop(sequence_id, None)
        if computed is not None:
            computed.blocks.publish(computed.tokens)
            computed.blocks.close()

    def time_step(self, *, num_tokens: int, context: int) -> float:
        """See `Drafter`."""
        return self._decoder.time_forward(num_tokens=num_tokens, context=context)

    def end(self, sequence_id: int) -> None:
        """See `Drafter`."""
        self._given_up.discard(sequence_id)
        self._close(sequence_id)

    def reset_prefix_cache(self) -> None:
        """See `Drafter`."""
        self._decoder.cache.pool.reset()


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
