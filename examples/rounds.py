"""What each round proposed, and what the target made of it.

python examples/rounds.py [MODEL [DRAFT]]        a file, folder or name; default: the built-in model, drafting by suffix
"""

import sys

from foredraft import LLM, SamplingParams
from foredraft.trace import Record, RoundRecord

TEXT = "1. The cat sat on the mat. 2. The dog sat on the mat. 3. The cow sat on the mat. 4. The cat"


def show(record: Record) -> None:
    """Print a round: its drafted tokens, how many were accepted, and the target's own token after them."""
    if isinstance(record, RoundRecord):
        drafted = "".join(record.texts[1:]) or "(nothing)"
        chosen = f", then {record.choice.text!r} ({record.choice.probability:.0%})" if record.choice else ""
        print(f"round {record.round}: {drafted!r}, {len(record.accepted)} accepted{chosen}")


model = sys.argv[1] if len(sys.argv) > 1 else "smollm2-135m"
draft = sys.argv[2] if len(sys.argv) > 2 else "suffix"
llm = LLM(model, draft=draft, num_draft_tokens=4, trace=show)
[completion] = llm.generate(TEXT, SamplingParams(max_tokens=16))
print(completion.text)
