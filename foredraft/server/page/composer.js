/** Where questions are written. */

import { at } from "./dom.js";

export class Composer {
  /** @param {{send: (question: string, options: {compare: boolean}) => void, stop: () => void}} actions */
  constructor({ send, stop }) {
    this.field = at("question");
    this.send = send;
    this.isEditing = false;
    this.field.addEventListener("keydown", event => this.onKey(event));
    this.field.addEventListener("input", () => this.fit());
    at("send").addEventListener("click", () => this.submit());
    at("compare").addEventListener("click", () => this.submit({ compare: true }));
    at("cancel-edit").addEventListener("click", () => this.reset());
    at("stop").addEventListener("click", () => {
      stop();
      this.field.focus();
    });
  }

  onKey(event) {
    // While a word is composed, Enter chooses it; Safari says so by the key code alone.
    const composing = event.isComposing || event.keyCode === 229;
    if (event.key !== "Enter" || event.shiftKey || composing) return;
    event.preventDefault();
    this.submit();
  }

  submit({ compare = false } = {}) {
    const question = this.field.value.trim();
    this.field.focus();
    if (!question || this.busy) return;
    const replaces = this.isEditing;
    this.setText("");
    this.setEditing(false);
    this.send(question, { compare, replaces });
  }

  /** Write a question anew. */
  edit(question) {
    this.setText(question);
    this.setEditing(true);
    this.field.focus();
  }

  /** Drop an edit; what else was typed stays. */
  reset() {
    if (this.isEditing) this.setText("");
    this.setEditing(false);
    this.field.focus();
  }

  setText(text) {
    this.field.value = text;
    this.fit();
  }

  setEditing(editing) {
    this.isEditing = editing;
    at("editing").hidden = !editing;
  }

  setBusy(busy) {
    this.busy = busy;
    at("send").hidden = busy;
    at("stop").hidden = !busy;
    at("compare").disabled = busy;
  }

  /** As high as its text; newer browsers do this by themselves. */
  fit() {
    if (CSS.supports("field-sizing", "content")) return;
    this.field.style.height = "auto";
    this.field.style.height = `${this.field.scrollHeight + 2}px`;
  }
}
