"""The page as foredraft's own server serves it, with a real model behind it."""

import json
from collections.abc import Iterator
from typing import Any
from urllib.request import Request, urlopen

import pytest
from helpers.serving import Running
from playwright.sync_api import Browser, Page, expect

pytestmark = pytest.mark.browser

QUESTION = "Write an HTML table with two rows about the planets: name, moons."
MOST_TOKENS = 48


@pytest.fixture
def opened(browser: Browser, server: Running) -> Iterator[Page]:
    context = browser.new_context()
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    page.goto(server.url)
    page.get_by_label("Model").select_option(server.model)
    page.get_by_role("button", name="Settings").click()
    page.get_by_label("Max tokens").fill(str(MOST_TOKENS))
    page.get_by_role("button", name="Done").click()
    yield page
    assert not wrong
    context.close()


def answer_of(server: Running) -> str:
    """What the API says, in one piece and without drafts."""
    message = {"role": "user", "content": QUESTION}
    body: dict[str, Any] = {"model": server.model, "messages": [message], "temperature": 0, "draft": "none"}
    data = json.dumps({**body, "max_tokens": MOST_TOKENS}).encode()
    request = Request(f"{server.url}/v1/chat/completions", data, {"Content-Type": "application/json"})
    with urlopen(request, timeout=60) as response:
        content: str = json.load(response)["choices"][0]["message"]["content"]
    return content


def test_a_real_answer(opened: Page, server: Running) -> None:
    opened.get_by_label("Show drafts").check()
    opened.get_by_role("textbox", name="Question").fill(QUESTION)
    opened.keyboard.press("Enter")
    expect(opened.locator(".figures summary")).to_contain_text("tokens/s", timeout=60_000)
    assert "".join(opened.locator(".tokens .token").all_text_contents()) == answer_of(server)
    opened.locator(".figures summary").click()
    expect(opened.locator(".figures dl")).to_contain_text(f"{MOST_TOKENS} tokens in")


def test_a_real_comparison(opened: Page) -> None:
    opened.get_by_role("textbox", name="Question").fill(QUESTION)
    opened.get_by_role("button", name="Compare").click()
    expect(opened.locator(".verdict")).to_contain_text("The two texts are identical.", timeout=60_000)
    expect(opened.locator(".verdict")).to_contain_text("as fast.")
