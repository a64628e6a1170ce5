"""A drafter of your own: it knows phrases, and once one has begun it proposes the rest.

python examples/own_drafter.py [MODEL [PHRASE...]]
"""

import sys
from collections.abc import Sequence

from foredraft import LLM, SamplingParams
from foredraft.drafters import Outcome, RequestView
from foredraft.tree import Budget, DraftTree


class PhraseDrafter:
    """After the first two tokens of a phrase it proposes the others."""

    name = "phrases"
    free = True  # asking it costs next to nothing, so it may be asked in every round

    def __init__(self, phrases: Sequence[Sequence[int]]) -> None:
        self._rest: dict[tuple[int, ...], tuple[int, ...]] = {}
        for phrase in phrases:
            for i in range(2, len(phrase)):
                self._rest[tuple(phrase[i - 2 : i])] = tuple(phrase[i:])

    def propose(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> list[DraftTree]:
        return [self._draft(r.tokens, max(b.num_tokens, 0)) for r, b in zip(requests, budgets, strict=True)]

    def _draft(self, tokens: Sequence[int], num_tokens: int) -> DraftTree:
        rest = self._rest.get(tuple(tokens[-2:]), ())[:num_tokens]
        return DraftTree.chain(tokens[-1], rest, (0.8,) * len(rest))

    def observe(self, requests: Sequence[RequestView], outcomes: Sequence[Outcome]) -> None:
        """Here it could learn from what was accepted."""

    def forget(self, request_id: int) -> None:
        """Here it would drop what it keeps for a request."""


def main(model: str = "smollm2-135m", *phrases: str) -> None:
    texts = phrases or ("one, two, three, four, five, six, seven, eight, nine, ten, eleven, twelve",)
    plain = LLM(model, draft="none")
    drafter = PhraseDrafter([plain.tokenizer.encode(text, add_special=False) for text in texts])
    fast = plain.with_drafts(drafter, num_draft_tokens=6)
    prompt, params = "Let us count: one, two, three,", SamplingParams(max_tokens=32)
    [expected], [answer] = plain.generate(prompt, params), fast.generate(prompt, params)
    print(prompt + answer.text)
    print(f"mean acceptance length {answer.speculation.mean_acceptance_length:.2f} with {drafter.name}")
    print("same tokens" if answer.token_ids == expected.token_ids else "OTHER TOKENS")


if __name__ == "__main__":
    main(*sys.argv[1:])
