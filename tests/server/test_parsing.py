"""Answers split into text, reasoning and calls: every form of calls, what is none, and that cuts change nothing."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foredraft.server.parsing import (
    AnswerForm,
    AnswerParser,
    Arguments,
    Part,
    Reasoning,
    Text,
    ToolCall,
    form_of,
)
from foredraft.server.parsing.parts import merged

HERMES = """{{- '<tool_call>\\n{"name": "' }}"""
QWEN3 = HERMES + "{%- if '</think>' in content %}<think>"
QWEN3_CODER = "{{- '<tool_call>\\n<function=' + tool_call.name + '>\\n' }}"
LLAMA = """Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}."""
MISTRAL = "{{- '[TOOL_CALLS] [' }}"
MAGISTRAL = "[THINK]{{ thinking }}[/THINK]"
GRANITE = "{{- '<|tool_call|>' }}"
PHI = "functools[{{ calls }}]"
NEMOTRON = "<TOOLCALL>[{{ calls }}]</TOOLCALL>"
COMMAND = "<|START_ACTION|>[{{ calls }}]<|END_ACTION|>"
COMMAND_R = "Write 'Action:' followed by a json-formatted list of actions"
TEMPLATES = (HERMES, QWEN3, QWEN3_CODER, LLAMA, MISTRAL, GRANITE, PHI, NEMOTRON, COMMAND, COMMAND_R, "", None)


def tool(name: str, **properties: Any) -> dict[str, Any]:
    parameters = {"type": "object", "properties": properties}
    return {"type": "function", "function": {"name": name, "parameters": parameters}}


WEATHER = tool(
    "weather",
    city={"type": "string"},
    days={"type": "integer"},
    note={"anyOf": [{"type": "string"}, {"type": "null"}]},
    at={"type": "object"},
    exact={"type": "boolean"},
    unit={"enum": ["C", "F"]},
)
TOOLS = [WEATHER, {"type": "function", "function": {"name": "now"}}]


def form(
    template: str | None, *, prompt_end: str = "assistant\n", tools: Any = TOOLS, choice: str = "auto"
) -> AnswerForm:
    return form_of(template, prompt_end, tools=tools, choice=choice)


def fed(form: AnswerForm, pieces: list[str]) -> list[Part]:
    parser = AnswerParser(form)
    return merged([*(part for piece in pieces for part in parser.feed(piece)), *parser.finish()])


def parse(form: AnswerForm, text: str) -> list[Part]:
    """The parts of a text, which are the same however it is cut."""
    whole = fed(form, [text])
    for size in (1, 2, 3, 7):
        assert fed(form, [text[start : start + size] for start in range(0, len(text), size)]) == whole
    return whole


def call(index: int, name: str, arguments: str) -> list[Part]:
    return [ToolCall(index, name), Arguments(index, arguments)]


PARIS, ROME = '{"city": "Paris"}', '{"city":"}] \\" \\\\", "at": {"x": [1, {}]}}'
TWO = [*call(0, "weather", PARIS), *call(1, "now", "{}")]


@pytest.mark.parametrize(
    ("template", "text"),
    [
        (
            HERMES,
            f'<tool_call>\n{{"name": "weather", "arguments": {PARIS}}}\n</tool_call>\n'
            '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>',
        ),
        (LLAMA, f'{{"name": "weather", "parameters": {PARIS}}}; {{"name": "now", "parameters": {{}}}}'),
        (LLAMA, f'<|python_tag|>{{"name": "weather", "parameters": {PARIS}}};\n{{"name": "now", "parameters": {{}}}}'),
        (LLAMA, f'{{"type": "function", "name": "weather", "parameters": {PARIS}}}\n{{"name": "now"}}'),
        (
            MISTRAL,
            f'[TOOL_CALLS] [{{"name": "weather", "arguments": {PARIS}, "id": "abc"}}, '
            '{"name": "now", "arguments": {}}]',
        ),
        (MISTRAL, f' [{{"name": "weather", "arguments": {PARIS}}}, {{"name": "now", "arguments": {{}}}}]'),
        (MISTRAL, f"[TOOL_CALLS]weather{PARIS}[TOOL_CALLS]now{{}}"),
        (MISTRAL, f"[TOOL_CALLS]weather[CALL_ID]abcdefghi[ARGS]{PARIS}[TOOL_CALLS]now[ARGS]{{}}"),
        (MISTRAL, f"weather{PARIS}now{{}}"),
        (MISTRAL, f"weatherAbc123xyz{PARIS}now[ARGS]{{}}"),
        (GRANITE, f'<|tool_call|>[{{"name": "weather", "arguments": {PARIS}}}, {{"name": "now", "arguments": {{}}}}]'),
        (GRANITE, f'[{{"name": "weather", "arguments": {PARIS}}}, {{"name": "now", "arguments": {{}}}}]'),
        (
            GRANITE,
            f'<|tool_call|>{{"name": "weather", "arguments": {PARIS}}}<|/tool_call|>'
            '<|tool_call|>{"name": "now", "arguments": {}}<|/tool_call|>',
        ),
        (PHI, f'functools[{{"name": "weather", "arguments": {PARIS}}}, {{"name": "now", "arguments": {{}}}}]'),
        (
            NEMOTRON,
            f'<TOOLCALL>[{{"name": "weather", "arguments": {PARIS}}}, {{"name": "now", "arguments": {{}}}}]</TOOLCALL>',
        ),
        (
            COMMAND,
            f'<|START_ACTION|>[\n {{"tool_call_id": "0", "tool_name": "weather", "parameters": {PARIS}}},\n'
            '{"tool_call_id": "1", "tool_name": "now", "parameters": {}}\n]<|END_ACTION|>',
        ),
        (
            COMMAND_R,
            f'Action: ```json\n[{{"tool_name": "weather", "parameters": {PARIS}}},'
            '{"tool_name": "now", "parameters": {}}]```',
        ),
        (
            QWEN3_CODER,
            "<tool_call>\n<function=weather>\n<parameter=city>\nParis\n</parameter>\n</function>\n</tool_call>\n"
            "<tool_call>\n<function=now>\n</function>\n</tool_call>",
        ),
        (QWEN3_CODER, "<function=weather>\n<parameter=city>Paris</parameter>\n</function><function=now></function>"),
        (QWEN3_CODER, f"<function=weather>{PARIS}</function>\n<function=now>{{}}</function>"),
        ("of an unknown kind", f'<tool_call>{{"name": "weather", "arguments": {PARIS}}}</tool_call>{{"name": "now"}}'),
        (None, f'{{"name": "weather", "arguments": {PARIS}}} {{"name": "now"}}'),
    ],
)
def test_calls_are_found_in_every_format(template: str | None, text: str) -> None:
    assert parse(form(template), text) == TWO
    assert parse(form(template), f"\n{text}\n") == TWO


def test_arguments_are_the_text_that_the_model_wrote() -> None:
    text = f'<tool_call>{{"name":"weather","arguments":{ROME}}}</tool_call>'
    assert parse(form(HERMES), text) == call(0, "weather", ROME)


def test_arguments_stream() -> None:
    parser = AnswerParser(form(HERMES))
    assert parser.feed('<tool_call>{"name": "weather", "argum') == []
    assert parser.feed('ents": {"ci') == call(0, "weather", '{"ci')
    assert parser.feed('ty": "Par') == [Arguments(0, 'ty": "Par')]
    assert parser.feed('is"}}\n</tool_call>') == [Arguments(0, 'is"}')]
    assert parser.finish() == []


def test_texts_in_tags_stream() -> None:
    parser = AnswerParser(form(QWEN3_CODER))
    parser.feed("<tool_call>\n<function=weather>\n<parameter=city>\n")
    assert parser.feed('New "Y') == [Arguments(0, 'New \\"Y')]
    assert parser.feed("ork\n") == [Arguments(0, "ork")]
    assert parser.feed("</parameter>\n</function>") == [Arguments(0, '"}')]


def test_text_streams_but_for_what_may_begin_a_call() -> None:
    parser = AnswerParser(form(HERMES))
    assert parser.feed("One <b>two") == [Text("One <b>two")]
    assert parser.feed(" <tool_") == []
    assert parser.feed("box>") == [Text(" <tool_box>")]
    assert AnswerParser(form(HERMES, tools=None)).feed("Hi <tool_call> ") == [Text("Hi <tool_call> ")]


@pytest.mark.parametrize(
    ("members", "arguments"),
    [
        (f'"arguments": {PARIS}, "name": "weather"', PARIS),
        (f'"id": "1", "name": "weather", "arguments": {PARIS}, "more": [{{}}, "}}"], "last": null', PARIS),
        (f'"name": "weather", "arguments": {json.dumps(PARIS)}', PARIS),
        (f'"arguments": {json.dumps(PARIS)}, "name": "weather"', PARIS),
        ('"name": "weather", "arguments": "Paris"', '"Paris"'),
        ('"name": "weather", "arguments": null', "null"),
        ('"name": "weather"', "{}"),
        (f'"n\\u0061me": "we\\u0061ther", "arguments": {PARIS},', PARIS),
    ],
)
def test_members_of_a_call_come_in_any_order_and_shape(members: str, arguments: str) -> None:
    text = f"<tool_call>{{ {members} }}</tool_call>"
    assert parse(form(HERMES), text) == call(0, "weather", arguments)


@pytest.mark.parametrize(
    ("parameter", "value", "expected"),
    [
        ("city", "75001", "75001"),
        ("city", 'a "quoted"\n\n\\ line\n', 'a "quoted"\n\n\\ line\n'),
        ("city", "ends in </param", "ends in </param"),
        ("city", "", ""),
        ("days", "3", 3),
        ("days", " 12345678901234567890 ", 12345678901234567890),
        ("days", "three", "three"),
        ("note", "5", "5"),
        ("note", "null", None),
        ("at", '{"x": [1,\n2]}', {"x": [1, 2]}),
        ("at", "{'x': 1}", "{'x': 1}"),
        ("exact", "True", True),
        ("exact", "false", False),
        ("unit", "C", "C"),
        ("unheard of", "[1]", [1]),
        ("unheard of", "NaN", "NaN"),
    ],
)
def test_parameters_in_tags_have_the_types_of_the_schema(parameter: str, value: str, expected: object) -> None:
    text = (
        "Let me see.\n\n<tool_call>\n<function=weather>\n"
        f"<parameter={parameter}>\n{value}\n</parameter>\n<parameter=city>\nx\n</parameter>\n</function>\n</tool_call>"
    )
    said, begin, arguments = parse(form(QWEN3_CODER), text)
    assert (said, begin) == (Text("Let me see."), ToolCall(0, "weather"))
    assert isinstance(arguments, Arguments)
    pairs = json.loads(arguments.text, object_pairs_hook=list)
    assert [key for key, _ in pairs] == [parameter, "city"]
    assert json.loads(arguments.text.replace(', "city": "x"}', "}")) == {parameter: expected}


def test_text_around_calls_is_kept_without_the_white_space_next_to_them() -> None:
    one = f'<tool_call>\n{{"name": "weather", "arguments": {PARIS}}}\n</tool_call>'
    parts = parse(form(HERMES), f" First,\n\n  look: \n\n{one}\n\nThen\n{one}\n")
    assert parts == [
        Text(" First,\n\n  look:"),
        *call(0, "weather", PARIS),
        Text("\n\nThen"),
        *call(1, "weather", PARIS),
    ]
    assert parse(form(HERMES), f"\n{one}\n\nThen\n") == [*call(0, "weather", PARIS), Text("Then\n")]


@pytest.mark.parametrize(
    "text",
    [
        "Hello",
        "  <tool_call> is a tag\n",
        '<tool_call>{"name": "unheard of", "arguments": {}}</tool_call>',
        '<tool_call>\n{"name": 5, "arguments": {}}\n</tool_call>',
        "<tool_call>\n{'name': 'now'}\n</tool_call>",
        '<tool_call>{"title": "x"}</tool_call>',
        '<tool_call>{"arguments": {"a": "b"}, "arguments": 1}</tool_call>\n',
        "<tool_call>[]</tool_call>",
        "<tool_call></tool_call>",
        "<tool_call>",
        "<tool_call>\n{",
        '<tool_call>\n{"name": "no',
        '<tool_call>\n{"arguments": {"city": "x"}',
        "<function=other>\n<parameter=x>1</parameter></function>",
        "<function=weather",
        '{"name": "Ann", "arguments": "strong"}',
        '{"name": "now", "description": "the name of a tool, but no call"}',
        '[{"name": "Ann"}]',
        "[1, 2]",
        "[TOOL_CALLS]",
        "[TOOL_CALLS] none",
        "now",
        "now is the time",
        "weather [x]",
        "functools",
        "functools[0]",
        "Action: ```json\n[]```",
        "\ud800 \x00",
        "",
    ],
)
@pytest.mark.parametrize("template", TEMPLATES)
def test_what_is_no_call_of_a_tool_stays_text(template: str | None, text: str) -> None:
    assert parse(form(template), text) == ([Text(text)] if text else [])


def test_a_call_behind_what_was_none_is_found() -> None:
    text = '<tool_call>\n<tool_call>{"name": "now", "arguments": {}}</tool_call>'
    assert parse(form(HERMES), text) == [Text("<tool_call>"), *call(0, "now", "{}")]
    text = '<tool_call>{"name": "x"}</tool_call><tool_call>{"name": "now", "arguments": {}}</tool_call>'
    assert parse(form(HERMES), text) == [Text('<tool_call>{"name": "x"}</tool_call>'), *call(0, "now", "{}")]


def test_what_follows_in_an_array_and_is_no_call_stays_text() -> None:
    text = '[TOOL_CALLS] [{"name": "now", "arguments": {}}, {"name": "x"}] so'
    assert parse(form(MISTRAL), text) == [*call(0, "now", "{}"), Text(', {"name": "x"}] so')]


@pytest.mark.parametrize(
    ("template", "text", "arguments"),
    [
        (HERMES, '<tool_call>{"name": "weather", "arguments": {"city": "Par', '{"city": "Par'),
        (HERMES, '<tool_call>{"name": "weather", "arguments": {"city": "Par\\', '{"city": "Par\\'),
        (HERMES, '<tool_call>{"name": "weather", "arguments": "{\\"city', '"{\\"city'),
        (HERMES, '<tool_call>{"name": "weather", "arguments": {}', "{}"),
        (HERMES, '<tool_call>{"name": "weather", "arguments": {}}\n</tool_c', "{}"),
        (HERMES, '<tool_call>{"name": "weather", "argu', ""),
        (HERMES, '<tool_call>{"name": "weather"', ""),
        (MISTRAL, 'weather{"city', '{"city'),
        (QWEN3_CODER, "<tool_call>\n<function=weather>\n", ""),
        (QWEN3_CODER, "<tool_call>\n<function=weather>\n<parameter=ci", ""),
        (QWEN3_CODER, "<tool_call>\n<function=weather>\n<parameter=city>\nPar", '{"city": "Par'),
        (QWEN3_CODER, "<tool_call>\n<function=weather>\n<parameter=days>\n1\n</para", '{"days": 1\n</para'),
        (QWEN3_CODER, "<tool_call>\n<function=weather>\n<parameter=days>\n1\n</parameter>\n<par", '{"days": 1'),
    ],
)
def test_a_call_that_is_cut_off_stays_cut_off(template: str, text: str, arguments: str) -> None:
    assert parse(form(template), text) == [ToolCall(0, "weather"), *([Arguments(0, arguments)] if arguments else [])]


@pytest.mark.parametrize("template", TEMPLATES)
@pytest.mark.parametrize(("tools", "choice"), [(None, "auto"), ([], "auto"), (TOOLS, "none")])
def test_where_no_call_is_wanted_none_is_found(template: str | None, tools: Any, choice: str) -> None:
    text = f' <tool_call>\n{{"name": "weather", "arguments": {PARIS}}}\n</tool_call>\n'
    assert parse(form(template, tools=tools, choice=choice), text) == [Text(text)]


def test_a_forced_call_of_any_tool() -> None:
    text = f'[{{"name": "weather", "arguments": {PARIS}}},\n {{"name": "now", "arguments": {{}}}}]'
    forced = form(QWEN3, choice="required", prompt_end="<think>\n")
    assert parse(forced, text) == TWO
    assert parse(forced, text[:45]) == call(0, "weather", '{"city": "P')


def test_the_whole_answer_is_the_arguments_of_a_named_function() -> None:
    named = form(QWEN3, choice="weather", prompt_end="<think>\n")
    assert parse(named, PARIS) == call(0, "weather", PARIS)
    assert parse(named, "") == [ToolCall(0, "weather")]


@pytest.mark.parametrize(
    ("template", "prompt_end", "text", "reasoning", "answer"),
    [
        (QWEN3, "assistant\n", "<think>\n\nHm.\n Well.\n\n</think>\n\nYes.\n", "Hm.\n Well.", "Yes.\n"),
        (QWEN3, "assistant\n", "\n<think>Hm.</think>  Yes", "Hm.", "  Yes"),
        (QWEN3, "assistant\n", "<think>\n\n</think>\n\nYes", "", "Yes"),
        (QWEN3, "assistant\n<think>\n", "Hm.\n</think>\nYes", "Hm.", "Yes"),
        (QWEN3, "assistant\n<think>\n", "<think>\nHm.\n</think>\nYes", "Hm.", "Yes"),
        (QWEN3, "assistant\n<think>\n\n</think>\n\n", "Yes", "", "Yes"),
        (QWEN3, "what is <think>?<|im_end|>\nassistant\n", "A tag.", "", "A tag."),
        (QWEN3, "assistant\n", "Yes </think> <think>no</think>", "", "Yes </think> <think>no</think>"),
        (QWEN3, "assistant\n", "<think>a</think>b<think>c</think>", "a", "b<think>c</think>"),
        (QWEN3, "assistant\n", "<think>never\nends", "never\nends", ""),
        (QWEN3, "assistant\n", "<thin", "", "<thin"),
        (QWEN3, "assistant\n", "\n <b>", "", "\n <b>"),
        (None, "assistant\n<think>", "Hm.</think>Yes", "Hm.", "Yes"),
        (None, "assistant\n", "<think>Hm.</think>Yes", "", "<think>Hm.</think>Yes"),
        (MAGISTRAL, "", "[THINK]Hm.[/THINK]Yes", "Hm.", "Yes"),
        ("<seed:think> </seed:think>", "", "<seed:think>Hm.</seed:think>Yes", "Hm.", "Yes"),
    ],
)
@pytest.mark.parametrize("tools", [None, TOOLS])
def test_reasoning(template: str | None, prompt_end: str, text: str, reasoning: str, answer: str, tools: Any) -> None:
    expected = [*([Reasoning(reasoning)] if reasoning else []), *([Text(answer)] if answer else [])]
    assert parse(form(template, prompt_end=prompt_end, tools=tools), text) == expected


def test_a_call_behind_reasoning() -> None:
    text = f'I could <tool_call>\n</think>\n\n<tool_call>\n{{"name": "weather", "arguments": {PARIS}}}\n</tool_call>'
    parts = parse(form(QWEN3, prompt_end="<think>\n"), text)
    assert parts == [Reasoning("I could <tool_call>"), *call(0, "weather", PARIS)]


def test_reasoning_is_not_looked_for_where_there_can_be_none() -> None:
    found = form_of(QWEN3, "<think>\n", tools=None, choice="auto", reasoning=False)
    assert parse(found, "{}") == [Text("{}")]


WORDS = (
    "<think> </think> <tool_call> </tool_call> <tool_ < [TOOL_CALLS] [ARGS] functools <function=weather> </function> "
    '<function= <parameter=city> <parameter=days> </parameter> > { } [ ] : , ; " \\ "name" "arguments" "weather" '
    f'weather now {PARIS} "parameters": "name":"weather", "arguments":{{ a é 1 null True'
).split(" ")
TEXTS = st.lists(st.one_of(st.sampled_from([*WORDS, " ", "\n"]), st.text(max_size=3)), max_size=25)


@given(TEXTS, st.sampled_from(TEMPLATES), st.sampled_from(["auto", "required", "weather", "none"]), st.data())
def test_cuts_change_nothing(words: list[str], template: str | None, choice: str, data: st.DataObject) -> None:
    text = "".join(words)
    found = form(template, choice=choice, prompt_end=data.draw(st.sampled_from(["assistant\n", "<think>\n"])))
    ends = sorted(data.draw(st.lists(st.integers(0, len(text)))))
    pieces = [text[start:end] for start, end in zip([0, *ends], [*ends, len(text)], strict=True)]
    assert fed(found, pieces) == fed(found, list(text)) == fed(found, [text])


@given(TEXTS, st.sampled_from(TEMPLATES))
def test_nothing_is_lost_where_nothing_is_called(words: list[str], template: str | None) -> None:
    text = "".join(words)
    for found in (form_of(template, "", tools=None, choice="auto", reasoning=False), form(template, tools=[tool("x")])):
        parts = parse(found, text)
        if all(isinstance(part, Text) for part in parts):
            assert "".join(part.text for part in parts if isinstance(part, Text)) == text


@pytest.mark.parametrize("piece", ["<tool_call>", '{"name":', "[TOOL_CALLS][", "weather", "\n", "<thin", '{"a":['])
def test_the_time_grows_with_the_length_alone(piece: str) -> None:
    # What is held back must not grow, or each of the tokens of a long answer would take longer than the one before.
    for start in ("", '<tool_call>{"name": "weather", "arguments": ', '<tool_call>{"arguments": {"a": "'):
        parser = AnswerParser(form(HERMES))
        for text in (start, *[piece] * 2000):
            parser.feed(text)
            assert len(parser._reader._text) < 300
