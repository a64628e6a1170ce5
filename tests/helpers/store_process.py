"""A process that pulls the model `tiny`; run by the tests that kill it, or start several at once.

    store_process.py SIZE SHA256 [STEP]

With STEP it prints `reached` at the first report of that step and then waits to be killed.
"""

import sys
import time

from foredraft.models import store

size, sha256, *stop_at = sys.argv[1:]
store.BUILT_IN["tiny"] = store.BuiltIn(
    name="tiny",
    title="a model of the tests",
    requirement="tiny-model==1.0",
    member_suffix=".gguf",
    size=int(size),
    wheel_size=int(size),
    sha256=sha256,
    licence="none",
)


def report(progress: store.Progress) -> None:
    if progress.step in stop_at:
        print("reached", flush=True)
        time.sleep(600)


print(store.resolve("tiny", progress=report))
