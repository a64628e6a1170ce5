"""One prompt, its completion, and what drafting did for it.

python examples/generate.py [PROMPT [MODEL]]
"""

import sys

from foredraft import LLM, SamplingParams

PROMPT = "Give three reasons to take a walk."


def main(prompt: str = PROMPT, model: str = "smollm2-135m") -> None:
    llm = LLM(model, draft="lookup")
    completion = llm.chat([{"role": "user", "content": prompt}], SamplingParams(max_tokens=48))
    print(completion.text)
    print(f"\n{completion.usage.completion_tokens} tokens, {completion.timings.tokens_per_s:.0f} tokens per second")
    drafting = completion.speculation
    print(f"{drafting.num_rounds} forward passes of the model")
    print(f"{drafting.num_accepted_tokens} of {drafting.num_draft_tokens} drafted tokens accepted")


if __name__ == "__main__":
    main(*sys.argv[1:])
