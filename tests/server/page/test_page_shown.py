"""How answers look: Markdown, hostile texts, drafts, comparisons; narrow, dark, long."""

import re
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

pytestmark = pytest.mark.browser

MARKDOWN = """# Title

Some *soft* and **strong** text with `a < b`, ~~gone~~,
a line and [a link](https://example.com/a_(b)).

1. one
   - nested
     - deeper
2. two

```python
print("<b>")
```

> quoted
> > twice

<ul>
  <li>item</li>

</ul>

| name | size |
|------|-----:|
| x | `1|2` |

---
"""

HOSTILE = """<script>document.title = "taken"</script> <img src=x onerror="document.title='taken'">

[click](javascript:document.title='taken') [data](data:text/html,<b>x) [rel](/v1/models) <a href="https://e.com">a</a>
[ok](https://e.com/"onmouseover="x) **[b](vbscript:x)** <svg onload=x> &lt;i&gt;

<style>body { display: none }</style>

```"><img src=x onerror=x>
</code></pre><script>document.title = "taken"</script> \u202e reversed \u2066
```

| <script> | <b>b</b> |
|---|---|
| <img src=x onerror=x> | <br>after |

\u202e\u202eUpside down
"""


@pytest.fixture
def opened(page: Page, page_url: str) -> Page:
    page.goto(page_url)
    expect(page.locator("#model-name")).to_have_text("small")
    return page


def script(api: Any, **options: Any) -> Any:
    return type(api.script(""))(**options)


def ask(page: Page, question: str) -> None:
    page.get_by_role("textbox", name="Question").fill(question)
    page.keyboard.press("Enter")
    expect(page.locator(".answer").last).not_to_have_attribute("data-state", re.compile("running|waiting"))


def has_no_sideways_scrolling(page: Page) -> bool:
    return bool(page.evaluate("document.documentElement.scrollWidth <= window.innerWidth"))


def test_markdown(opened: Page, api: Any) -> None:
    api.scripts["q"] = script(api, text=MARKDOWN)
    ask(opened, "q")
    text = opened.locator(".answer .text")
    for selector, content in (
        ("h3", "Title"),
        ("em", "soft"),
        ("strong", "strong"),
        ("p code", "a < b"),
        ("del", "gone"),
        ("ol > li > ul > li > ul > li", "deeper"),
        (".code-block >> nth=0 >> .language", "python"),
        (".code-block >> nth=0 >> code", 'print("<b>")'),
        (".code-block >> nth=1 >> .language", "html"),
        (".code-block >> nth=1 >> code", "<ul>\n  <li>item</li>\n\n</ul>"),
        ("blockquote blockquote", "twice"),
        ("th.right", "size"),
        ("td.right code", "1|2"),
    ):
        expect(text.locator(selector)).to_have_text(content)
    expect(text.locator("hr")).to_have_count(1)
    link = text.locator("a")
    expect(link).to_have_attribute("href", "https://example.com/a_(b)")
    expect(link).to_have_attribute("rel", re.compile("noopener"))
    copy = text.get_by_role("button", name="Copy code").first
    copy.click()
    expect(copy).to_have_text("Copied")
    assert opened.evaluate("navigator.clipboard.readText()") == 'print("<b>")'
    opened.get_by_role("button", name="Copy answer").click()
    expect(opened.get_by_role("button", name="Copy answer")).to_have_text("Copied")
    assert opened.evaluate("navigator.clipboard.readText()") == MARKDOWN.rstrip() + "\n"


def test_what_grows_ends_as_what_is_there_at_once(opened: Page, api: Any) -> None:
    api.scripts["q"] = script(api, text=MARKDOWN, pause_s=0.01)
    ask(opened, "q")
    streamed = opened.locator(".answer .text").evaluate("element => element.innerHTML")
    opened.reload()
    expect(opened.locator(".answer .text hr")).to_have_count(1)
    assert opened.locator(".answer .text").evaluate("element => element.innerHTML") == streamed


