"""From runs to figures, tables and a page."""

import json
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import pytest
from rich.console import Console

from foredraft.bench.completing import Measured
from foredraft.config import DraftConfig
from foredraft.engine import Completion, Speculation, Timings, Usage
from foredraft.planner.cost import Calibration
from foredraft.prompts import Prompt
from foredraft.tune.measure import Run, as_json
from foredraft.tune.page import page
from foredraft.tune.report import advice, show
from foredraft.tune.result import Result, to_json
from foredraft.tune.settings import PLAIN, options
from foredraft.tune.svg import heat_map, line_plot

PROMPTS = [Prompt("code/1", "code", "x"), Prompt("chat/1", "chat", "y <&> z")]
LENIENT = "threshold:eps=0.1"
SETTINGS = [
    PLAIN,
    replace(PLAIN, drafters=("auto",)),
    replace(PLAIN, drafters=("suffix",), num_draft_tokens=2),
    replace(PLAIN, drafters=("suffix",), num_draft_tokens=4),
    replace(PLAIN, drafters=("suffix",), num_draft_tokens=4, acceptance=LENIENT),
]
LOSSY = SETTINGS[-1].name
SPEEDS = {  # to plain decoding, on code and chat
    "none": (1.0, 1.0),
    "auto": (1.9, 1.1),
    "suffix:2": (1.6, 1.2),
    "suffix:4": (2.0, 0.8),
    LOSSY: (2.5, 1.5),
}


def measured(setting: str, prompt: Prompt, turn: int, speed: float, *, first_token: int = 0) -> Run:
    second = 1.0 + turn  # the second turn met a busy machine: ratios are within a turn
    seconds = 40 * 0.1 * second / speed
    plain = setting == "none"
    speculation = Speculation(
        methods=(setting,),
        lossless=True,
        num_rounds=40 if plain else 20,
        num_draft_tokens=0 if plain else 60,
        num_accepted_tokens=0 if plain else 20,
        num_emitted_tokens=40,
        accepted_per_position=() if plain else (12, 8),
        reason="",
    )
    completion = Completion(
        text="",
        token_ids=tuple(range(first_token, first_token + 40)),
        finish_reason="length",
        usage=Usage(prompt_tokens=50 if prompt.family == "code" else 400, completion_tokens=40),
        timings=Timings(load_s=0, prefill_s=0.5, decode_s=seconds, num_prompt_tokens=49, num_completion_tokens=40),
        speculation=speculation,
    )
    ends = tuple((n, 0.5 + seconds * n / 40) for n in range(2, 41, 2))
    return Run(setting, prompt.key, turn, Measured(completion, 0.5 + seconds, ends))


def result(changed: dict[str, tuple[float, float]] | None = None, different: str = "") -> Result:
    speeds = SPEEDS | (changed or {})
    runs = [
        measured(one.name, prompt, turn, speeds[one.name][index], first_token=int(one.name == different))
        for turn in range(2)
        for index, prompt in enumerate(PROMPTS)
        for one in SETTINGS
    ]
    return Result(SETTINGS, PROMPTS, runs)


def report(found: Result) -> dict[str, Any]:
    costs = {"": Calibration((1, 4, 8), (0.1, 0.12, 0.16)), "model:d": Calibration((1, 8), (0.03, 0.04))}
    return {
        "model": {"name": "m.gguf"},
        "machine": {"processor": "x <y>", "load_average_at_start": 0.1, "time": "2026"},
        "threads": 2,
        "plan": {"num_prompts": 2, "num_turns": 2, "max_tokens": 40},
        "seconds": 12.0,
        **to_json(found, costs),
        "runs": [as_json(run) for run in found.runs],
    }


def test_ratios_are_to_plain_decoding_beside() -> None:
    figures = result().figure("suffix:4")
    assert figures.speed_up == pytest.approx(1.4)
    assert figures.worst == pytest.approx(0.8)
    assert figures.by_family == {"code": pytest.approx(2.0), "chat": pytest.approx(0.8)}
    assert figures.acceptance_rate == pytest.approx(1 / 3)
    assert figures.mean_acceptance_length == 2.0
    assert figures.accepted_per_position == (0.6, 0.4)
    plain = result().figure("none")
    assert (plain.speed_up, plain.acceptance_rate, plain.mean_acceptance_length) == (1.0, None, 1.0)
    assert plain.tokens_per_s == pytest.approx(7.5)  # the median of turns at 10 and at 5


def test_another_text_is_seen_and_lossy_settings_are_not_held_to_it() -> None:
    assert {figures.equal for figures in result().figures} == {True, None}
    found = result(different="suffix:2")
    assert [figures.setting for figures in found.figures if figures.equal is False] == ["suffix:2"]
    assert result(different=LOSSY).figure(LOSSY).equal is None


