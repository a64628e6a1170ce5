"""Chat templates: Jinja programs from a list of messages to the text a model was trained on."""

import functools
import json
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn

import jinja2
import jinja2.compiler
import jinja2.ext
import jinja2.filters
import jinja2.meta
import jinja2.nodes
import jinja2.parser
import jinja2.sandbox

from foredraft.errors import UserError
from foredraft.text.traced import SAID, WRITTEN, Traced, formatted, joined, origins_of

_FOLLOWED = frozenset(("default", "d", "first", "last", "list", "map", "random", "reverse", "string", "trim"))
"""Filters that return the texts they are given, or what methods of these make of them."""


class _Generation(jinja2.ext.Extension):
    """`{% generation %}...{% endgeneration %}` marks answers for training; for us only its body counts."""

    tags = {"generation"}  # noqa: RUF012

    def parse(self, parser: jinja2.parser.Parser) -> list[jinja2.nodes.Node]:
        """Return the body of the block."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class _Compiler(jinja2.compiler.CodeGenerator):
    """Compiles templates whose own texts know that the template wrote them."""

    def _output_const_repr(self, group: Iterable[Any]) -> str:
        return f"environment.written({''.join(map(str, group))!r})"

    def visit_Const(self, node: jinja2.nodes.Const, frame: jinja2.compiler.Frame) -> None:  # noqa: N802
        value = node.as_const(frame.eval_ctx)
        if isinstance(value, str):
            self.write(f"environment.written({value!r})")
        else:
            super().visit_Const(node, frame)

    def visit_TemplateData(self, node: jinja2.nodes.TemplateData, frame: jinja2.compiler.Frame) -> None:  # noqa: N802
        self.write(f"environment.written({node.data!r})")

    def visit_Concat(self, node: jinja2.nodes.Concat, frame: jinja2.compiler.Frame) -> None:  # noqa: N802
        self.write("environment.concat(map(str, (")
        for part in node.nodes:
            self.visit(part, frame)
            self.write(", ")
        self.write(")))")


def _concat(parts: Iterable[str]) -> Traced:
    return joined("", parts)


def _written(text: str) -> Traced:
    return Traced(text, WRITTEN)


class _Environment(jinja2.sandbox.ImmutableSandboxedEnvironment):
    code_generator_class = _Compiler
    concat = staticmethod(_concat)
    written = staticmethod(_written)

    def wrap_str_format(self, value: Any) -> Callable[..., str] | None:
        """`text.format` within the sandbox, traced."""
        wrapped = super().wrap_str_format(value)
        pattern = getattr(value, "__self__", None)
        if wrapped is None or not isinstance(pattern, Traced) or value.__name__ != "format":
            return wrapped
        formatter = jinja2.sandbox.SandboxedFormatter(self)
        return lambda *args, **kwargs: formatted(formatter, pattern, args, kwargs)


def _following(function: Callable[..., Any]) -> Callable[..., Any]:
    """A filter whose text is the template's where all that it is made of is."""

    @functools.wraps(function)
    def follow(*args: Any, **kwargs: Any) -> Any:
        made = function(*args, **kwargs)
        if type(made) is not str:
            return made
        given = [value for value in (*args, *kwargs.values()) if isinstance(value, str)]
        own = bool(given) and all(set(origins_of(text)) <= {WRITTEN} for text in given)
        return Traced(made, WRITTEN if own else SAID)

    return follow


def _join(values: Iterable[Any], d: str = "", attribute: str | int | None = None) -> Traced:
    if attribute is not None:
        values = map(jinja2.filters.make_attrgetter(_environment(), attribute), values)
    return joined(str(d), map(str, values))


def _replace(text: Any, old: str, new: str, count: int | None = None) -> Traced:
    traced = text if isinstance(text, Traced) else Traced(str(text))
    return traced.replace(str(old), str(new), -1 if count is None else count)


def _tojson(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    # Jinja's own filter escapes <, > and &, which models never saw in training.
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)


def _raise_exception(message: str) -> NoReturn:
    raise jinja2.TemplateError(message)


def _strftime_now(format: str) -> str:
    return datetime.now().strftime(format)


@lru_cache(maxsize=1)
def _environment() -> _Environment:
    environment = _Environment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _Generation]
    )
    for name, function in list(environment.filters.items()):
        if name not in _FOLLOWED:
            environment.filters[name] = _following(function)
    environment.filters |= {"tojson": _tojson, "join": _join, "replace": _replace}
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


@lru_cache(maxsize=32)
def _compile(source: str) -> jinja2.Template:
    return _environment().from_string(source)


def render(source: str | None, context: Mapping[str, object]) -> Traced:
    """Render a chat template with the conventions of transformers.

    Blocks are trimmed (`trim_blocks`, `lstrip_blocks`), `break` and `continue` work, `raise_exception`,
    `strftime_now` and `tojson` exist, and the template runs in Jinja's immutable sandbox. The text knows which of its
    characters the template wrote itself.

    Raises `UserError` if there is no template, or if it is broken or refuses the messages.
    """
    if source is None:
        raise UserError("the model has no chat template; continue the text as it stands instead (--raw)")
    try:
        template = _compile(source)
        return _concat(template.root_render_func(template.new_context(dict(context))))
    except Exception as error:  # A template is a program of its own: it can fail in any way.
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"the model's chat template failed: {reason}") from error


@lru_cache(maxsize=32)
def variables_of(source: str) -> frozenset[str]:
    """The names that a template takes from outside; none of one that is broken."""
    try:
        return frozenset(jinja2.meta.find_undeclared_variables(_environment().parse(source)))
    except jinja2.TemplateError:
        return frozenset()


@lru_cache(maxsize=32)
def literals_of(source: str) -> str:
    """All texts that a template writes, one behind the other, with NUL between them; none of one that is broken."""
    try:
        tree = _environment().parse(source)
    except jinja2.TemplateError:
        return ""
    texts = [node.data for node in tree.find_all(jinja2.nodes.TemplateData)]
    texts += [node.value for node in tree.find_all(jinja2.nodes.Const) if isinstance(node.value, str)]
    return "\0".join(texts)
