/** One answer on the page: reasoning, text or tokens, an error, figures. */

import { make } from "./dom.js";
import { DraftsView } from "./drafts.js";
import { comparedLine, figures, liveLine } from "./figures.js";
import { GrowingMarkdown } from "./markdown.js";

export class AnswerView {
  /**
   * @param {import("./answer.js").Answer} answer
   * @param {{label?: string}} options label: what it is called in a comparison
   */
  constructor(answer, { label = "" } = {}) {
    this.answer = answer;
    this.label = label;
    this.drafts = null;
    this.reasoning = make("div", "reasoning-text markdown");
    this.details = make("details", "reasoning", make("summary", "", "Reasoning"), this.reasoning);
    this.text = make("div", "markdown text");
    this.footer = make("div", "answer-footer");
    this.reasoningMarkdown = new GrowingMarkdown(this.reasoning);
    this.markdown = new GrowingMarkdown(this.text);
    const heading = label ? make("h2", "label", label) : null;
    this.root = make("article", "answer", heading, this.details, this.text, this.footer);
    this.root.setAttribute("aria-label", label ? `Answer, ${label.toLowerCase()}` : "Answer");
  }

  /** Bring the page up to the answer. showDrafts: tokens instead of the text, where they are known. */
  show({ showDrafts }) {
    const { answer } = this, running = answer.state === "running" || answer.state === "waiting";
    const asTokens = showDrafts && answer.tokens.length > 0;
    this.root.dataset.state = answer.state;
    this.root.classList.toggle("pending", answer.state === "running" && !answer.numTokens);
    this.details.hidden = !answer.reasoning || asTokens;
    this.reasoningMarkdown.show(answer.reasoning);
    this.text.hidden = asTokens;
    if (!asTokens) this.markdown.show(answer.text);
    this.showTokens(asTokens);
    this.showFooter(running);
  }

  showTokens(asTokens) {
    if (asTokens && !this.drafts) {
      this.drafts = new DraftsView();
      this.text.after(this.drafts.root);
    }
    if (!this.drafts) return;
    this.drafts.root.hidden = !asTokens;
    if (asTokens) this.drafts.show(this.answer.tokens);
  }

  showFooter(running) {
    const { answer, label } = this;
    if (running) {
      this.live ??= make("p", "figures live");
      this.live.textContent = liveLine(answer);
      if (this.footer.firstChild !== this.live) this.footer.replaceChildren(this.live);
    } else if (this.footerState !== answer.state) {
      const line = label ? comparedLine(answer) : undefined;
      const notes = [note(answer), answer.numTokens ? figures(answer, line) : null];
      this.footer.replaceChildren(...notes.filter(Boolean));
    }
    this.footerState = answer.state;
  }
}

function note(answer) {
  if (answer.state === "stopped") return make("p", "note", "Stopped.");
  if (answer.state !== "done") return null;
  if (answer.finish === "length") return make("p", "note", "Cut off: it reached the most tokens that were allowed.");
  if (!answer.text && !answer.reasoning) return make("p", "note", "The model said nothing.");
  return null;
}
