"""A prompt as its client holds it: all sequences that complete it, and what is delivered of them."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace

from foredraft.engine.completion import Chunk, Completion
from foredraft.engine.engine import Engine
from foredraft.engine.output import Output
from foredraft.errors import ForedraftError, OptionError
from foredraft.sampling import SamplingParams
from foredraft.sequence import Status

Event = Chunk | Exception
"""What a client gets: pieces, the last of which carries the completion; or, instead of the next, why there is none."""


class Submission:
    """The sequences of one prompt. Looked at after every step that concerned one of them (`news`).

    complete: the completion, once all are finished. streams: whether pieces are wanted as they come; otherwise there is
    one chunk, at the end, with the completion.
    """

    def __init__(self, outputs: Sequence[Output], complete: Callable[[], Completion], *, streams: bool) -> None:
        self.outputs = tuple(outputs)
        self._complete = complete
        self._streams = streams
        self._open = list(enumerate(outputs))
        self.is_over = False
        """Whether the last event was returned."""

    def news(self) -> Iterator[Event]:
        """What there is to tell since the last time, up to a failure or the end."""
        for index, output in list(self._open):
            if self.is_over:
                return
            status = output.sequence.status
            if status in (Status.FAILED, Status.CANCELLED):
                self.is_over = True
                yield output.sequence.error or ForedraftError("the sequence was cancelled")
                return
            if status is Status.FINISHED:
                self._open.remove((index, output))
                self.is_over = not self._open
            if self._streams or self.is_over:
                yield from self._chunks(index, output)

    def _chunks(self, index: int, output: Output) -> Iterator[Event]:
        chunk = output.take_new(index) if self._streams else Chunk("", (), index=index)
        if self.is_over:
            try:
                chunk = replace(chunk, completion=self._complete())
            except Exception as error:
                yield error
                return
        if chunk.completion or chunk.text or chunk.token_ids:
            yield chunk


def outputs_for(engine: Engine, prompt: Sequence[int], params: SamplingParams) -> list[Output]:
    """A sequence for each completion of a prompt; they share their seed. Raises as `Engine.prepare` does."""
    if not isinstance(params, SamplingParams):
        raise OptionError(f"sampling parameters must be SamplingParams, got {params!r}")
    seeded = params.with_seed()
    return [engine.prepare(prompt, seeded, sample_index=index) for index in range(params.num_choices)]
