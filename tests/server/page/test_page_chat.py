"""Talking on the page: asking, stopping, asking again, and what becomes of a conversation when something breaks."""

import re
from typing import Any

import pytest
from playwright.sync_api import Page, expect

pytestmark = pytest.mark.browser

SLOW = "one two three four five six seven eight nine ten " * 30
LOST = "The connection was lost before the answer was complete."


@pytest.fixture
def opened(page: Page, page_url: str) -> Page:
    page.goto(page_url)
    expect(page.locator("#model-name")).to_have_text("small")
    return page


def ask(page: Page, question: str) -> None:
    page.get_by_role("textbox", name="Question").fill(question)
    page.keyboard.press("Enter")


def answered(page: Page, text: str) -> None:
    expect(page.locator(".answer .text").last).to_have_text(text)
    expect(page.get_by_role("button", name="Send")).to_be_visible()


def test_a_conversation(opened: Page, api: Any) -> None:
    expect(opened.get_by_role("heading", name="What would you like to know?")).to_be_visible()
    ask(opened, "hello there")
    answered(opened, "You said: hello there")
    expect(opened.locator("#empty")).to_be_hidden()
    expect(opened.get_by_role("status")).to_have_text("Answer complete: 4 tokens, 90.0 tokens per second")
    expect(opened.get_by_role("textbox", name="Question")).to_have_value("")
    expect(opened.get_by_role("textbox", name="Question")).to_be_focused()
    ask(opened, "and again")
    answered(opened, "You said: and again")
    first, second = api.requests
    assert first == {
        "model": "small",
        "messages": [{"role": "user", "content": "hello there"}],
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
        "include_drafts": True,
    }
    assert second["messages"] == [
        {"role": "user", "content": "hello there"},
        {"role": "assistant", "content": "You said: hello there"},
        {"role": "user", "content": "and again"},
    ]


def test_an_example_is_asked_by_a_click(opened: Page, api: Any) -> None:
    opened.locator(".examples button").first.click()
    expect(opened.locator(".question")).to_contain_text("HTML table")
    expect(opened.locator(".answer .text")).to_contain_text("You said: Write an HTML table")
    assert len(api.requests) == 1


@pytest.mark.parametrize("how", ["key", "button"])
def test_stopping_keeps_what_was_said(opened: Page, api: Any, how: str) -> None:
    api.scripts["slow"] = type(api.script(""))(SLOW, pause_s=0.02)
    ask(opened, "slow")
    expect(opened.locator(".answer .text")).to_contain_text("one two three")
    expect(opened.locator(".live")).to_contain_text(re.compile(r"tokens/s · \d+ tokens · \d+ % accepted"))
    if how == "key":
        opened.keyboard.press("Escape")
    else:
        opened.get_by_role("button", name="Stop").click()
    expect(opened.get_by_role("button", name="Send")).to_be_visible()
    expect(opened.locator(".note")).to_have_text("Stopped.")
    expect(opened.get_by_role("status")).to_have_text("Stopped")
    said = opened.locator(".answer .text").inner_text()
    opened.wait_for_timeout(150)
    assert opened.locator(".answer .text").inner_text() == said
    assert SLOW.startswith(said)
    assert api.num_gone == 1
    ask(opened, "next")
    answered(opened, "You said: next")
    assert api.requests[-1]["messages"][1]["content"].strip() == said.strip()


def test_retry_answers_the_last_question_again(opened: Page, api: Any) -> None:
    ask(opened, "first")
    answered(opened, "You said: first")
    ask(opened, "second")
    answered(opened, "You said: second")
    api.scripts["second"] = type(api.script(""))("another answer")
    expect(opened.get_by_role("button", name="Retry")).to_have_count(1)
    opened.get_by_role("button", name="Retry").click()
    answered(opened, "another answer")
    expect(opened.locator(".turn")).to_have_count(2)
    assert api.requests[2] == api.requests[1]