def test_what_is_recommended() -> None:
    assert result().chosen.name == "auto"
    assert result().recommended == DraftConfig()  # earlier texts may be drafted from when it is used
    close = result({"auto": (1.2, 1.25)})  # faster on half of the answers: not worth giving up what adapts
    assert close.chosen.name == "auto"
    slow = result({"auto": (1.2, 1.0)})
    assert slow.chosen.name == slow.best_fixed.name == "suffix:2"
    assert slow.recommended == DraftConfig(drafters=("suffix",), num_draft_tokens=2)
    assert options(DraftConfig(drafters=("suffix", "d"), num_draft_tokens=2, num_branches=3)) == (
        "--draft suffix --draft d --num-draft-tokens 2 --draft-branches 3"
    )
    slower = result(dict.fromkeys(SPEEDS, (0.9, 0.9)) | {"none": (1.0, 1.0), "auto": (0.99, 0.99)})
    assert slower.best_fixed.name == "none"
    assert slower.for_others == {"vllm": None, "llama_cpp": None}
    assert "nothing it has was faster" in advice(report(slower))


def test_the_heat_map_counts_the_prompt_and_has_no_empty_columns() -> None:
    heat = result().heat_map()
    assert heat["inputs"] == ["up to 64", "up to 1024"]
    assert heat["outputs"] == [8, 16, 32]
    plain, ours = 0.5 + 4.0 * 8 / 40, 0.5 + 4.0 / 1.9 * 8 / 40
    slower = (0.5 + 8.0 * 8 / 40) / (0.5 + 8.0 / 1.9 * 8 / 40)
    assert heat["speed_ups"][0][0] == pytest.approx((plain / ours + slower) / 2)


def test_families_compare_auto_with_the_best_by_hindsight() -> None:
    families = report(result())["families"]
    assert families["code"]["best"] == "suffix:4"
    assert (families["code"]["best_speed_up"], families["code"]["auto_speed_up"]) == pytest.approx((2.0, 1.9))
    assert families["chat"]["best"] == "suffix:2"


def test_the_report_is_json_and_a_table() -> None:
    found = report(result())
    json.dumps(found, allow_nan=False)
    assert "token_ids" not in found["runs"][0]
    assert found["speed_up_over_length"] == {"suffix": [(2, pytest.approx(1.4)), (4, pytest.approx(1.4))]}
    assert found["speed_up_over_lenient_threshold"] == [(0.1, pytest.approx(2.0))]
    console = Console(width=120, record=True, force_terminal=False)
    with console.capture() as capture:
        show(found, console)
    text = capture.get()
    for part in (
        "| suffix:4 ",
        "lossy",
        "use: --draft auto",
        "vLLM: --speculative-config '{",
        "llama.cpp: --spec-type",
    ):
        assert part in text
    with console.capture() as capture:
        show(report(result(different="auto")), console)
    assert "DIFFERENT" in capture.get()


class Seen(HTMLParser):
    """Checks that elements are closed in order, and notes what is there."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.counts: dict[str, int] = {}
        self.text = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] = self.counts.get(tag, 0) + 1
        assert not {"src", "href"} & {name for name, _ in attrs}, "the page must need nothing else"
        if tag not in ("meta", "br"):
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.counts[tag] = self.counts.get(tag, 0) + 1

    def handle_data(self, data: str) -> None:
        self.text += data


def test_the_page_is_whole_and_stands_alone() -> None:
    html = page(report(result()))
    seen = Seen()
    seen.feed(html)
    seen.close()
    assert not seen.open
    assert (seen.counts["svg"], seen.counts["table"]) == (5, 2)
    assert "script" not in seen.counts
    assert seen.counts["tr"] == 1 + len(SETTINGS) + 1 + 2
    assert "x <y>" in seen.text
    assert LOSSY in seen.text


def test_a_page_without_lenient_rules_or_chains_has_fewer_plots() -> None:
    found = report(result()) | {
        "speed_up_over_length": {},
        "speed_up_over_lenient_threshold": [],
        "accepted_per_position": {"suffix": ()},
    }
    seen = Seen()
    seen.feed(page(found))
    assert seen.counts["svg"] == 2


@pytest.mark.parametrize(
    "points", [[(1, 1.0)], [(1, 0.0), (2, 0.0)], [(1, 0.001), (64, 0.002)], [(0.05, 900.0), (0.5, 3.0)]]
)
def test_plots_hold_their_points(points: list[tuple[float, float]]) -> None:
    seen = Seen()
    seen.feed(line_plot({"a <b>": points}, x_title="x", y_title="y", level=1.0))
    assert seen.counts["circle"] == len(points)
    assert "a <b>" in seen.text


def test_a_heat_map_has_a_cell_for_each_value() -> None:
    seen = Seen()
    seen.feed(heat_map(["r1", "r2"], ["8", "16"], [[1.0, None], [0.4, 3.0]], x_title="x", y_title="y"))
    assert seen.counts["rect"] == 4
    assert "0.40" in seen.text