@pytest.mark.parametrize("drafts", [False, True], ids=["text", "drafts"])
def test_hostile_text_is_text(opened: Page, api: Any, drafts: bool) -> None:
    api.scripts[HOSTILE.strip()] = script(api, text=HOSTILE, reasoning=HOSTILE)
    opened.get_by_label("Show drafts").set_checked(drafts)
    ask(opened, HOSTILE)
    turn = opened.locator(".turn")
    assert opened.title() == "foredraft"
    made = turn.evaluate("turn => [...turn.querySelectorAll('*')].map(e => e.tagName.toLowerCase())")
    assert not set(made) & {"script", "img", "style", "svg", "i", "b", "iframe"}
    hrefs = turn.locator("a").evaluate_all("all => all.map(e => e.getAttribute('href'))")
    assert all(href.startswith("https://e.com/") for href in hrefs)
    handlers = "turn => [...turn.querySelectorAll('*')].flatMap(e => [...e.attributes]).map(a => a.name)"
    assert not [name for name in turn.evaluate(handlers) if name.startswith("on")]
    shown = turn.locator(".tokens" if drafts else ".answer .text").inner_text()
    for text in ('<script>document.title = "taken"</script>', "javascript:document.title='taken'", "U+202E"):
        assert text in shown
    expect(turn.locator(".question")).to_contain_text("<img src=x onerror=")


def test_huge_and_nested_texts_do_not_stall(opened: Page, api: Any) -> None:
    parts = ("x" * 200_000, "*a _b [" * 4_000, ">" * 20_000, "`" * 9_999 + "``", "* - " * 2_500, "|a" * 5_000)
    for number, text in enumerate(parts):
        api.scripts[f"huge {number}"] = script(api, text=text)
        ask(opened, f"huge {number}")
        expect(opened.locator(".answer").last).to_have_attribute("data-state", "done")
        assert opened.locator(".answer .text").last.evaluate("e => e.textContent.length") > 0
        assert has_no_sideways_scrolling(opened)
        opened.get_by_role("button", name="New chat").click()


def test_reasoning_is_folded_away(opened: Page, api: Any) -> None:
    api.scripts["q"] = script(api, text="Four.", reasoning="Two and *two*.")
    ask(opened, "q")
    expect(opened.locator(".reasoning-text")).to_be_hidden()
    opened.get_by_text("Reasoning").click()
    expect(opened.locator(".reasoning-text em")).to_have_text("two")
    expect(opened.locator(".answer .text")).to_have_text("Four.")


def test_drafts_are_shown(opened: Page, api: Any) -> None:
    text = "a b c d e f g h i\n\n**j**"
    api.scripts["q"] = script(api, text=text)
    ask(opened, "q")
    expect(opened.locator(".tokens")).to_have_count(0)
    opened.get_by_label("Show drafts").check()
    tokens = opened.locator(".tokens .token")
    assert "".join(tokens.all_text_contents()) == text
    kinds = tokens.evaluate_all("all => all.map(e => e.title)")
    own = "said by the model itself"
    suffix, lookup, recycle = (f"drafted by {name}, accepted" for name in ("suffix", "lookup", "recycle"))
    assert kinds == [suffix, suffix, own, lookup, own, recycle, recycle, recycle, own, suffix]
    crosses = opened.locator(".tokens .rejected")
    expect(crosses.first).to_have_attribute("title", "1 drafted token rejected here")
    assert crosses.evaluate_all("all => all.map(e => e.nextSibling.textContent)") == [" e", "\n\n**j**"]
    assert opened.locator(".legend .entry").all_text_contents() == [
        "suffix 3",
        "lookup 1",
        "recycle 3",
        "the model itself 3",
        "×2 rejected",
    ]
    expect(opened.locator(".answer .text")).to_be_hidden()
    looks = "e => getComputedStyle(e).textDecorationLine + getComputedStyle(e).textDecorationStyle"
    styles = [tokens.nth(place).evaluate(looks) for place in (0, 3, 5, 2)]
    assert len(set(styles)) == 4  # not by colour alone
    opened.get_by_label("Show drafts").uncheck()
    expect(opened.locator(".answer .text strong")).to_have_text("j")


