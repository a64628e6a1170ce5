"""From what the engine did to the records of a trace. Nothing here runs where nobody wants them."""

import dataclasses
from collections.abc import Callable

import numpy as np

from foredraft.drafters.base import Outcome
from foredraft.engine.output import Output
from foredraft.kernels.operations import Floats
from foredraft.planner.base import Planner
from foredraft.round import RoundReport
from foredraft.text import Detokenizer, Tokenizer
from foredraft.trace import Choice, RoundRecord, SequenceEnd, SequenceStart, Sink
from foredraft.tree import DraftTree


class Tracer:
    """Tells a sink of every sequence and every round of an engine."""

    def __init__(self, sink: Sink, planner: Planner, tokenizer: Tokenizer) -> None:
        self._sink = sink
        self._planner = planner
        self._tokenizer = tokenizer
        self._followed: dict[int, _Followed] = {}

    def started(self, output: Output) -> None:
        """The prompt has been computed."""
        sequence = output.sequence
        self._followed[sequence.id] = _Followed(
            sequence.num_prompt_tokens, Detokenizer(self._tokenizer, at_start=False)
        )
        self._sink(
            SequenceStart(
                sequence=sequence.id,
                prompt=self._tokenizer.decode(output.prompt, skip_special=False),
                prompt_tokens=output.prompt,
                num_cached_tokens=sequence.num_cached_tokens,
                prefill_s=output.prefill_s,
                params=dataclasses.asdict(output.params),
            )
        )

    def recorder(self, report: RoundReport, index: int) -> Callable[[Output], None]:
        """What writes the record of a round for the sequence at a place of its plan, while its logits are there."""
        outcome = report.result.outcomes[index]
        assert outcome is not None

        def record(output: Output) -> None:
            self._sink(self._record(output, outcome, report, index))

        return record

    def _record(self, output: Output, outcome: Outcome, report: RoundReport, index: int) -> RoundRecord:
        result, outcomes = report.result, [found for found in report.result.outcomes if found is not None]
        followed, tree = self._followed[output.sequence.id], outcome.tree
        emitted = tuple(output.sequence.tokens[followed.num_tokens :])
        ranks, probs = _opinions(outcome, output.params.temperature or 1.0)
        left = len(emitted) > len(outcome.path)  # the last token is the target's own, not a node
        last = outcome.path[-1] if outcome.path else 0
        expected = report.plan.expectation(index)
        record = RoundRecord(
            sequence=output.sequence.id,
            round=followed.num_rounds,
            num_tokens=followed.num_tokens,
            tokens=tree.tokens,
            parents=tree.parents,
            confidence=tree.confidence,
            sources=tree.sources or ("", *(["+".join(self._planner.names)] * tree.num_draft_tokens)),
            texts=tuple(self._text(token) for token in tree.tokens),
            target_ranks=ranks,
            target_probs=probs,
            accepted=outcome.path,
            rejected=_first_child(tree, last) if left else None,
            choice=self._choice(outcome.logits_NV[last], emitted[-1], output) if left else None,
            emitted=emitted,
            emitted_texts=tuple(followed.detokenizer.push(token) for token in emitted),
            draft_s=result.times.draft,
            verify_s=result.times.verify,
            accept_s=result.times.accept,
            num_sequences=len(outcomes),
            num_batched_tokens=sum(found.tree.num_nodes for found in outcomes) + result.num_prefill_tokens,
            num_prefill_tokens=result.num_prefill_tokens,
            expected_tokens=expected.num_tokens if expected else None,
            expected_s=expected.seconds if expected else None,
            reason=self._planner.reason(output.sequence.id),
        )
        followed.num_tokens += len(emitted)
        followed.num_rounds += 1
        return record

    def _choice(self, logits_V: Floats, token: int, output: Output) -> Choice:
        return Choice(
            token=token,
            text=self._text(token),
            rank=_rank(logits_V, token),
            probability=_probability(logits_V, token, output.params.temperature or 1.0),
        )

    def ended(self, output: Output) -> None:
        """The sequence is over, finished or not."""
        followed = self._followed.pop(output.sequence.id, None)
        if followed is None:
            return
        self._sink(
            SequenceEnd(
                sequence=output.sequence.id,
                finish_reason=output.sequence.finish_reason,
                num_rounds=output.counts.num_rounds,
                num_draft_tokens=output.counts.num_draft_tokens,
                num_accepted_tokens=output.counts.num_accepted_tokens,
                num_emitted_tokens=followed.num_tokens - output.sequence.num_prompt_tokens,
                reason=output.reason,
            )
        )

    def _text(self, token: int) -> str:
        """What a token stands for; bytes that make up no character as <0xE2>."""
        piece = self._tokenizer.token_bytes(token)
        try:
            return piece.decode("utf-8")
        except UnicodeDecodeError:
            return "".join(chr(byte) if byte < 0x80 else f"<0x{byte:02X}>" for byte in piece)


@dataclasses.dataclass
class _Followed:
    """How far the records of a sequence have come."""

    num_tokens: int
    detokenizer: Detokenizer
    num_rounds: int = 0


def _opinions(outcome: Outcome, temperature: float) -> tuple[tuple[int | None, ...], tuple[float | None, ...]]:
    """Rank and probability under the target of each node given its parent; None for the root."""
    ranks: list[int | None] = [None]
    probs: list[float | None] = [None]
    sums = {parent: _log_sum(outcome.logits_NV[parent], temperature) for parent in set(outcome.tree.parents[1:])}
    for token, parent in zip(outcome.tree.tokens[1:], outcome.tree.parents[1:], strict=True):
        row = outcome.logits_NV[parent]
        ranks.append(_rank(row, token))
        probs.append(_rounded(np.exp(np.float64(row[token]) / temperature - sums[parent])))
    return tuple(ranks), tuple(probs)


def _rank(logits_V: Floats, token: int) -> int:
    value = logits_V[token]
    ahead = np.count_nonzero(logits_V > value) + np.count_nonzero(logits_V[:token] == value)
    return int(ahead) + 1


def _probability(logits_V: Floats, token: int, temperature: float) -> float:
    return _rounded(np.exp(np.float64(logits_V[token]) / temperature - _log_sum(logits_V, temperature)))


def _log_sum(logits_V: Floats, temperature: float) -> float:
    with np.errstate(over="ignore"):
        scaled = logits_V.astype(np.float64) / temperature
        largest = scaled.max()
        return float(largest + np.log(np.exp(scaled - largest).sum()))


def _rounded(value: float) -> float:
    """Six digits are plenty, and keep the file small."""
    return float(f"{value:.6g}")


def _first_child(tree: DraftTree, node: int) -> int | None:
    return next((child for child in range(1, tree.num_nodes) if tree.parents[child] == node), None)
