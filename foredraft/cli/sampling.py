"""The options of sampling, which every command that answers has in common.

A command that is decorated with `takes_sampling` has all of them, and gets them as one value.
"""

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Annotated, Any

import typer

from foredraft.cli.inputs import checked_argument, decoded, unescaped
from foredraft.errors import OptionError
from foredraft.files import user_path, without_mark

if TYPE_CHECKING:
    from foredraft.sampling import SamplingParams

Number = float | None
Count = int | None
Texts = list[str] | None
AS_MANY_AS_FIT = -1
"""What the command line takes for no limit of tokens, as llama.cpp does."""


def _option(help: str, metavar: str, *names: str) -> Any:
    return typer.Option(*names, metavar=metavar, help=help, show_default=False)


@dataclass(frozen=True, kw_only=True)
class SamplingFlags:
    """As given on the command line; None: left to the library's default."""

    temperature: Annotated[Number, _option("0 takes the most likely token (the default); above 0 samples.", "T")] = None
    top_k: Annotated[Count, _option("Sample among the K most likely tokens (0: all).", "K")] = None
    top_p: Annotated[Number, _option("Sample among the likeliest tokens that hold probability P.", "P")] = None
    min_p: Annotated[Number, _option("Sample among tokens at least P times as likely as the best.", "P")] = None
    typical_p: Annotated[
        Number, _option("Sample among the tokens of most typical surprise that hold probability P.", "P")
    ] = None
    seed: Annotated[Count, _option("Makes sampling repeatable.", "N")] = None
    repetition_penalty: Annotated[
        Number, _option("Divide positive logits of tokens in prompt and answer by F, multiply negative ones.", "F")
    ] = None
    frequency_penalty: Annotated[
        Number, _option("Take F off the logit of a token for each time the answer has it, -2 to 2.", "F")
    ] = None
    presence_penalty: Annotated[
        Number, _option("Take F off the logit of every token that the answer has, -2 to 2.", "F")
    ] = None
    dry_multiplier: Annotated[
        Number, _option("Penalty on a token that goes on with a repetition (DRY); 0: off.", "F")
    ] = None
    dry_base: Annotated[Number, _option("What the DRY penalty grows by with each token repeated.", "F")] = None
    dry_allowed_length: Annotated[Count, _option("Tokens that may be repeated before DRY applies.", "N")] = None
    dry_sequence_breakers: Annotated[
        Texts, _option("Text that no repetition reaches across; none: no such text. Repeatable.", "TEXT")
    ] = None
    dry_range: Annotated[Count, _option("Last tokens that DRY looks at; -1: all.", "N")] = None
    logit_bias: Annotated[
        Texts, _option("Add a bias from -100 to 100 to the logit of a token. Repeatable.", "ID=BIAS")
    ] = None
    bad_words: Annotated[Texts, _option("Text that the answer must not contain. Repeatable.", "TEXT")] = None
    json_schema: Annotated[
        str | None, _option("The answer is JSON of this schema; @FILE reads it from a file.", "JSON")
    ] = None
    json_object: Annotated[bool, typer.Option("--json-object", help="The answer is a JSON object.")] = False
    regex: Annotated[str | None, _option("The answer matches this regular expression.", "REGEX")] = None
    grammar: Annotated[
        str | None, _option("The answer follows this grammar, Lark or GBNF; @FILE reads it from a file.", "TEXT")
    ] = None
    prediction: Annotated[
        str | None, _option("What the answer will mostly look like, to draft from; @FILE reads it.", "TEXT")
    ] = None
    min_tokens: Annotated[Count, _option("Fewest tokens to produce before an end counts.", "N")] = None
    stop: Annotated[Texts, _option("End the text before this string. Repeatable.", "TEXT")] = None
    stop_token_ids: Annotated[list[int] | None, _option("End the text at this token. Repeatable.", "ID")] = None
    include_stop: Annotated[
        bool, typer.Option("--include-stop", help="Leave the stop string that ended the text in it.")
    ] = False
    ignore_eos: Annotated[bool, typer.Option("--ignore-eos", help="Go on past the model's end token.")] = False
    escape: Annotated[
        bool,
        typer.Option("-e", "--escape", help=r"Read \n, \t, \xHH and the like in the prompt and in texts of options."),
    ] = False

    def text(self, option: str, argument: str) -> str:
        """Return a text of the command line, escapes read where that was asked for.

        Raises:
            OptionError: it is not UTF-8.
        """
        text = checked_argument(option, argument)
        return unescaped(option, text) if self.escape else text

    def params(self, *, defaults: Mapping[str, Any] | None = None, **others: Any) -> "SamplingParams":
        """Return the sampling parameters; others: fields of them that are options of one command only.

        defaults: fields for what was not given, in place of the library's own.

        Raises:
            OptionError: a value is out of its range, or not UTF-8, or in a file that cannot be read.
        """
        from foredraft.sampling import SamplingParams

        given: dict[str, Any] = {flag.name: getattr(self, flag.name) for flag in fields(self)} | others
        del given["escape"]
        given["include_stop_str_in_output"] = given.pop("include_stop")
        for name in ("stop", "bad_words", "dry_sequence_breakers"):
            if given[name]:
                given[name] = tuple(self.text(f"--{name.replace('_', '-')}", text) for text in given[name])
        if given["dry_sequence_breakers"] == ("none",):
            given["dry_sequence_breakers"] = ()
        for name in ("json_schema", "grammar", "prediction"):
            given[name] = _text(f"--{name.replace('_', '-')}", given[name])
        if given["regex"] is not None:
            given["regex"] = checked_argument("--regex", given["regex"])
        given["logit_bias"] = _biases(given["logit_bias"])
        wanted = {name: value for name, value in given.items() if value is not None and value != []}
        if wanted.get("max_tokens") == AS_MANY_AS_FIT:
            wanted["max_tokens"] = None
        return SamplingParams(**{**(defaults or {}), **wanted})


NONE_GIVEN = SamplingFlags()


def _text(option: str, argument: str | None) -> str | None:
    """The text itself, or that of the file behind an @."""
    if argument is None or not argument.startswith("@"):
        return argument if argument is None else without_mark(checked_argument(option, argument))
    file = user_path(argument[1:])
    try:
        return decoded(f"{option} file {file}", file.read_bytes())
    except OSError as error:
        raise OptionError(f"cannot read the {option} file {file}: {error.strerror}") from error


def _biases(given: list[str] | None) -> dict[int, float] | None:
    biases: dict[int, float] = {}
    for argument in given or ():
        token, _, bias = argument.partition("=")
        try:
            biases[int(token)] = float(bias)
        except ValueError:
            rule = "a token id, = and a number, as in 42=-5"
            raise OptionError(f"--logit-bias must be {rule}, got {argument!r}") from None
    return biases or None


def takes_sampling(command: Callable[..., None]) -> Callable[..., None]:
    """Give a command all sampling options. It gets them as its keyword `sampling`, in whose place they stand."""
    flags = [
        inspect.Parameter(flag.name, inspect.Parameter.KEYWORD_ONLY, default=flag.default, annotation=flag.type)
        for flag in fields(SamplingFlags)
    ]
    names = [flag.name for flag in flags]

    @functools.wraps(command)
    def run(**given: Any) -> None:
        sampling = SamplingFlags(**{name: given.pop(name) for name in names})
        command(**given, sampling=sampling)

    parameters: list[inspect.Parameter] = []
    for parameter in inspect.signature(command, eval_str=True).parameters.values():
        own = parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
        parameters.extend(flags if parameter.name == "sampling" else [own])
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run