CONTRASTS = """() => {
    const canvas = document.createElement("canvas").getContext("2d", { willReadFrequently: true });
    const luminance = color => {
        canvas.fillStyle = color;
        canvas.fillRect(0, 0, 1, 1);
        const [r, g, b] = [...canvas.getImageData(0, 0, 1, 1).data].map(
            v => v / 255 <= 0.04045 ? v / 255 / 12.92 : ((v / 255 + 0.055) / 1.055) ** 2.4);
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const found = {};
    const add = (name, className, style = "") => {
        const e = document.createElement("span");
        e.className = className;
        Object.assign(e.style, style);
        document.body.append(e);
        const { color, backgroundColor } = getComputedStyle(e);
        const [low, high] = [luminance(color), luminance(backgroundColor)].sort((a, b) => a - b);
        found[name] = (high + 0.05) / (low + 0.05);
        e.remove();
    };
    for (let i = 0; i < 8; i++) add("mark " + i, "drafter mark-" + i);
    for (const [ink, back] of [["text", "back"], ["faint", "back"], ["faint", "panel"], ["faint", "raised"],
        ["accent", "back"], ["bad", "bad-back"], ["bad", "back"], ["good", "good-back"], ["text", "accent-back"],
        ["on-accent", "accent"]])
        add(ink + " on " + back, "", { color: `var(--${ink})`, backgroundColor: `var(--${back})` });
    return found;
}"""


def test_colours_can_be_told_from_their_background(opened: Page) -> None:
    for scheme in ("light", "dark"):
        opened.emulate_media(color_scheme=scheme)
        ratios = opened.evaluate(CONTRASTS)
        assert len(ratios) == 18
        assert not {name: ratio for name, ratio in ratios.items() if ratio < 4.5}


def test_dark_and_light(opened: Page) -> None:
    def is_dark() -> bool:
        return opened.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(21, 23, 28)"

    assert not is_dark()
    opened.emulate_media(color_scheme="dark")
    assert is_dark()
    opened.get_by_role("button", name="Settings").click()
    opened.get_by_label("Theme").select_option("light")
    assert not is_dark()
    opened.reload()
    assert not is_dark()


def test_figures(opened: Page, api: Any) -> None:
    api.scripts["q"] = script(api, text="a b c d e", finish="length")
    ask(opened, "q")
    line = opened.locator(".figures summary")
    expect(line).to_have_text(
        re.compile(r"^90\.0 tokens/s · 1\.8x plain decoding · 75 % accepted · first token \d\.\d\d s$")
    )
    expect(opened.locator(".note")).to_contain_text("Cut off")
    line.click()
    facts = opened.locator(".figures dl")
    for text in ("the drafts are mostly right", "2, 2.50 tokens each", "12 tokens, 4 of them cached"):
        expect(facts).to_contain_text(text)
    expect(opened.locator(".figures tbody tr")).to_have_text("suffix9667 %")


def test_compare(opened: Page, api: Any) -> None:
    api.scripts["q"] = script(api, text="the same words twice", pause_s=0.02)
    opened.get_by_role("textbox", name="Question").fill("q")
    opened.get_by_role("button", name="Compare").click()
    verdict = opened.locator(".verdict")
    expect(verdict).to_have_text("The two texts are identical. With drafts it was written 1.8x as fast.")
    lines = opened.locator(".figures summary")
    expect(lines).to_have_text(["0.04 s · 90.0 tokens/s · 4 tokens", "0.08 s · 50.0 tokens/s · 4 tokens"])
    with_drafts, plain = api.requests
    assert "draft" not in with_drafts
    assert plain == {**with_drafts, "draft": "none"}
    assert isinstance(plain["seed"], int)
    left, right = (box.bounding_box() for box in opened.locator(".answer").all())
    assert left is not None
    assert right is not None
    assert left["y"] == right["y"]
    opened.set_viewport_size({"width": 360, "height": 740})
    left, right = (box.bounding_box() for box in opened.locator(".answer").all())
    assert left is not None
    assert right is not None
    assert left["x"] == right["x"]
    # What follows goes on from the one answer.
    ask(opened, "next")
    assert [message["content"] for message in api.requests[-1]["messages"]] == ["q", "the same words twice", "next"]


