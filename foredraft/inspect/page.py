"""A trace as one page that needs nothing else: no server, no other file, no network."""

import json
from importlib import resources

from foredraft.inspect.words import rule
from foredraft.trace import Trace, to_json

_PLACE = "@TRACE@"


def page(trace: Trace) -> str:
    """The page's HTML."""
    template = resources.files("foredraft.inspect").joinpath("page.html").read_text(encoding="utf-8")
    return template.replace(_PLACE, _data(trace))


def _data(trace: Trace) -> str:
    """The records as JSON that can stand in a script element: no text in it can end the element."""
    sequences = []
    for sequence in trace.sequences.values():
        sequences.append(
            {
                "rule": rule(trace, sequence),
                "start": None if sequence.start is None else json.loads(to_json(sequence.start)),
                "rounds": [json.loads(to_json(record)) for record in sequence.rounds],
                "end": None if sequence.end is None else json.loads(to_json(sequence.end)),
            }
        )
    header = None if trace.header is None else json.loads(to_json(trace.header))
    text = json.dumps({"header": header, "sequences": sequences}, ensure_ascii=False, allow_nan=False)
    return text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e")
