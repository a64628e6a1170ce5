"""Text that comes in: arguments, files and standard input, all of which must be UTF-8."""

import os
import re
import sys
from pathlib import Path

from foredraft.errors import OptionError
from foredraft.files import text_of, user_path, without_mark

_ESCAPED = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"'": b"'", b'"': b'"', b"\\": b"\\"}
_ESCAPE = re.compile(rb"""\\(x[0-9a-fA-F]{1,2}|[nrt'"\\])""")


def decoded(source: str, content: bytes) -> str:
    """Return the text that `content` is in UTF-8, without a byte order mark.

    Raises:
        OptionError: it is not UTF-8; the line names the source, the byte and its offset (from 0).
    """
    try:
        return text_of(content)
    except UnicodeDecodeError as error:
        raise OptionError(
            f"{source} is not valid UTF-8: byte 0x{content[error.start]:02x} at offset {error.start}; "
            "convert it first, for example with iconv"
        ) from error


def checked_argument(option: str, text: str) -> str:
    """Return an argument of the command line, or raise OptionError when it was not UTF-8."""
    return decoded(option, os.fsencode(text)) if _has_surrogates(text) else text


def _has_surrogates(text: str) -> bool:
    # Bytes of an argument that are not UTF-8 reach Python as lone surrogates.
    return any("\ud800" <= character <= "\udfff" for character in text)


def unescaped(option: str, text: str) -> str:
    r"""Return the text with \n, \r, \t, \\, \', \" and \xHH (a byte of UTF-8) as what they stand for.

    As llama.cpp has it; a backslash before anything else stays. Raises OptionError when bytes are not UTF-8.
    """
    return decoded(option, _ESCAPE.sub(_escaped, text.encode()))


def _escaped(match: re.Match[bytes]) -> bytes:
    code = match[1]
    return bytes.fromhex(code[1:].decode().zfill(2)) if code[:1] == b"x" else _ESCAPED[code]


def read_prompt(argument: str | None, file: Path | None, *, raw: bool, escape: bool = False) -> str:
    """Return the prompt: the argument, or the content of `file`, or of standard input (no argument, or `-`).

    One line ending at the end of a file or of standard input belongs to the file, not to the prompt, unless
    `raw`, which takes the text as it stands. escape: what `unescaped` does to the argument; files are left alone.

    Raises:
        OptionError: no prompt, two prompts, an empty one, one that cannot be read or is not UTF-8.
    """
    if argument is not None and file is not None:
        raise OptionError("give either PROMPT or --prompt-file, not both")
    if file is not None:
        text = _without_line_ending(decoded(f"prompt file {file}", _read_file(file)), raw=raw)
    elif argument is None or argument == "-":
        text = _without_line_ending(read_stdin("no prompt: give it as an argument, with --prompt-file,"), raw=raw)
    else:
        text = without_mark(checked_argument("PROMPT", argument))  # which "$(cat FILE)" brings along
        text = unescaped("PROMPT", text) if escape else text
    if not (text if raw else text.strip()):
        raise OptionError("the prompt is empty; give some text to answer or continue")
    return text


def _without_line_ending(text: str, *, raw: bool) -> str:
    return text if raw else text.removesuffix("\n").removesuffix("\r")


def _read_file(file: Path) -> bytes:
    try:
        return user_path(file).read_bytes()
    except OSError as error:
        raise OptionError(f"cannot read the prompt file {file}: {error.strerror}") from error


def read_stdin(missing: str) -> str:
    """Return all of standard input, or raise OptionError, which says what is missing, where nothing is piped in."""
    if sys.stdin is None or sys.stdin.isatty():
        raise OptionError(f"{missing} or through a pipe")
    return decoded("standard input", sys.stdin.buffer.read())
