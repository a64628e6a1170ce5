/** What the browser keeps: settings and the conversation in localStorage, the API key only until the tab closes. */

import { newAnswer } from "./answer.js";

const SETTINGS = "foredraft.settings", CONVERSATION = "foredraft.conversation", KEY = "foredraft.key";

/** All settings, and what they are at first. Empty numbers are the server's choice. */
export const DEFAULTS = Object.freeze({
  model: "", system: "", temperature: 0, topP: null, maxTokens: null, seed: null, speculation: true, theme: "auto",
  showDrafts: false,
});

/** Settings as they were left; what is unknown or of another type is dropped. */
export function loadSettings() {
  const found = read(localStorage, SETTINGS) ?? {}, settings = { ...DEFAULTS };
  for (const name of Object.keys(DEFAULTS)) {
    const isNumber = DEFAULTS[name] === null || typeof DEFAULTS[name] === "number";
    const right = isNumber ? Number.isFinite(found[name]) : typeof found[name] === typeof DEFAULTS[name];
    if (right) settings[name] = found[name];
  }
  return settings;
}

export function saveSettings(settings) {
  write(localStorage, SETTINGS, settings);
}

export function loadKey() {
  return read(sessionStorage, KEY) ?? "";
}

export function saveKey(key) {
  write(sessionStorage, KEY, key);
}

/**
 * The turns of the conversation. An answer that was running when the page was left is one that was stopped.
 * @returns {Array<{question: string, answer: object, plain: object|null}>}
 */
export function loadConversation() {
  const turns = read(localStorage, CONVERSATION);
  if (!Array.isArray(turns)) return [];
  return turns
    .filter(turn => typeof turn?.question === "string" && typeof turn.answer?.text === "string")
    .map(turn => ({ ...turn, answer: restored(turn.answer), plain: turn.plain ? restored(turn.plain) : null }));
}

function restored(answer) {
  const whole = { ...newAnswer(), ...answer };
  if (!Array.isArray(whole.tokens)) whole.tokens = [];
  return whole.state === "running" || whole.state === "waiting" ? { ...whole, state: "stopped" } : whole;
}

/** Keep the conversation; where there is no room for who drafted what, at least what was said. */
export function saveConversation(turns) {
  if (write(localStorage, CONVERSATION, turns)) return;
  const bare = answer => answer && { ...answer, tokens: [] };
  write(localStorage, CONVERSATION, turns.map(turn => ({ ...turn, answer: bare(turn.answer), plain: bare(turn.plain) })));
}

function read(storage, name) {
  try {
    return JSON.parse(storage.getItem(name));
  } catch {
    return null;
  }
}

function write(storage, name, value) {
  try {
    storage.setItem(name, JSON.stringify(value));
    return true;
  } catch {
    // Full, or off. The page works without; it only forgets.
    return false;
  }
}
