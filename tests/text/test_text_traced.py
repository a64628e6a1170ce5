"""Text that knows who wrote it does all that text does, and gives the same."""

from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from foredraft.text.template import render
from foredraft.text.traced import ANSWERED, SAID, WRITTEN, Traced, origins_of, trace

pieces = st.lists(
    st.tuples(
        st.sampled_from(["a", "b ", "<x>", "\n", "é", " ", "", "%s", "{}", "ab"]), st.sampled_from([SAID, WRITTEN])
    ),
    max_size=6,
)
_PLAIN = ["strip", "lstrip", "rstrip", "split", "rsplit", "splitlines", "upper", "title", "swapcase"]
_WITH_TEXT = ["strip", "split", "rsplit", "partition", "rpartition", "removeprefix", "removesuffix"]
METHODS: list[tuple[str, tuple[Any, ...]]] = [
    *((name, ()) for name in _PLAIN),
    *((name, ("a",)) for name in _WITH_TEXT),
    ("split", ("a", 1)),
    ("rsplit", (None, 1)),
    ("splitlines", (True,)),
    ("replace", ("a", "<y>")),
    ("replace", ("b", "", 1)),
    ("replace", ("", "-")),
    ("center", (9, "*")),
    ("__getitem__", (slice(1, -1),)),
    ("__getitem__", (slice(None, None, -2),)),
    ("__mul__", (2,)),
    ("__add__", ("<x>",)),
    ("__radd__", ("<x>",)),
    ("join", (["a", "b"],)),
]  # fmt: skip


def _made(parts: list[tuple[str, int]]) -> Traced:
    made = Traced("")
    for text, origin in parts:
        made = made + Traced(text, origin)
    return made


def _flat(value: Any) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


@given(parts=pieces, method=st.sampled_from(METHODS))
@example(parts=[("a", WRITTEN), ("b ", SAID)], method=("split", ("a",)))
def test_methods_give_what_those_of_str_give(parts: list[tuple[str, int]], method: tuple[str, tuple[Any, ...]]) -> None:
    """Kind: a template computes something else because its texts are not quite texts."""
    traced, (name, args) = _made(parts), method
    plain = "".join(text for text, _ in parts)
    expected = args[0] + plain if name == "__radd__" else getattr(plain, name)(*args)
    found = getattr(traced, name)(*args)
    assert _flat(found) == _flat(expected)
    for text in _flat(found):
        assert isinstance(text, Traced)
        assert len(origins_of(text)) == len(text)
    only_said = getattr(trace(plain, SAID), name)(*args)
    assert all(WRITTEN not in origins_of(text) for text in _flat(only_said))


@given(parts=pieces)
def test_pieces_keep_who_wrote_them(parts: list[tuple[str, int]]) -> None:
    traced = _made(parts)
    known = dict(zip(traced, origins_of(traced), strict=False)) if len(set(traced)) == len(traced) else {}
    for piece in (*traced.split(), *traced.splitlines(), traced.strip(), traced[1:], *traced.partition("a")):
        assert all(known.get(char, origin) == origin for char, origin in zip(piece, origins_of(piece), strict=True))
    assert traced == "".join(text for text, _ in parts)
    assert hash(traced) == hash("".join(text for text, _ in parts))


@pytest.mark.parametrize(
    ("source", "shown"),
    [
        ("<a>{{ m }}", "<A>m<b>"),
        ("{{ '<a>' + m + '<a>' }}", "<A>m<b><A>"),
        ("{{ '<a>' ~ m ~ 3 }}", "<A>m<b>3"),
        ("{{ m + '<a>' }}{{ m * 2 }}", "m<b><A>m<b>m<b>"),
        ("{% set x = '<a>' %}{% set y %}{{ x }}{{ m }}{% endset %}{{ y | trim }}", "<A>m<b>"),
        ("{% macro f(t) %}<a>{{ t }}{% endmacro %}{{ f(m) ~ f('k') }}", "<A>m<b><A>K"),
        ("{% macro f() %}<a>{{ caller() }}{% endmacro %}{% call f() %}{{ m }}k{% endcall %}", "<A>m<b>K"),
        ("{{ '<a>%s|%d%%' % (m, 3) }}{{ '<a>%s' | format(m) }}", "<A>m<b>|3%<A>m<b>"),
        ("{{ '%(k)s<a>' % {'k': m} }}", "m<b><A>"),
        ("{{ '<a>{}{0}'.format(m) if false else '<a>{0}{x}'.format(m, x='<c>') }}", "<A>m<b><C>"),
        ("{{ ['<a>', m] | join('<c>') }}{{ '<c>'.join([m, m]) }}", "<A><C>m<b>m<b><C>m<b>"),
        ("{{ m | replace('<b>', '<a>') }}{{ m.replace('m', '') }}", "m<A><b>"),
        ("{{ m | upper }}{{ '<a>' | upper }}{{ '<a>\nk' | indent }}", "M<B><A><A>\n    K"),
        ("{% filter upper %}<a>{% endfilter %}{{ z | default('<a>') }}", "<A><A>"),
        ("{% set ns = namespace(t='<a>') %}{% set ns.t = ns.t + m %}{{ ns.t }}", "<A>m<b>"),
        ("{{ {'<a>': '<c>'}['<a>'] }}{{ ('<a>', m) | first }}{{ '<a>x'[:3] }}", "<C><A><A>"),
        ("{{ ['<a>', m] }}{{ {'k': m} | tojson }}", "['<a>', 'm<b>']{\"k\": \"m<b>\"}"),
        ("{% for c in m %}{{ c }}{% endfor %}{{ m | list | last }}", "m<b>>"),
        ("{% generation %}<a>{% endgeneration %}{{ bos_token }}", "<A><S>"),
    ],
)
def test_templates_know_what_they_wrote(source: str, shown: str) -> None:
    """Kind: a control token that a template writes in some other way is taken for text, or text for a control token."""
    text = render(source, {"m": Traced("m<b>", SAID), "bos_token": Traced("<s>", WRITTEN)})
    # Capitals are what the template wrote; the cases that make capitals of a message stand by themselves.
    found = "".join(
        char.upper() if origin == WRITTEN else str(char) for char, origin in zip(text, origins_of(text), strict=True)
    )
    assert found == shown


def test_only_values_are_traced() -> None:
    value = trace({"a": ["x", 1, None, {"b": "y"}], "c": ("z",)}, ANSWERED)
    assert value == {"a": ["x", 1, None, {"b": "y"}], "c": ["z"]}
    assert origins_of(value["a"][3]["b"]) == bytes([ANSWERED])
