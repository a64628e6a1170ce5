"""From the text of an answer, as it streams, to its parts."""

from foredraft.server.parsing.calls import CallReader
from foredraft.server.parsing.formats import AnswerForm, CallFormat
from foredraft.server.parsing.parts import Arguments, Part, Reasoning, Text, ToolCall, Trimmed, merged
from foredraft.server.parsing.reader import NEWLINES, Reader, Reading


class AnswerParser:
    """Splits one answer. However its text is cut into pieces, the parts are the same once joined.

    No text is an error: what turns out not to be a call of a known tool is plain text, as it stands. Of calls that are
    cut off, what was passed on stays.
    """

    def __init__(self, form: AnswerForm) -> None:
        self._form = form
        self._parts: list[Part] = []
        self._reader = Reader()
        self._content = Trimmed(self._say)
        self._reading = self._read()

    def feed(self, text: str) -> list[Part]:
        """The parts that are certain now that this text follows."""
        self._reader.feed(text)
        return self._advance()

    def finish(self) -> list[Part]:
        """What was held back, now that nothing more follows."""
        self._reader.end()
        return self._advance()

    def _advance(self) -> list[Part]:
        next(self._reading, None)
        found = merged(self._parts)
        self._parts.clear()
        return found

    def _say(self, text: str) -> None:
        self._parts.append(Text(text))

    def _emit(self, part: Part) -> None:
        if isinstance(part, ToolCall):
            self._content.interrupt()
        self._parts.append(part)

    def _read(self) -> Reading[None]:
        if self._form.called is not None:
            self._emit(ToolCall(0, self._form.called))
            yield from self._reader.until((), lambda text: self._emit(Arguments(0, text)))
            return
        yield from self._read_reasoning()
        if self._form.calls is None:
            self._content.finish()
            yield from self._reader.until((), self._say)
            return
        yield from self._read_calls(self._form.calls)
        self._content.finish()

    def _read_reasoning(self) -> Reading[None]:
        """Reasoning stands at the start: a tag that comes later is meant as it stands."""
        tags = self._form.tags
        if tags is None:
            return
        self._reader.keep()
        opened = yield from self._reader.reads(tags.opening)
        before = self._reader.give_back()
        if not opened and not self._form.inside:
            self._content.write(before)
            return
        yield from self._reader.skip()
        reasoning = Trimmed(lambda text: self._parts.append(Reasoning(text)))
        if (yield from self._reader.until((tags.closing,), reasoning.write)):
            yield from self._reader.skip(NEWLINES)
        else:
            reasoning.finish()

    def _read_calls(self, form: CallFormat) -> Reading[None]:
        calls = CallReader(form, self._form.tools, self._reader, self._emit)
        if form.bare:
            self._reader.keep()
            yield from calls.read()
            self._content.write(self._reader.give_back())
        while marker := (yield from self._reader.until(form.opening, self._content.write)):
            self._reader.keep(marker)
            yield from calls.read(marker)
            self._content.write(self._reader.give_back())
