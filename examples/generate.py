"""One prompt, its answer, and what drafting did for it.

python examples/generate.py [PROMPT [MODEL]]
"""

import sys

from foredraft import LLM, SamplingParams

PROMPT = "Give three reasons to take a walk."


def main(prompt: str = PROMPT, model: str = "smollm2-135m") -> None:
    llm = LLM(model, draft="lookup")
    answer = llm.chat([{"role": "user", "content": prompt}], SamplingParams(max_tokens=48))
    print(answer.text)
    print(f"\n{answer.usage.completion_tokens} tokens, {answer.timings.tokens_per_s:.0f} tokens per second")
    print(
        f"{answer.speculation.num_rounds} forward passes of the model, "
        f"{answer.speculation.num_accepted_tokens} of {answer.speculation.num_draft_tokens} drafted tokens accepted"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
