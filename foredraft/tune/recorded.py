"""What a trace says of its completions and drafters: a recording, ready to be played again."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from foredraft.drafters import drafter_of_text
from foredraft.errors import OptionError
from foredraft.planner.cost import Calibration
from foredraft.sampling import SamplingParams
from foredraft.trace import RoundRecord, SequenceTrace, Trace
from foredraft.tree import DraftTree


@dataclass
class Recorded:
    """A recording. texts: prompt and completion of each sequence; num_prompt_tokens: of these.

    proposals: by drafter, sequence and number of tokens before the round. calibrations: what passes cost, the target's
    under "". model_based: names of drafters whose steps cost time. overhead_s: seconds of a round outside of passes.
    width: tokens that proposals have at most. has_costs: whether calibrations were measured, or guessed from rounds.
    """

    texts: dict[int, tuple[int, ...]]
    num_prompt_tokens: dict[int, int]
    params: dict[int, SamplingParams]
    proposals: dict[str, dict[tuple[int, int], DraftTree]]
    calibrations: dict[str, Calibration]
    model_based: tuple[str, ...]
    overhead_s: float
    num_rounds: int
    num_tokens: int
    width: int
    has_costs: bool

    @property
    def drafters(self) -> list[str]:
        """Names of the drafters there are proposals of."""
        return list(self.proposals)


def read(trace: Trace) -> Recorded:
    """The recording in a trace. Raises OptionError where it does not hold enough."""
    whole = [one for one in trace.sequences.values() if one.start is not None and one.rounds]
    if trace.header is None or not whole:
        raise OptionError("--replay: the trace holds no whole completion")
    kept: Mapping[str, Any] = trace.header.settings.get("recording", {})
    try:
        calibrations = {name: Calibration.from_json(one) for name, one in kept.get("calibrations", {}).items()}
        model_based, width = tuple(kept.get("model_based", ())), int(kept.get("width", 64))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise OptionError(f"--replay: what the header says of the recording is damaged: {error}") from error
    rounds = [record for one in whole for record in one.rounds]
    try:
        seen = {"": _from_rounds(rounds)}
    except ValueError as error:
        raise OptionError(f"--replay: what rounds cost cannot be: {error}") from error
    recorded = Recorded(
        texts={one.sequence: _text(one) for one in whole},
        num_prompt_tokens={one.sequence: len(one.start.prompt_tokens) for one in whole if one.start},
        params={one.sequence: _params(one) for one in whole},
        proposals={name: {} for name in trace.header.drafters if name != "none"},
        calibrations=calibrations or seen,
        model_based=model_based,
        overhead_s=median(record.accept_s for record in rounds),
        num_rounds=len(rounds),
        num_tokens=sum(len(record.emitted) for record in rounds),
        width=width,
        has_costs=bool(calibrations),
    )
    _add_proposals(recorded, rounds)
    return recorded


def _add_proposals(recorded: Recorded, rounds: Sequence[RoundRecord]) -> None:
    for record in rounds:
        text = recorded.texts[record.sequence]
        if not 0 < record.num_tokens <= len(text) or text[record.num_tokens - 1] != record.tokens[0]:
            raise OptionError(f"--replay: sequence {record.sequence}: round {record.round} does not fit those before")
        for name, tree in _trees(record):
            recorded.proposals.setdefault(name, {})[record.sequence, record.num_tokens] = tree
    for name in [name for name, known in recorded.proposals.items() if not known and drafter_of_text(name) is None]:
        del recorded.proposals[name]


def _text(one: SequenceTrace) -> tuple[int, ...]:
    assert one.start is not None
    return (*one.start.prompt_tokens, *(token for record in one.rounds for token in record.emitted))


def _params(one: SequenceTrace) -> SamplingParams:
    assert one.start is not None
    return SamplingParams(temperature=one.start.params.get("temperature", 0.0), seed=0)


def _trees(record: RoundRecord) -> list[tuple[str, DraftTree]]:
    """The proposals of a round; where none were kept, what of each drafter was verified."""
    if record.proposals:
        return [(p.drafter, DraftTree(p.tokens, p.parents, p.confidence)) for p in record.proposals]
    tree = DraftTree(record.tokens, record.parents, record.confidence)
    found = []
    for name in dict.fromkeys(source for source in record.sources if source):
        nodes = [0]
        for node in range(1, tree.num_nodes):
            if record.sources[node] == name and record.parents[node] in nodes:
                nodes.append(node)
        found.append((name, tree.restricted(nodes)))
    return found


def _from_rounds(rounds: Sequence[RoundRecord]) -> Calibration:
    """What passes cost, as far as the rounds of a trace of one sequence at a time show it."""
    seconds: dict[int, list[float]] = {}
    for record in rounds:
        seconds.setdefault(record.num_batched_tokens, []).append(record.verify_s)
    if 1 not in seconds:
        seconds[1] = [min(min(times) for times in seconds.values())]
    numbers = sorted(seconds)
    medians = [median(seconds[number]) for number in numbers]
    return Calibration(tuple(numbers), tuple(itertools.accumulate(medians, max)))
