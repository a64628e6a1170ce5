"""Several prompts in the same rounds, with the same texts as one by one.

python examples/batch.py [MODEL]
"""

import sys

from foredraft import LLM, SamplingParams

PROMPTS = [
    "The capital of France is",
    "Once upon a time, in a small house by the sea,",
    "def fibonacci(n):\n",
]


def main(model: str = "smollm2-135m") -> None:
    llm = LLM(model, draft="lookup")
    params = SamplingParams(max_tokens=24)
    together = llm.generate(PROMPTS, params)
    for prompt, completion in zip(PROMPTS, together, strict=True):
        print(f"{prompt}{completion.text}\n---")
    alone = [llm.generate(prompt, params)[0] for prompt in PROMPTS]
    same = all(a.token_ids == b.token_ids for a, b in zip(together, alone, strict=True))
    print("one by one: same tokens" if same else "one by one: OTHER TOKENS")


if __name__ == "__main__":
    main(*sys.argv[1:])
