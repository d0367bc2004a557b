// View 5, layers and cache: at which layer does it know? The residual stream's guess after each sub-layer, what the
// caches hold at each step, and the run over time.
import { cacheBars } from "./cache_bars.js";
import { h } from "./dom.js";
import { lens } from "./lens.js";
import { training } from "./training.js";

export async function drawLayers(app, pass) {
  const { work } = app,
    { states } = await work.guesses(pass),
    over = await training(app, pass);
  return [
    h("h2", {}, "At which layer does it know?"),
    states.length
      ? [
          h(
            "p",
            { class: "lede" },
            "The last norm and the output matrix, applied early: what the model would answer if it stopped there. The shade is the probability of the token that it answers in the end. It was not trained to be read before the end.",
          ),
          lens(app, pass, states),
        ]
      : h("p", { class: "lede" }, "This model's head gives vectors: there is no guess to read off early."),
    cacheBars(app, pass),
    over,
  ];
}
