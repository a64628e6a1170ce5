"""What rounds have shown of model-based drafters: how often they are right, and what asking them would have gained."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from foredraft.planner.acceptance_rate import AcceptanceRate
from foredraft.planner.completion_lengths import SHORT, CompletionLengths
from foredraft.planner.profile import Learned
from foredraft.planner.survival import Survival
from foredraft.sampling import SequenceView

FIRST_GUESS = 0.7
"""Acceptance rate before any token was seen."""
USUAL_TOKENS = 500.0
"""Tokens of completions over which what is usual is averaged."""


@dataclass
class Record:
    """A sequence's part: its seconds, the tokens of its completion, which drafters were asked for it, and by drafter
    its acceptance rate and the tokens that asking it would have gained."""

    seconds: float = 0.0
    num_output_tokens: int = 0
    greedy: bool = True
    asked: set[str] = field(default_factory=set)
    rates: dict[str, AcceptanceRate] = field(default_factory=dict)
    gains: dict[str, float] = field(default_factory=dict)


_NO_RECORD = Record()
_NO_RATE = AcceptanceRate()


class History:
    """Of drafters by their names. lengths: of the completions that have ended. num_asked: rounds, by drafter.

    Greedy and sampled text are counted apart, and every sequence by itself besides.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self._names = names
        self._rates: dict[tuple[str, bool], AcceptanceRate] = {}
        self._usual_gains: dict[tuple[str, bool], float] = {}
        self._records: dict[int, Record] = {}
        self.lengths = CompletionLengths()
        self.num_asked = Counter[str]()

    def record(self, sequence_id: int) -> Record:
        """A sequence's part, to be looked at."""
        return self._records.get(sequence_id, _NO_RECORD)

    def was_seen(self, name: str) -> bool:
        """Whether any token of a drafter was ever compared with the target's."""
        return any((name, greedy) in self._rates for greedy in (True, False))

    def acceptance_rate(self, name: str, sequence: SequenceView) -> float:
        """How likely a drafter's next token is to be accepted for a sequence, if those before it are."""
        shared = self._rates.get((name, sequence.params.greedy), _NO_RATE).estimate(FIRST_GUESS)
        return self.record(sequence.id).rates.get(name, _NO_RATE).estimate(shared)

    def gain_a_token(self, name: str, sequence: SequenceView, now: float) -> float:
        """Tokens gained for each token of the completion, had the drafter been asked wherever it was the best.

        now: what it would gain in this round. Before this completion has shown it, as much as in earlier ones is
        expected, and nothing in the first.
        """
        usual = self._usual_gains.get((name, sequence.params.greedy), 0.0)
        gained = self.record(sequence.id).gains.get(name, 0.0) + now
        return (gained + SHORT / 2 * usual) / (num_output_tokens(sequence) + SHORT / 2)

    def count_round(self, sequences: Sequence[SequenceView], seconds: float, gains: Mapping[str, float]) -> None:
        """Note a round. gains: by drafter, tokens that asking it would have gained for each of the sequences."""
        for sequence in sequences:
            record = self._records.get(sequence.id)
            if record is None:
                record = self._records[sequence.id] = Record(greedy=sequence.params.greedy)
            record.seconds += seconds
            record.num_output_tokens = num_output_tokens(sequence)
            for name, gain in gains.items():
                record.gains[name] = record.gains.get(name, 0.0) + gain

    def count_asked(self, name: str, sequences: Sequence[SequenceView], in_vain: Sequence[bool]) -> None:
        """Note, behind `count_round`, that a drafter was asked, and for which sequences it had nothing to propose."""
        self.num_asked[name] += 1
        for sequence, nothing in zip(sequences, in_vain, strict=True):
            record = self._records[sequence.id]
            record.asked.add(name)
            if nothing:
                record.rates.setdefault(name, AcceptanceRate()).asked_in_vain()

    def learn(self, name: str, sequence: SequenceView, *, accepted: bool) -> None:
        """Count, behind `count_round`, one of a drafter's tokens whose parent was accepted."""
        self._records[sequence.id].rates.setdefault(name, AcceptanceRate()).count(accepted=accepted)
        self._rates.setdefault((name, sequence.params.greedy), AcceptanceRate()).count(accepted=accepted)

    def end(self, sequence_id: int) -> None:
        """The sequence is over."""
        record = self._records.pop(sequence_id, _NO_RECORD)
        if not record.num_output_tokens:
            return
        self.lengths.add(record.num_output_tokens)
        weight = record.num_output_tokens / (record.num_output_tokens + USUAL_TOKENS)
        for name in self._names:
            usual = self._usual_gains.get((name, record.greedy), 0.0)
            gained = record.gains.get(name, 0.0) / record.num_output_tokens
            self._usual_gains[name, record.greedy] = usual + weight * (gained - usual)

    def start_from(self, name: str, known: Learned) -> None:
        """Take over what an earlier planner found out about a drafter."""
        for greedy, (accepted, drafted) in known.acceptance().items():
            self._rates[name, greedy] = AcceptanceRate(accepted, drafted)
        self._usual_gains[name, True], self._usual_gains[name, False] = known.greedy_gain, known.sampled_gain

    def learned(self, name: str, survivals: Mapping[bool, Survival]) -> Learned:
        """What a later planner may start from. survivals: of a drafter's confidences, by whether texts were greedy."""
        states = {greedy: survival.to_json() for greedy, survival in survivals.items()}
        greedy, sampled = (self._rates.get((name, kind), _NO_RATE) for kind in (True, False))
        return Learned(
            greedy=states.get(True, {}),
            sampled=states.get(False, {}),
            greedy_acceptance=(greedy.accepted, greedy.drafted),
            sampled_acceptance=(sampled.accepted, sampled.drafted),
            greedy_gain=self._usual_gains.get((name, True), 0.0),
            sampled_gain=self._usual_gains.get((name, False), 0.0),
        )


def num_output_tokens(sequence: SequenceView) -> int:
    """Tokens behind the prompt."""
    return len(sequence.tokens) - sequence.num_prompt_tokens
