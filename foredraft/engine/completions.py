"""From the outputs of sequences to the completion of a prompt."""

from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest

from foredraft.accept import COUPLED, AcceptanceRule
from foredraft.engine.completion import Choice, Completion, LenientCost, Speculation, Timings, Usage
from foredraft.engine.output import Output


def completion_of(
    outputs: Sequence[Output], *, methods: Sequence[str], load_s: float, rule: AcceptanceRule = COUPLED
) -> Completion:
    """The completion of one prompt from the outputs of all its sequences, in the order of their sample indices.

    Of more than were asked for, those with the largest log-probability are kept, best first. Usage, timings and
    speculation are sums over all that were produced.
    """
    first = outputs[0]
    choices = _kept(outputs)
    return Completion(
        text=choices[0].text,
        token_ids=choices[0].token_ids,
        finish_reason=choices[0].finish_reason,
        usage=Usage(
            prompt_tokens=len(first.prompt),
            completion_tokens=sum(output.sequence.num_output_tokens for output in outputs),
            cached_tokens=first.sequence.num_cached_tokens,
        ),
        timings=_timings(outputs, load_s),
        speculation=_speculation(outputs, methods, rule),
        choices=choices,
        prompt_logprobs=first.prompt_logprobs,
    )


def _kept(outputs: Sequence[Output]) -> tuple[Choice, ...]:
    params = outputs[0].params
    if params.num_choices == params.n:
        return tuple(output.choice(index) for index, output in enumerate(outputs))
    best = sorted(outputs, key=lambda output: -(output.cumulative_logprob or 0.0))
    return tuple(output.choice(index) for index, output in enumerate(best[: params.n]))


def _timings(outputs: Sequence[Output], load_s: float) -> Timings:
    return Timings(
        load_s=load_s,
        queue_s=min(output.admitted - output.prepared for output in outputs),
        first_token_s=min((output.first_token or output.decode_ended) - output.prepared for output in outputs),
        whole_s=max(output.decode_ended - output.prepared for output in outputs),
        prefill_s=sum(output.prefill_s for output in outputs),
        decode_s=max(output.decode_ended for output in outputs) - min(output.decode_started for output in outputs),
        draft_s=sum(output.counts.draft_s for output in outputs),
        verify_s=sum(output.counts.verify_s for output in outputs),
        accept_s=sum(output.counts.accept_s for output in outputs),
        num_prompt_tokens=sum(len(output.prompt) - 1 - output.sequence.num_cached_tokens for output in outputs),
        num_completion_tokens=sum(output.sequence.num_output_tokens for output in outputs),
    )


def _speculation(outputs: Sequence[Output], methods: Sequence[str], rule: AcceptanceRule) -> Speculation:
    equality = rule.equality(outputs[0].params)
    counts = [output.counts for output in outputs]
    positions = zip_longest(*(count.accepted_per_position for count in counts), fillvalue=0)
    constrained = outputs[0].params.constrained
    drafted = sum((count.drafted for count in counts), Counter[str]())
    accepted = sum((count.accepted for count in counts), Counter[str]())
    expected_s = sum(count.expected_s for count in counts)
    round_s = sum(count.round_s for count in counts)
    return Speculation(
        methods=tuple(method for method in methods if method != "grammar" or constrained),
        lossless=equality != "none",
        num_rounds=sum(count.num_rounds for count in counts),
        num_draft_tokens=sum(count.num_draft_tokens for count in counts),
        num_accepted_tokens=sum(count.num_accepted_tokens for count in counts),
        num_emitted_tokens=sum(output.sequence.num_output_tokens for output in outputs),
        accepted_per_position=tuple(sum(accepted) for accepted in positions),
        reason=outputs[0].reason,
        acceptance=rule.name,
        equality=equality,
        cost=LenientCost.of([choice for count in counts for choice in count.choices]),
        by_method={method: (number, accepted[method]) for method, number in drafted.items()},
        expected_tokens=sum(count.expected_tokens for count in counts) if expected_s else None,
        expected_s=expected_s or None,
        speedup=sum(count.plain_s for count in counts) / round_s if round_s else None,
    )
