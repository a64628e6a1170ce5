"""Plain decoding and speculation side by side: speed, and whether the tokens are the same.

python examples/compare.py [TARGET [DRAFT]]        DRAFT: a smaller model, or a method such as lookup (the default)
"""

import sys

from foredraft import LLM, SamplingParams

PROMPT = "Write a short poem about rain. Then write it again, word for word."


def main(target: str = "smollm2-135m", draft: str = "lookup") -> None:
    fast = LLM(target, draft=draft)
    plain = fast.with_drafts("none")
    messages = [{"role": "user", "content": PROMPT}]
    for temperature, seed in [(0.0, 0), (0.8, 1), (0.8, 2)]:
        params = SamplingParams(max_tokens=48, temperature=temperature, seed=seed)
        expected, drafted = plain.chat(messages, params), fast.chat(messages, params)
        print(
            f"temperature {temperature}, seed {seed}: {expected.timings.tokens_per_s:.0f} tokens/s plain, "
            f"{drafted.timings.tokens_per_s:.0f} with {draft} "
            f"(mean acceptance length {drafted.speculation.mean_acceptance_length:.2f}), "
            f"{'same tokens' if drafted.token_ids == expected.token_ids else 'OTHER TOKENS'}"
        )


if __name__ == "__main__":
    main(*sys.argv[1:])
