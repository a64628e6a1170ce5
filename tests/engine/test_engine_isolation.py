"""An error belongs to its own sequence: faults are injected everywhere, and everybody else gets their solo text."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from helpers.engines import make_engine, output, run_to_the_end, submit, table_decoder, tiny_tokenizer

from foredraft.drafters.lookup import LookupDrafter
from foredraft.drafters.supervised import SupervisedDrafter
from foredraft.errors import ForedraftError, OptionError
from foredraft.sampling import SamplingParams
from foredraft.sequence import Status
from foredraft.testing import TableModel
from foredraft.trace import Record, RoundRecord

V = 40
PARAMS = SamplingParams(max_tokens=20, ignore_eos=True, temperature=0.7, seed=3)
PROMPTS = [[1, 2, 3], [4, 5, 39], [7, 8, 9]]


class Poisoned(TableModel):
    """Fails for the token 39 in a text's first three: what a broken prompt does to a model."""

    fault: Callable[[np.ndarray], np.ndarray]

    def logits(self, tokens):  # type: ignore[no-untyped-def]
        row = super().logits(tokens)
        return self.fault(row) if 39 in list(tokens)[:3] else row


def _raises(row: np.ndarray) -> np.ndarray:
    raise MemoryError("no memory for this one")


FAULTS = {
    "raises": _raises,
    "nan": lambda row: np.full_like(row, np.nan),
    "infinite": lambda row: np.where(np.arange(V) == 3, np.inf, row),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_prompt_that_breaks_the_model_breaks_no_other(fault: str) -> None:
    """Kind: an error of one sequence ends all that share its pass."""
    model = TableModel(3, V, seed=2)
    poisoned = Poisoned(3, V, seed=2)
    poisoned.fault = staticmethod(FAULTS[fault])  # type: ignore[assignment]
    decoder, _ = table_decoder(poisoned)
    engine = make_engine(decoder, LookupDrafter())
    outputs = [submit(engine, prompt, PARAMS) for prompt in PROMPTS]
    run_to_the_end(engine)
    assert [one.sequence.status for one in outputs] == [Status.FINISHED, Status.FAILED, Status.FINISHED]
    assert isinstance(outputs[1].sequence.error, MemoryError if fault == "raises" else ForedraftError)
    for place in (0, 2):
        assert output(outputs[place]) == model.generate(PROMPTS[place], PARAMS, 20)
    assert decoder.cache.pool.num_used == 0
    decoder.cache.pool.check_integrity()


def test_a_chunk_of_a_prompt_that_cannot_be_computed_breaks_no_round() -> None:
    """Kind: a prompt that fails while it is computed raises in the call of another sequence."""
    model = TableModel(2, V, seed=6)
    decoder, forward = table_decoder(model)
    engine = make_engine(decoder, LookupDrafter())
    first = submit(engine, PROMPTS[0], PARAMS)
    engine.step()
    engine.step()
    bad = submit(engine, [*range(30)], PARAMS)

    def before() -> None:
        if len(forward.upcoming_rows) > 10:
            raise MemoryError

    forward.before = before
    run_to_the_end(engine)
    assert bad.sequence.status is Status.FAILED
    assert output(first) == model.generate(PROMPTS[0], PARAMS, 20)
    assert decoder.cache.pool.num_used == 0


def test_options_that_leave_no_token_fail_alone() -> None:
    model = TableModel(2, V, seed=6, one_hot=True)
    tokenizer = tiny_tokenizer()
    decoder, _ = table_decoder(model)
    engine = make_engine(decoder, LookupDrafter(), tokenizer=tokenizer)
    greedy = SamplingParams(max_tokens=20, ignore_eos=True)
    third = tokenizer.token_bytes(model.generate(PROMPTS[2], greedy, 3)[2]).decode()
    outputs = [submit(engine, PROMPTS[0], greedy), submit(engine, PROMPTS[2], replace(greedy, bad_words=(third,)))]
    run_to_the_end(engine)
    assert isinstance(outputs[1].sequence.error, OptionError)
    assert output(outputs[0]) == model.generate(PROMPTS[0], greedy, 20)


@pytest.mark.parametrize("method", ["propose", "begin", "observe", "end"])
def test_a_drafter_that_fails_costs_drafts_and_nothing_else(method: str) -> None:
    """Kind: any exception of a drafter ends everything that runs."""
    model = TableModel(2, V, seed=6)
    decoder, _ = table_decoder(model)

    class Failing(LookupDrafter):
        pass

    def fail(*_: object, **__: object) -> None:
        raise ValueError("a fault of the drafter")

    setattr(Failing, method, fail)
    engine = make_engine(decoder, SupervisedDrafter(Failing()))
    outputs = [submit(engine, prompt, PARAMS) for prompt in PROMPTS]
    run_to_the_end(engine)
    for prompt, one in zip(PROMPTS, outputs, strict=True):
        assert output(one) == model.generate(prompt, PARAMS, 20)
        if method != "end":
            assert "lookup" in one.reason
            assert "a fault of the drafter" in one.reason


def test_a_record_that_cannot_be_written_is_an_error_of_its_sequence() -> None:
    model = TableModel(2, V, seed=6)
    decoder, _ = table_decoder(model)

    def sink(record: Record) -> None:
        if isinstance(record, RoundRecord) and record.sequence == 1 and record.round == 3:
            raise OSError("the disk is full")

    engine = make_engine(decoder, trace=sink)
    outputs = [submit(engine, prompt, PARAMS) for prompt in PROMPTS]
    run_to_the_end(engine)
    assert [one.sequence.status for one in outputs] == [Status.FINISHED, Status.FAILED, Status.FINISHED]
    assert output(outputs[2]) == model.generate(PROMPTS[2], PARAMS, 20)
