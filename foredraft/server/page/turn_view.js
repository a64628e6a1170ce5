/** A question and what was answered: once, or twice in a comparison. */

import { AnswerView } from "./answer_view.js";
import { copyFrom, make, makeButton } from "./dom.js";
import { verdict } from "./figures.js";

/** @typedef {{question: string, answer: import("./answer.js").Answer, plain: import("./answer.js").Answer|null}} Turn */

export class TurnView {
  /**
   * @param {Turn} turn
   * @param {{retry: Function, compare: Function, edit: Function, enterKey: Function}} actions
   */
  constructor(turn, actions) {
    this.turn = turn;
    this.actions = actions;
    this.question = make("div", "question", make("p", "", turn.question));
    this.question.dir = "auto";
    this.answers = make("div", "answers");
    this.verdict = make("p", "verdict");
    this.error = make("div", "error");
    this.bar = make("div", "actions");
    this.root = make("section", "turn", this.question, this.answers, this.verdict, this.error, this.bar);
    this.makeAnswers();
  }

  makeAnswers() {
    const { answer, plain } = this.turn;
    this.views = plain
      ? [new AnswerView(answer, { label: "With drafts" }), new AnswerView(plain, { label: "Without drafts" })]
      : [new AnswerView(answer)];
    this.answers.replaceChildren(...this.views.map(view => view.root));
    this.root.classList.toggle("compared", plain !== null);
  }

  /** Bring the page up to the turn. isLast: whether it can be answered again; busy: whether an answer is coming. */
  show({ showDrafts, isLast, busy }) {
    for (const view of this.views) view.show({ showDrafts });
    const key = JSON.stringify([isLast, busy, this.turn.answer.state, this.turn.plain?.state]);
    if (key === this.shown) return;
    this.shown = key;
    this.showVerdict();
    this.showError(isLast && !busy);
    this.showBar(isLast, busy);
  }

  showVerdict() {
    const { answer, plain } = this.turn, complete = plain?.state === "done" && answer.state === "done";
    this.verdict.hidden = !complete;
    if (!complete) return;
    const { identical, words } = verdict(answer, plain);
    this.verdict.textContent = words.join(" ");
    this.verdict.classList.toggle("identical", identical);
  }

  showError(canRetry) {
    const failed = [this.turn.answer, this.turn.plain].find(answer => answer?.state === "failed");
    this.error.hidden = !failed;
    if (!failed) return;
    const buttons = [];
    if (canRetry && failed.status === 401) buttons.push(makeButton("Enter the API key", () => this.actions.enterKey()));
    if (canRetry) buttons.push(makeButton("Retry", () => this.actions.retry()));
    this.error.replaceChildren(make("p", "", failed.error), ...buttons);
  }

  showBar(isLast, busy) {
    const { answer, plain } = this.turn, comes = isLast && busy, failed = this.error.hidden === false, buttons = [];
    if (answer.text && !comes) {
      buttons.push(makeButton("Copy", button => copyFrom(button, answer.text), { name: "Copy answer" }));
    }
    if (isLast && !comes) {
      // A failed answer has its retry beside the error.
      if (!failed) buttons.push(makeButton("Retry", () => this.actions.retry()));
      buttons.push(makeButton("Edit", () => this.actions.edit(), { name: "Edit the question" }));
      if (!failed && !plain) {
        buttons.push(makeButton("Compare", () => this.actions.compare(), { name: "Compare with plain decoding" }));
      }
    }
    this.bar.replaceChildren(...buttons);
  }
}
