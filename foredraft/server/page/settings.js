/** The settings panel: each field is read when it changes, and kept when it is valid. */

import { at } from "./dom.js";
import { saveKey, saveSettings } from "./storage.js";

/** Settings that are numbers, by the id of their field. Empty is null, where a setting may be. */
const NUMBERS = { temperature: "temperature", "top-p": "topP", "max-tokens": "maxTokens", seed: "seed" };

export class SettingsPanel {
  /**
   * @param {object} settings see storage.js; changed in place
   * @param {string} key the API key
   * @param {{keyChanged: () => void}} surroundings
   */
  constructor(settings, key, { keyChanged }) {
    this.settings = settings;
    this.key = key;
    this.dialog = at("settings");
    this.fillNumbers();
    this.bindTexts();
    at("speculation").checked = settings.speculation;
    at("speculation").addEventListener("change", event => this.keep("speculation", event.target.checked));
    at("api-key").addEventListener("change", event => {
      this.key = event.target.value.trim();
      saveKey(this.key);
      keyChanged();
    });
    at("close-settings").addEventListener("click", () => this.dialog.close());
    this.dialog.addEventListener("click", event => {
      if (event.target === this.dialog) this.dialog.close(); // beside it
    });
  }

  get isOpen() {
    return this.dialog.open;
  }

  /** Open it. wantsKey: because the server asks for a key. */
  open({ wantsKey = false } = {}) {
    at("key-wanted").hidden = !wantsKey;
    if (!this.dialog.open) this.dialog.showModal();
    if (wantsKey) at("api-key").focus();
  }

  close() {
    if (this.dialog.open) this.dialog.close();
  }

  keep(name, value) {
    this.settings[name] = value;
    saveSettings(this.settings);
  }

  fillNumbers() {
    for (const [id, name] of Object.entries(NUMBERS)) {
      const field = at(id);
      field.value = this.settings[name] ?? "";
      field.addEventListener("input", () => this.readNumber(field, name));
    }
  }

  readNumber(field, name) {
    const valid = field.checkValidity() && !(field.required && field.value === "");
    field.setAttribute("aria-invalid", String(!valid));
    if (valid) this.keep(name, field.value === "" ? null : field.valueAsNumber);
  }

  bindTexts() {
    at("system").value = this.settings.system;
    at("system").addEventListener("input", event => this.keep("system", event.target.value));
    at("api-key").value = this.key;
    at("theme").value = this.settings.theme;
    at("theme").addEventListener("change", event => {
      this.keep("theme", event.target.value);
      this.showTheme();
    });
    this.showTheme();
  }

  /** See theme.js, which does the same before the first paint. */
  showTheme() {
    const { theme } = this.settings, { dataset } = document.documentElement;
    if (theme === "auto") delete dataset.theme;
    else dataset.theme = theme;
  }
}
