"""A process of its own: loads a model, says so, answers with one token, and tells what memory that took.

`python -m foredraft.bench.start_up MODEL NUM_THREADS` is run by `foredraft.bench.fresh`.
"""

import json
import resource
import sys
from pathlib import Path

from foredraft.errors import UserError


def peak_bytes() -> int:
    """Most memory that this process held at a time."""
    try:
        lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
    # Linux counts what the parent held when it started this process into ru_maxrss; this figure is the process's own.
    [line] = [line for line in lines if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024


def main(model: str, num_threads: int) -> None:
    """Print a line when ready, then the memory as JSON."""
    from foredraft.llm import LLM, SamplingParams  # part of what is measured

    llm = LLM(model, draft="none", threads=num_threads)
    print("ready", flush=True)
    llm.generate("The", SamplingParams(max_tokens=1, ignore_eos=True))
    print(json.dumps({"peak_bytes": peak_bytes()}), flush=True)


if __name__ == "__main__":
    try:
        main(sys.argv[1], int(sys.argv[2]))
    except UserError as error:
        print(error, file=sys.stderr)
        sys.exit(2)
