"""`python -m pip download ... -d FOLDER REQUIREMENT`: gives $FAKE_PIP_WHEEL, or fails as told.

FAKE_PIP_LOG: a file that gets one line a call. FAKE_PIP_ERROR: what to print before failing.
FAKE_PIP_DELAY_S: how long the download takes; half of the wheel is there meanwhile.
"""

import os
import sys
import time
from pathlib import Path

arguments = sys.argv[1:]
with open(os.environ["FAKE_PIP_LOG"], "a") as log:
    log.write(" ".join(arguments) + "\n")
if message := os.environ.get("FAKE_PIP_ERROR"):
    print(message, file=sys.stderr)
    sys.exit(1)
wheel = Path(os.environ["FAKE_PIP_WHEEL"])
content = wheel.read_bytes()
destination = Path(arguments[arguments.index("-d") + 1]) / wheel.name
with destination.open("wb") as file:
    file.write(content[: len(content) // 2])
    file.flush()
    time.sleep(float(os.environ.get("FAKE_PIP_DELAY_S", "0")))
    file.write(content[len(content) // 2 :])