def test_the_last_question_can_be_edited(opened: Page, api: Any) -> None:
    ask(opened, "helo")
    answered(opened, "You said: helo")
    opened.get_by_role("button", name="Edit the question").click()
    expect(opened.get_by_role("textbox", name="Question")).to_have_value("helo")
    opened.keyboard.press("Escape")
    expect(opened.get_by_role("textbox", name="Question")).to_have_value("")
    opened.get_by_role("button", name="Edit the question").click()
    ask(opened, "hello")
    answered(opened, "You said: hello")
    expect(opened.locator(".question")).to_have_text(["hello"])
    assert api.requests[-1]["messages"] == [{"role": "user", "content": "hello"}]


def test_keys(opened: Page, api: Any) -> None:
    field = opened.get_by_role("textbox", name="Question")
    field.focus()
    opened.keyboard.type("two")
    opened.keyboard.press("Shift+Enter")
    opened.keyboard.type("lines")
    expect(field).to_have_value("two\nlines")
    # Enter that chooses a composed word sends nothing; nor does an empty question.
    composed = "new KeyboardEvent('keydown', {key: 'Enter', isComposing: true, bubbles: true, cancelable: true})"
    assert field.evaluate(f"element => element.dispatchEvent({composed})")
    opened.keyboard.press("Enter")
    answered(opened, "You said: twolines")  # a <br> has no text
    opened.keyboard.press("Enter")
    assert [request["messages"][0]["content"] for request in api.requests] == ["two\nlines"]


def test_all_controls_are_reached_by_tab_and_seen(opened: Page) -> None:
    ask(opened, "hello")
    answered(opened, "You said: hello")
    wanted = opened.locator("button:visible, input:visible, textarea:visible, select:visible, summary:visible")
    ids = wanted.evaluate_all("all => all.map((e, i) => (e.dataset.number = i, i))")
    opened.evaluate("document.activeElement.blur()")
    seen = set()
    for _ in range(len(ids) + 2):
        opened.keyboard.press("Tab")
        number, outline, border, accent = opened.evaluate("""() => {
            const focused = document.activeElement, box = document.querySelector(".composer-box");
            const color = name => getComputedStyle(box)[name], send = getComputedStyle(document.getElementById("send"));
            const outline = getComputedStyle(focused).outlineStyle;
            return [focused.dataset.number, outline, color("borderTopColor"), send.backgroundColor];
        }""")
        if number is None:
            continue  # behind the last one the browser itself has its turn
        # Around the question it is its box that shows it.
        assert outline != "none" or border == accent
        seen.add(number)
    assert {str(place) for place in ids} == seen
    unnamed = "all => all.filter(e => !(e.labels?.length || e.ariaLabel || e.textContent.trim())).map(e => e.id)"
    assert wanted.evaluate_all(unnamed) == []


def test_a_reload_keeps_the_conversation(opened: Page, api: Any) -> None:
    ask(opened, "remember me")
    answered(opened, "You said: remember me")
    opened.get_by_label("Show drafts").check()
    api.scripts["slow"] = type(api.script(""))(SLOW, pause_s=0.02)
    ask(opened, "slow")
    expect(opened.locator(".tokens").last).to_contain_text("one two three")
    opened.reload()
    expect(opened.locator(".question")).to_have_text(["remember me", "slow"])
    assert "".join(opened.locator(".tokens").first.locator(".token").all_text_contents()) == "You said: remember me"
    expect(opened.locator(".tokens").last).to_contain_text("one two three")
    expect(opened.locator(".note")).to_have_text("Stopped.")
    opened.get_by_role("button", name="New chat").click()
    expect(opened.locator("#empty")).to_be_visible()
    opened.reload()
    expect(opened.locator("#empty")).to_be_visible()
    expect(opened.locator(".turn")).to_have_count(0)


def test_broken_storage_is_no_obstacle(page: Page, page_url: str) -> None:
    page.goto(page_url)
    page.evaluate("""
        localStorage.setItem("foredraft.settings", '{"temperature": "hot", "theme": 7, "seed": {}}');
        const turns = [{ question: 1 }, null, { question: "kept", answer: { text: "too", state: "running" } }];
        localStorage.setItem("foredraft.conversation", JSON.stringify(turns));
    """)
    page.reload()
    expect(page.locator(".question")).to_have_text(["kept"])
    expect(page.locator(".note")).to_have_text("Stopped.")  # the browser was killed while it came
    ask(page, "hello")
    answered(page, "You said: hello")


