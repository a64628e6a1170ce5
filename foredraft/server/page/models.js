/** Which models there are, and which one is asked. */

import { ApiError, fetchModels } from "./api.js";
import { at, make } from "./dom.js";
import { knowDrafters } from "./drafts.js";

export class Models {
  /** @param {{chosen: string, key: () => string, choose: (id: string) => void}} surroundings */
  constructor({ chosen, key, choose }) {
    this.chosen = chosen;
    this.key = key;
    this.known = null;
    at("model").addEventListener("change", event => {
      this.chosen = event.target.value;
      choose(this.chosen);
      this.show();
    });
  }

  /** Ask the server. Raises ApiError. */
  async load() {
    const models = await fetchModels(this.key());
    if (!models?.length) throw new ApiError("The server has no model.");
    this.known = models;
    if (!models.some(model => model.id === this.chosen)) this.chosen = models[0].id;
    for (const model of models) knowDrafters(model.drafters ?? []);
    this.show();
  }

  /** The model to ask. Raises ApiError where the server does not say which it has. */
  async current() {
    if (!this.known) await this.load();
    return this.chosen;
  }

  show() {
    const several = this.known.length > 1, choice = at("model"), name = at("model-name");
    choice.hidden = !several;
    name.hidden = several;
    name.textContent = this.chosen;
    name.title = about(this.known.find(model => model.id === this.chosen));
    choice.replaceChildren();
    for (const { id } of this.known) {
      const option = make("option", "", id);
      option.value = id;
      option.selected = id === this.chosen;
      choice.append(option);
    }
  }
}

function about({ max_model_len: length, drafters }) {
  const parts = [length && `context of ${length} tokens`, drafters?.length && `drafters: ${drafters.join(", ")}`];
  return parts.filter(Boolean).join("; ");
}
