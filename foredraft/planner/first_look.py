"""How often a model-based drafter agrees with the target on a text they have not seen, before anybody asked it.

The prefill of a prompt takes a draft model longer than it may take just to see how good it is. So that is seen once,
when the models are loaded together for the first time, on a short text like those of assistants.
"""

import itertools
from collections.abc import Sequence as Several

from foredraft.drafters.base import Drafter, PromptFeatures
from foredraft.models.cached_decoder import CachedDecoder, Entry
from foredraft.sampling import SamplingParams
from foredraft.sequence import Sequence, Status
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
"""Most tokens of the sample that are looked at."""
NUM_BEFORE = 16
"""Tokens before the first place that is."""
NUM_PLACES = 16

_ids = itertools.count(-1, -1)
"""No other sequence has such an id."""


def agreement(drafter: Drafter, decoder: CachedDecoder, tokens: Several[int]) -> tuple[int, int]:
    """At how many places of a text the drafter's next token is the target's, and at how many it had one.

    decoder: the target's; it returns the hidden states of the layers that the drafter wants. tokens: of the text. Both
    continue what the text says so far, greedily. (0, 0) where the text is too short.
    """
    tokens = list(tokens[:NUM_TOKENS])
    places = range(NUM_BEFORE, len(tokens), max(1, (len(tokens) - NUM_BEFORE) // NUM_PLACES))
    if not places:
        return 0, 0
    blocks = decoder.cache.open()
    sample = Sequence(
        id=next(_ids),
        tokens=tokens[:1],
        num_prompt_tokens=1,
        params=SamplingParams().with_seed(),
        max_length=decoder.config.context_length,
        blocks=blocks,
        status=Status.RUNNING,
    )
    num_right = num_seen = 0
    try:
        result = decoder.forward([Entry(blocks, DraftTree.chain(tokens[0], tuple(tokens[1:])))])
        wanted = [int(result.logits_NV[0][place - 1].argmax()) for place in places]
        # Copies: a drafter that is a part of the target runs passes of its own.
        hidden_ND = {layer: states.copy() for layer, states in result.hidden_of(0).items()}
        for before, place, token in zip((1, *places), places, wanted, strict=False):
            sample.tokens = tokens[:place]
            known = {layer: states[before - 1 : place - 1] for layer, states in hidden_ND.items()}
            drafter.begin(sample, PromptFeatures(before - 1, place - before, known))
            [tree] = drafter.propose([sample], [Budget(1)])
            if tree.num_draft_tokens:
                num_seen += 1
                num_right += tree.tokens[1] == token
    finally:
        blocks.close()
        drafter.end(sample.id)
    return num_right, num_seen
