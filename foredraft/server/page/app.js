/** The page: its parts, and what connects them. */

import { Chat } from "./chat.js";
import { Composer } from "./composer.js";
import { at } from "./dom.js";
import { Models } from "./models.js";
import { scrollToBottom } from "./scroll.js";
import { SettingsPanel } from "./settings.js";
import { loadConversation, loadKey, loadSettings, saveConversation } from "./storage.js";
import { numTokens, tokensPerSecond } from "./answer.js";
import { counted, decimal } from "./words.js";

const settings = loadSettings();
const panel = new SettingsPanel(settings, loadKey(), { keyChanged: connect });
const models = new Models({ chosen: settings.model, key: () => panel.key, choose: id => panel.keep("model", id) });
const composer = new Composer({ send, stop: () => chat.stop() });
const chat = new Chat(loadConversation(), {
  settings,
  key: () => panel.key,
  model: () => models.current(),
  changed: onChange,
  edit: question => composer.edit(question),
  enterKey: () => panel.open({ wantsKey: true }),
});

function send(question, { compare, replaces }) {
  if (replaces) chat.removeLast();
  chat.ask(question, { compare });
}

/** What the conversation says of itself; event: "started", "done", "stopped", "failed" or "shown". */
function onChange(event) {
  composer.setBusy(chat.busy);
  at("empty").hidden = chat.turns.length > 0;
  at("new-chat").disabled = chat.turns.length === 0;
  if (event !== "shown") at("status").textContent = told(event);
}

/** For those who hear the page. */
function told(event) {
  const { answer, plain } = chat.turns.at(-1), speed = tokensPerSecond(answer);
  if (event === "started") return plain ? "Answering twice" : "Answering";
  if (event === "stopped") return "Stopped";
  if (event === "failed") return `Failed: ${answer.error || plain?.error}`;
  return `Answer complete: ${counted(numTokens(answer), "token")}${speed ? `, ${decimal(speed)} tokens per second` : ""}`;
}

/** Find out which models there are. What is wrong is said at once, not only when somebody has typed a question. */
async function connect() {
  try {
    await models.load();
    at("trouble").hidden = true;
    at("key-wanted").hidden = true;
  } catch (error) {
    at("trouble").hidden = false;
    at("trouble-text").textContent = error.message;
    if (error.status === 401) panel.open({ wantsKey: true });
  }
}

function showDrafts(shown) {
  panel.keep("showDrafts", shown);
  at("show-drafts").checked = shown;
  chat.showAll();
}

function onKey(event) {
  // An open panel is what Escape closes, and a word that is being composed what it cancels.
  if (event.key !== "Escape" || panel.isOpen || event.isComposing) return;
  if (chat.busy) chat.stop();
  else if (composer.isEditing) composer.reset();
}

at("show-drafts").checked = settings.showDrafts;
at("show-drafts").addEventListener("change", event => showDrafts(event.target.checked));
at("open-settings").addEventListener("click", () => panel.open());
at("reconnect").addEventListener("click", connect);
at("new-chat").addEventListener("click", () => {
  chat.clear();
  composer.reset();
});
for (const example of document.querySelectorAll("#empty button")) {
  example.addEventListener("click", () => send(example.textContent.trim(), { compare: false, replaces: false }));
}
document.addEventListener("keydown", onKey);
window.addEventListener("pagehide", () => {
  // The connection breaks as the page goes, which is no fault of the server's.
  chat.stop();
  if (chat.busy) saveConversation(chat.turns);
});

chat.showAll();
connect();
scrollToBottom();
// On phones this would open the keyboard over the page.
if (matchMedia("(hover: hover)").matches) at("question").focus();
