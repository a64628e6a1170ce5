"""Calls of tools in the text of an answer."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from foredraft.server.parsing.formats import FUNCTION, CallFormat
from foredraft.server.parsing.json_text import read_text, read_value, types_of, unwrapped, value_of, written
from foredraft.server.parsing.parts import Arguments, Part, ToolCall
from foredraft.server.parsing.reader import Reader, Reading, Sink

_NAMES = ("name", "tool_name")
_ARGUMENTS = ("arguments", "parameters")
_BESIDES = ("id", "type", "index", "tool_call_id", "call_id")
"""Other members of the object of a call. What has more of them before it is known to be a call is none."""

_HEAD = re.compile(r"[\w.\-/\[\]]*")
_HEAD_END = re.compile(r"(?:(?:\[CALL_ID\])?[A-Za-z0-9]{9})?(?:\[ARGS\])?")
"""Between name and arguments Mistral has a number of the call, and markers, special tokens which may not be shown."""
_TAG = re.compile(r"[^>\n]*")
_PARAMETER = "<parameter="
_LONGEST_HEAD, _LONGEST_TAG = 128, 256


class CallReader:
    """Reads calls, and passes them on as they come.

    Where the text is no call after all, what was read of it can be taken back from the reader, which is to keep it.
    """

    def __init__(
        self, form: CallFormat, tools: Mapping[str, Mapping[str, Any]], reader: Reader, emit: Callable[[Part], None]
    ) -> None:
        self._format = form
        self._tools = tools
        self._reader = reader
        self._emit = emit
        self._num_calls = 0

    def read(self, marker: str = "") -> Reading[None]:
        """One call after another, until something else follows. marker: what was read of the first, if anything."""
        begin = {FUNCTION: self._read_function, "": self._read_bare}.get(marker, self._read_one)
        found = yield from begin()
        while found:
            if (yield from self._reader.closes(*self._format.closing)):
                self._reader.keep()
            yield from self._reader.reads(";", ",")
            found = yield from self._read_bare()

    def _read_function(self) -> Reading[bool]:
        """A call in tags, behind the beginning of the first."""
        name = yield from self._read_tag()
        if name is None or name not in self._tools:
            return False
        self._begin(name)
        yield from self._reader.skip()
        if (yield from self._reader.peek()) == "{":
            yield from read_value(self._reader, self._argue)
        else:
            yield from self._read_parameters(name)
        yield from self._reader.closes("</function>", _PARAMETER)
        self._end()
        return True

    def _read_bare(self) -> Reading[bool]:
        """A call without a marker. Where there is one, it stays unread."""
        yield from self._reader.skip()
        if (yield from self._reader.starts(*self._format.opening)):
            return False
        return (yield from self._read_one())

    def _read_one(self) -> Reading[bool]:
        """Whether there was a call."""
        yield from self._reader.skip()
        first = yield from self._reader.peek()
        if first == "{":
            return (yield from self._read_object())
        if first == "[":
            return (yield from self._read_array())
        if (yield from self._reader.starts(FUNCTION)):
            self._reader.take(len(FUNCTION))
            return (yield from self._read_function())
        return (yield from self._read_named())

    def _read_array(self) -> Reading[bool]:
        found = False
        separator = self._reader.take(1)
        while separator and (yield from self._read_object()):
            found = True
            separator = yield from self._reader.reads(",")
        if found and (yield from self._reader.reads("]")):
            self._reader.keep()
        return found

    def _read_object(self) -> Reading[bool]:
        if not (yield from self._reader.reads("{")):
            return False
        name: str | None = None
        early: list[str] = []  # arguments that stand before the name
        begun = False
        while (key := (yield from self._read_key())) is not None:
            if key in _ARGUMENTS and not begun and not early:
                if name is not None:
                    begun = True
                    self._begin(name)
                yield from self._read_arguments(self._argue if begun else early.append)
            elif key in _NAMES and name is None:
                name = yield from read_text(self._reader)
                if name not in self._tools:
                    return False
            elif begun or key in _BESIDES:
                yield from read_value(self._reader, _ignore)
            else:
                return False
            if not (yield from self._reader.reads(",")):
                break
        whole = bool((yield from self._reader.reads("}")))
        if name is not None and not begun and (whole or self._reader.ended):
            self._begin(name)
            self._argue("".join(early) or ("{}" if whole else ""))
            begun = True
        if begun:
            self._end()
        return begun

    def _read_key(self) -> Reading[str | None]:
        """The next key of an object, read to where its value begins; None where there is none."""
        yield from self._reader.skip()
        key = yield from read_text(self._reader)
        if key is None or not (yield from self._reader.reads(":")):
            return None
        yield from self._reader.skip()
        return key

    def _read_arguments(self, sink: Sink) -> Reading[None]:
        if (yield from self._reader.peek()) != '"':
            yield from read_value(self._reader, sink)
            return
        pieces: list[str] = []
        yield from read_value(self._reader, pieces.append)
        sink(unwrapped("".join(pieces)))

    def _read_named(self) -> Reading[bool]:
        """A name, and the object of the arguments behind it."""
        head = yield from self._reader.run(_HEAD, _LONGEST_HEAD)
        fits = (name for name in self._tools if head.startswith(name) and _HEAD_END.fullmatch(head, len(name)))
        name = max(fits, key=len, default=None)
        if name is None:
            return False
        self._reader.take(len(head))
        yield from self._reader.skip()
        if (yield from self._reader.peek()) != "{":
            return False
        self._begin(name)
        yield from read_value(self._reader, self._argue)
        self._end()
        return True

    def _read_parameters(self, name: str) -> Reading[None]:
        """Tags with the values of parameters, which are made one JSON object."""
        properties = self._tools[name].get("properties")
        separator = "{"
        while (yield from self._reader.reads(_PARAMETER)):
            key = yield from self._read_tag()
            if key is None:
                break
            self._argue(f"{separator}{json.dumps(key, ensure_ascii=False)}: ")
            separator = ", "
            yield from self._read_parameter(types_of(properties.get(key) if isinstance(properties, dict) else None))
        if not self._reader.ended:
            self._argue("{}" if separator == "{" else "}")

    def _read_parameter(self, types: frozenset[str]) -> Reading[None]:
        closing = ("\n</parameter>", "</parameter>")
        self._reader.take(len((yield from self._reader.starts("\n"))))
        if types == {"string"}:
            self._argue('"')
            if (yield from self._reader.until(closing, lambda piece: self._argue(written(piece)))):
                self._argue('"')
            return
        pieces: list[str] = []
        whole = yield from self._reader.until(closing, pieces.append)
        value = "".join(pieces)
        self._argue(value_of(value, types) if whole else value.strip())

    def _read_tag(self) -> Reading[str | None]:
        """What a tag names, read past its end; None where it does not end."""
        text = yield from self._reader.run(_TAG, _LONGEST_TAG)
        self._reader.take(len(text))
        if not (yield from self._reader.reads(">")):
            return None
        return text.strip().strip("\"'")

    def _begin(self, name: str) -> None:
        self._reader.forget()
        self._emit(ToolCall(self._num_calls, name))

    def _argue(self, text: str) -> None:
        self._emit(Arguments(self._num_calls, text))

    def _end(self) -> None:
        self._reader.keep()
        self._num_calls += 1


def _ignore(text: str) -> None:
    pass