def test_errors(opened: Page, api: Any) -> None:
    script = type(api.script(""))
    for question, how, error, kept in (
        ("long", script("the prompt is too long", status=400), "the prompt is too long", ""),
        ("busy", script("busy, try again", status=503), "busy, try again", ""),
        ("fails", script("some words", fails=True), "out of memory <b>", "some words"),
        ("breaks", script("some words", breaks=True), LOST, "some words"),
    ):
        api.scripts[question] = how
        ask(opened, question)
        expect(opened.locator(".turn .error p").last).to_have_text(error)
        expect(opened.locator(".answer .text").last).to_have_text(kept)
        expect(opened.get_by_role("status")).to_have_text(f"Failed: {error}")
        del api.scripts[question]
        opened.get_by_role("button", name="Retry").click()
        answered(opened, f"You said: {question}")
        expect(opened.locator(".turn .error").last).to_be_hidden()


def test_a_lost_server_loses_nothing(opened: Page, api: Any) -> None:
    ask(opened, "hello")
    answered(opened, "You said: hello")
    opened.route("**/v1/**", lambda route: route.abort())
    ask(opened, "are you there?")
    expect(opened.locator(".turn .error p").last).to_have_text("The server cannot be reached.")
    expect(opened.locator(".answer .text").first).to_have_text("You said: hello")
    opened.reload()
    expect(opened.locator("#trouble-text")).to_have_text("The server cannot be reached.")
    expect(opened.locator(".question")).to_have_text(["hello", "are you there?"])
    opened.unroute("**/v1/**")
    opened.get_by_role("button", name="Try again").click()
    expect(opened.locator("#trouble")).to_be_hidden()
    # A question that was never answered is not part of what the next request tells.
    ask(opened, "now?")
    answered(opened, "You said: now?")
    assert [message["content"] for message in api.requests[-1]["messages"]] == ["hello", "You said: hello", "now?"]


def test_the_key_is_asked_for(page: Page, api: Any) -> None:
    api.key = "secret"
    page.goto(api.url)
    expect(page.get_by_role("dialog")).to_be_visible()
    expect(page.get_by_text("This server wants an API key.")).to_be_visible()
    expect(page.get_by_label("API key")).to_be_focused()
    page.keyboard.press("Escape")
    ask(page, "hello")
    page.get_by_role("button", name="Enter the API key").click()
    page.get_by_label("API key").fill("secret")
    page.keyboard.press("Enter")
    expect(page.locator("#model-name")).to_have_text("small")
    page.get_by_role("button", name="Done").click()
    page.get_by_role("button", name="Retry").click()
    answered(page, "You said: hello")
    assert "secret" not in page.evaluate("JSON.stringify(localStorage)")
    page.reload()
    expect(page.locator("#model-name")).to_have_text("small")


def test_settings_are_sent_and_kept(page: Page, api: Any) -> None:
    api.models = ["small", "large"]
    page.goto(api.url)
    page.get_by_label("Model").select_option("large")
    page.get_by_role("button", name="Settings").click()
    for label, value in (("System message", "be kind"), ("Temperature", "0.7"), ("Top p", "0.9"), ("Seed", "11")):
        page.get_by_label(label).fill(value)
    page.get_by_label("Max tokens").fill("0")
    expect(page.get_by_label("Max tokens")).to_have_attribute("aria-invalid", "true")
    page.get_by_label("Speculative decoding").uncheck()
    page.keyboard.press("Escape")
    expect(page.get_by_role("dialog")).to_be_hidden()
    page.reload()
    ask(page, "hello")
    answered(page, "You said: hello")
    [request] = api.requests
    assert request["messages"][0] == {"role": "system", "content": "be kind"}
    chosen = {name: request.get(name) for name in ("model", "temperature", "top_p", "seed", "max_tokens", "draft")}
    assert chosen == {
        "model": "large",
        "temperature": 0.7,
        "top_p": 0.9,
        "seed": 11,
        "max_tokens": None,
        "draft": "none",
    }
