/** Making nodes. Text only ever becomes text: nothing here, or anywhere on this page, parses HTML. */

/**
 * An element with a class and children; strings become text nodes, lists all that they hold, null nothing.
 * @param {string} tag
 * @param {string} [className]
 * @param {...(Node|string|null|Array)} children
 */
export function make(tag, className = "", ...children) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  // One by one: a list may be longer than the arguments that a call can take.
  for (const child of children.flat()) if (child !== null) element.append(child);
  return element;
}

/** A button that does something. name: what screen readers say where its text alone would not do. */
export function makeButton(text, onClick, { className = "quiet", name = "" } = {}) {
  const button = make("button", className, text);
  button.type = "button";
  if (name) button.setAttribute("aria-label", name);
  button.addEventListener("click", () => onClick(button));
  return button;
}

/** The element with this id. */
export function at(id) {
  return document.getElementById(id);
}

const CONTROLS = /[\u0000-\u0008\u000b-\u001f\u007f-\u009f\u061c\u200b-\u200f\u202a-\u202e\u2060-\u2069\ufeff]/;
const SPLIT_AT_CONTROLS = new RegExp(`(${CONTROLS.source})`);

/** Whether a text has characters that cannot be seen but change how it reads, such as those that turn its direction. */
export function hasControls(text) {
  return CONTROLS.test(text);
}

/** The text as nodes, such characters made visible: in code they may not hide. */
export function withVisibleControls(text) {
  if (!hasControls(text)) return [text];
  return text.split(SPLIT_AT_CONTROLS).filter(Boolean).map(piece => {
    if (!CONTROLS.test(piece)) return piece;
    const code = "U+" + piece.codePointAt(0).toString(16).toUpperCase().padStart(4, "0");
    const mark = make("span", "control", code);
    mark.title = "an invisible character";
    return mark;
  });
}

/** Copy a text, and say so on the button for a moment. */
export async function copyFrom(button, text) {
  const before = button.dataset.text ?? button.textContent;
  button.dataset.text = before;
  button.textContent = at("status").textContent = (await copy(text)) ? "Copied" : "Could not copy";
  setTimeout(() => { button.textContent = before; }, 1500);
}

async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    return true;
  } catch {
    return copyBySelection(text);
  }
}

/** Pages reached over plain HTTP from another machine have no clipboard API. */
function copyBySelection(text) {
  const focused = document.activeElement;
  const area = make("textarea", "hidden-text", text);
  document.body.append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  focused?.focus();
  return copied;
}
