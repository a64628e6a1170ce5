"""From finished requests to what was asked for: the answers to one prompt make one completion."""

from collections import Counter
from collections.abc import Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING

from foredraft.accept import COUPLED, AcceptanceRule
from foredraft.engine.completion import Choice, Completion, LenientCost, Speculation, Timings, Usage

if TYPE_CHECKING:
    from foredraft.engine.request import Request


def completion_of(
    requests: "Sequence[Request]", *, methods: Sequence[str], load_s: float, rule: AcceptanceRule = COUPLED
) -> Completion:
    """The completion of all requests that answer one prompt, one for each choice in their order.

    Of more answers than were asked for those with the largest log-probability are kept, best first. Usage, timings and
    speculation are sums over all that were produced.
    """
    first = requests[0]
    choices = _kept(requests)
    return Completion(
        text=choices[0].text,
        token_ids=choices[0].token_ids,
        finish_reason=choices[0].finish_reason,
        usage=Usage(
            prompt_tokens=len(first.prompt),
            completion_tokens=sum(request.num_output_tokens for request in requests),
        ),
        timings=_timings(requests, load_s),
        speculation=_speculation(requests, methods, rule),
        choices=choices,
        prompt_logprobs=first.prompt_logprobs,
    )


def _kept(requests: "Sequence[Request]") -> tuple[Choice, ...]:
    params = requests[0].params
    if params.num_choices == params.n:
        return tuple(request.answer(index) for index, request in enumerate(requests))
    best = sorted(requests, key=lambda request: -(request.cumulative_logprob or 0.0))
    return tuple(request.answer(index) for index, request in enumerate(best[: params.n]))


def _timings(requests: "Sequence[Request]", load_s: float) -> Timings:
    return Timings(
        load_s=load_s,
        prefill_s=sum(request.prefill_s for request in requests),
        decode_s=max(request.decode_ended for request in requests)
        - min(request.decode_started for request in requests),
        draft_s=sum(request.counts.draft_s for request in requests),
        verify_s=sum(request.counts.verify_s for request in requests),
        accept_s=sum(request.counts.accept_s for request in requests),
        num_prompt_tokens=sum(len(request.prompt) - 1 - request.num_cached_prompt_tokens for request in requests),
        num_completion_tokens=sum(request.num_output_tokens for request in requests),
    )


def _speculation(requests: "Sequence[Request]", methods: Sequence[str], rule: AcceptanceRule) -> Speculation:
    equality = rule.equality(requests[0].params)
    counts = [request.counts for request in requests]
    positions = zip_longest(*(count.accepted_per_position for count in counts), fillvalue=0)
    constrained = requests[0].params.constrained
    drafted = sum((count.drafted for count in counts), Counter[str]())
    accepted = sum((count.accepted for count in counts), Counter[str]())
    expected_s = sum(count.expected_s for count in counts)
    return Speculation(
        methods=tuple(method for method in methods if method != "grammar" or constrained),
        lossless=equality != "none",
        num_rounds=sum(count.num_rounds for count in counts),
        num_draft_tokens=sum(count.num_draft_tokens for count in counts),
        num_accepted_tokens=sum(count.num_accepted_tokens for count in counts),
        num_emitted_tokens=sum(request.num_output_tokens for request in requests),
        accepted_per_position=tuple(sum(accepted) for accepted in positions),
        reason=requests[0].reason,
        acceptance=rule.name,
        equality=equality,
        cost=LenientCost.of([choice for count in counts for choice in count.choices]),
        by_method={method: (number, accepted[method]) for method, number in drafted.items()},
        expected_tokens=sum(count.expected_tokens for count in counts) if expected_s else None,
        expected_s=expected_s or None,
    )