def test_a_comparison_tells_where_texts_differ_and_can_be_stopped(opened: Page, api: Any) -> None:
    api.scripts["q"] = script(api, text="the same words", plain="the sane words")
    ask(opened, "q")
    opened.get_by_role("button", name="Compare with plain decoding").click()
    expect(opened.locator(".verdict")).to_contain_text("The two texts differ from character 7 on.")
    api.scripts["q"] = script(api, text="word " * 200, pause_s=0.02)
    opened.get_by_role("button", name="Retry").click()
    expect(opened.locator(".answer .text").first).to_contain_text("word word")
    opened.keyboard.press("Escape")
    expect(opened.locator(".answer .note")).to_have_text(["Stopped.", "Stopped."])
    expect(opened.locator(".verdict")).to_be_hidden()
    assert len(api.requests) == 4


@pytest.mark.parametrize("drafts", [False, True], ids=["text", "drafts"])
def test_a_phone_never_scrolls_sideways(opened: Page, api: Any, drafts: bool) -> None:
    opened.set_viewport_size({"width": 360, "height": 740})
    assert has_no_sideways_scrolling(opened)
    wide = f"{MARKDOWN}\n```\n{'long ' * 60}\n```\n\n{'|wide' * 12}|\n{'|---' * 12}|\n{'|cell' * 12}|\n\n{'w' * 300}"
    api.scripts["w" * 100] = script(api, text=wide, reasoning=wide)
    opened.get_by_label("Show drafts").set_checked(drafts)
    ask(opened, "w" * 100)
    assert has_no_sideways_scrolling(opened)
    opened.locator(".figures summary").click()
    assert has_no_sideways_scrolling(opened)
    opened.get_by_role("button", name="Compare with plain decoding").click()
    expect(opened.locator(".verdict")).to_be_visible()
    assert has_no_sideways_scrolling(opened)
    opened.get_by_role("button", name="Settings").click()
    assert has_no_sideways_scrolling(opened)
    small = "all => all.filter(e => e.getBoundingClientRect().height < 24).map(e => e.id || e.textContent)"
    assert opened.locator("button:visible").evaluate_all(small) == []


def test_the_page_follows_only_a_reader_at_the_bottom(opened: Page, api: Any) -> None:
    api.scripts["q"] = script(api, text="line\n\n" * 300, pause_s=0.01)
    opened.get_by_role("textbox", name="Question").fill("q")
    opened.keyboard.press("Enter")
    place, lines = "document.scrollingElement.scrollTop", opened.locator(".answer .text p")
    expect(lines.nth(40)).to_be_attached()
    assert opened.evaluate(f"{place}") > 300
    opened.evaluate(f"{place} = 100")
    expect(lines.nth(opened.evaluate("document.querySelectorAll('.answer .text p').length") + 20)).to_be_attached()
    assert opened.evaluate(place) == 100


def test_calm_where_motion_is_unwanted(browser: Browser, api: Any) -> None:
    context = browser.new_context(reduced_motion="reduce")
    page = context.new_page()
    page.goto(api.url)
    assert page.locator("#send").evaluate("e => getComputedStyle(e).transitionDuration") in ("0s", "none")
    api.scripts["q"] = script(api, text="word " * 50, pause_s=0.2)
    page.get_by_role("textbox", name="Question").fill("q")
    page.keyboard.press("Enter")
    running = "document.getAnimations().filter(a => a.playState === 'running').length"
    expect(page.locator(".pending")).to_have_count(1)
    assert page.evaluate(running) == 0
    context.close()
