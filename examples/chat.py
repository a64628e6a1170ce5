"""A conversation that streams; reads one message a line, and ends with the input.

python examples/chat.py [MODEL]
"""

import sys

from foredraft import LLM, SamplingParams


def main(model: str = "smollm2-135m") -> None:
    llm = LLM(model)
    params = SamplingParams(max_tokens=64, temperature=0.7, top_p=0.9)
    messages: list[dict[str, str]] = []
    for line in sys.stdin:
        messages.append({"role": "user", "content": line.strip()})
        said = ""
        for chunk in llm.stream(messages, params):
            print(chunk.text, end="", flush=True)
            said += chunk.text
        print()
        messages.append({"role": "assistant", "content": said})


if __name__ == "__main__":
    main(*sys.argv[1:])
