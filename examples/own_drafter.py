"""A drafter of your own: it knows phrases, and once one has begun it proposes the rest.

python examples/own_drafter.py [MODEL [PHRASE...]]
"""

import sys
from collections.abc import Sequence

from foredraft import LLM, SamplingParams
from foredraft.drafters import Drafter, DrafterSpec, SequenceView
from foredraft.tree import Budget, DraftTree


class PhraseDrafter(Drafter):
    """After the first two tokens of a phrase it proposes the others."""

    spec = DrafterSpec(name="phrases")

    def __init__(self, phrases: Sequence[Sequence[int]]) -> None:
        self._rest: dict[tuple[int, ...], tuple[int, ...]] = {}
        for phrase in phrases:
            for i in range(2, len(phrase)):
                self._rest[tuple(phrase[i - 2 : i])] = tuple(phrase[i:])

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[Budget]) -> list[DraftTree]:
        return [self._draft(s.tokens, max(b.num_tokens, 0)) for s, b in zip(sequences, budgets, strict=True)]

    def _draft(self, tokens: Sequence[int], num_tokens: int) -> DraftTree:
        rest = self._rest.get(tuple(tokens[-2:]), ())[:num_tokens]
        return DraftTree.chain(tokens[-1], rest, (0.8,) * len(rest))


def main(model: str = "smollm2-135m", *phrases: str) -> None:
    texts = phrases or ("one, two, three, four, five, six, seven, eight, nine, ten, eleven, twelve",)
    plain = LLM(model, draft="none")
    drafter = PhraseDrafter([plain.tokenizer.encode(text, add_special=False) for text in texts])
    fast = plain.with_drafts(drafter, num_draft_tokens=6)
    prompt, params = "Let us count: one, two, three,", SamplingParams(max_tokens=32)
    [expected], [completion] = plain.generate(prompt, params), fast.generate(prompt, params)
    print(prompt + completion.text)
    print(f"mean acceptance length {completion.speculation.mean_acceptance_length:.2f} with {drafter.name}")
    print("same tokens" if completion.token_ids == expected.token_ids else "OTHER TOKENS")


if __name__ == "__main__":
    main(*sys.argv[1:])
