"""How often a draft model agrees with the target on a text they have not seen, before anybody asked it.

Reading a prompt takes a draft model longer than it may take just to see how good it is. So that is seen once, when the
models are loaded together for the first time, on a short text like the answers of assistants.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field

from foredraft.drafters.base import CostlyDrafter
from foredraft.models.cached_decoder import CachedDecoder, Entry
from foredraft.sampling import Processors, SamplingParams
from foredraft.tree import Budget, DraftTree

SAMPLE = """\
To find the average of a list of numbers, add them together and divide the sum by how many there are. For example, the
average of 2, 4 and 9 is (2 + 4 + 9) / 3 = 15 / 3 = 5.

```python
def average(numbers):
    return sum(numbers) / len(numbers)
```

This function takes a list of numbers and returns their average. If the list is empty, there is nothing to divide by.
"""
NUM_TOKENS = 72
"""Most tokens of the sample that are read."""
NUM_BEFORE = 16
"""Tokens that are read before the first look."""
NUM_PLACES = 16

_ids = itertools.count(-1, -1)


@dataclass
class _Sample:
    """The sample as drafters see requests. No request has such an id."""

    tokens: list[int]
    params: SamplingParams
    id: int = field(default_factory=lambda: next(_ids))
    num_prompt_tokens: int = 1
    choice: int = 0
    processors: Processors | None = None


def agreement(drafter: CostlyDrafter, decoder: CachedDecoder, tokens: Sequence[int]) -> tuple[int, int]:
    """At how many places of a text the drafter's next token is the target's, and at how many it had one.

    decoder: the target's. tokens: of the text. Both continue what the text says so far, greedily. (0, 0) where the text
    is too short.
    """
    tokens = tokens[:NUM_TOKENS]
    places = range(NUM_BEFORE, len(tokens), max(1, (len(tokens) - NUM_BEFORE) // NUM_PLACES))
    if not places:
        return 0, 0
    sequence = decoder.cache.open(())
    try:
        [logits_NV] = decoder.forward([Entry(sequence, DraftTree.chain(tokens[0], tuple(tokens[1:])))])
        wanted = [int(logits_NV[place - 1].argmax()) for place in places]
    finally:
        sequence.close()
    sample = _Sample([], SamplingParams().with_seed())
    num_right = num_seen = 0
    try:
        for place, token in zip(places, wanted, strict=True):
            sample.tokens = list(tokens[:place])
            [tree] = drafter.propose([sample], [Budget(1)])
            if tree.num_draft_tokens:
                num_seen += 1
                num_right += tree.tokens[1] == token
    finally:
        drafter.forget(sample.id)
    return num_right, num_seen
