"""What `/stats` says of a whole conversation."""

from foredraft.cli.chat import Totals
from foredraft.engine import Completion, Speculation, Timings, Usage


def answer(*, num_tokens: int, num_rounds: int, seconds: float, speedup: float | None = None) -> Completion:
    return Completion(
        text="",
        token_ids=tuple(range(num_tokens)),
        finish_reason="stop",
        usage=Usage(prompt_tokens=5, completion_tokens=num_tokens),
        timings=Timings(load_s=0, prefill_s=0, decode_s=seconds, num_prompt_tokens=4, num_completion_tokens=num_tokens),
        speculation=Speculation(
            methods=("lookup",),
            lossless=True,
            num_rounds=num_rounds,
            num_draft_tokens=num_rounds,
            num_accepted_tokens=num_tokens - num_rounds,
            num_emitted_tokens=num_tokens,
            accepted_per_position=(),
            reason="",
            speedup=speedup,
        ),
    )


def test_figures_of_short_and_long_answers_are_pooled() -> None:
    """Kind: the mean of the answers' ratios, in which ten tokens weigh as much as four thousand."""
    totals = Totals()
    totals.add(answer(num_tokens=10, num_rounds=10, seconds=1.0))
    totals.add(answer(num_tokens=4000, num_rounds=1000, seconds=39.1))
    report = totals.report()
    assert "4010 tokens, 100.0 tokens/s, mean acceptance length 3.97" in report  # 4010 / 1010, not (1 + 4) / 2


def test_an_answer_without_rounds_or_tokens_is_no_ratio() -> None:
    totals = Totals()
    totals.add(answer(num_tokens=0, num_rounds=0, seconds=0.0))
    assert "mean acceptance length" not in totals.report().splitlines()[0]
    assert "nan" not in totals.report()


def test_the_speed_up_is_that_of_all_the_time() -> None:
    """Kind: the mean of ratios, in which a second weighs as much as a minute; or those of which none is known count."""
    totals = Totals()
    totals.add(answer(num_tokens=10, num_rounds=5, seconds=1.0, speedup=4.0))
    totals.add(answer(num_tokens=100, num_rounds=50, seconds=9.0, speedup=1.0))
    totals.add(answer(num_tokens=100, num_rounds=50, seconds=90.0))
    assert "1.30 times plain decoding" in totals.report().splitlines()[0]
