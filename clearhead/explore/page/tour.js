// A guided tour of ten steps: each sets the state and lights one region. Its texts are about a model that reads a date;
// what differs in another model is left out of the sentence, or the step is passed over.
import { byId, fill, h } from "./dom.js";

const NONE = { force: [], off: [], sw: [], before: 0, mode: "greedy", mean: 0 };
const last = (model, kind) => model.attentions.filter(one => one.kind === kind).at(-1) ?? model.attentions.at(-1);
const crossing = (model, pass) => ({
  at: last(model, "cross").at,
  head: Math.min(2, model.config.heads - 1),
  step: Math.min(6, pass.answer.length - 1),
  src: Math.min(4, Math.max(0, pass.source.length - 1)),
});
const masked = (model, pass) => ({
  at: (model.attentions.find(one => one.masked) ?? model.attentions[0]).at,
  head: model.config.heads - 1,
  step: Math.min(6, pass.answer.length - 1),
  back: Math.min(5, Math.max(0, pass.read.length - 1)),
});
const writes = model => model.kind !== "encoder",
  bridged = model => model.kind === "encoder-decoder";

const STEPS = [
  {
    title: "A text goes in, an answer comes out",
    say: model =>
      bridged(model)
        ? "This model has two halves. The encoder reads the text; the decoder writes the answer, one token at a time, from what the encoder made of it. Press → to step."
        : "Above, the text as the model reads it, token by token, and what it makes of it.",
    state: () => ({ view: "write", step: 0 }),
    light: "#sentence",
  },
  {
    title: "Every step is a choice",
    say: model =>
      `At each step every one of ${model.config.vocab_size} tokens gets a probability, and the likeliest is written. Click another one to force it, and read what it then makes of the rest.`,
    state: (model, pass) => ({ view: "write", step: Math.min(5, pass.answer.length - 1) }),
    light: "#bars",
  },
  {
    title: "Tokens are rows of numbers, and rows have a place",
    say: model =>
      `A token is an id. The id picks a row of ${model.letters.D} numbers. Attention alone would see a heap of tokens, so the model is told their order, too. Try the switch “Positions” later, and see what it writes without.`,
    state: (model, pass) => ({ view: "cell", ...crossing(model, pass) }),
    light: "#view .st:nth-of-type(2)",
  },
  {
    title: "One asks, all answer",
    say: () =>
      "Each token makes a query, a key and a value. Query times key says how well two tokens match: number by number, then the sum.",
    state: (model, pass) => ({ view: "cell", ...crossing(model, pass) }),
    light: "#view .st:nth-of-type(4)",
  },
  {
    title: "Why divide by √d?",
    say: model =>
      `The product is a sum of ${model.letters.d} terms, so it is spread √${model.letters.d} times as wide as one. Dividing brings it back, and the softmax stays soft. What that is for, the lab measured: see the switch.`,
    state: (model, pass) => ({ view: "cell", ...crossing(model, pass) }),
    light: "#view .st:nth-of-type(5)",
  },
  {
    title: "Several heads, several questions",
    say: model =>
      `The ${model.letters.D} numbers are cut into ${model.letters.H} heads of ${model.letters.d}, and each looks in its own way. The line below each says what it is worth for this text: often most are worth little.`,
    state: (model, pass) => ({ view: "look", sort: "worth", ...crossing(model, pass) }),
    light: "#thumbs",
  },
  {
    title: "No peeking",
    say: () =>
      "While it writes a token, the later ones must not be seen. Their scores become −∞ before the softmax, so their share is exactly 0: the hatched cells. A mask put on after the softmax leaves rows that no longer add up to one.",
    state: (model, pass) => ({ view: "look", ...masked(model, pass) }),
    light: ".stack",
    fits: writes,
  },
  {
    title: "The bridge between the halves",
    say: () =>
      "Cross-attention: queries come from the decoder, keys and values from the encoder’s output. Step through the answer with ← and →, and watch the arcs move over the text.",
    state: (model, pass) => ({ view: "look", ...crossing(model, pass), step: Math.min(3, pass.answer.length - 1) }),
    light: "#arcs",
    fits: bridged,
  },
  {
    title: "Silence one",
    say: () =>
      "This head is silenced: it hands over nothing. The third line says what is written now, and what the first answer has lost. Undo it, and silence others: of many the model hardly notices.",
    state: (model, pass) => {
      const at = masked(model, pass);
      return { view: "look", ...at, off: [`${at.at}.${at.head + 1}`] };
    },
    light: "#compare",
  },
  {
    title: "Leave a piece out",
    say: () =>
      "Switches take one piece from the trained model: here the causal mask. Writing and scoring answer differently, so they are shown apart. Now type a text of your own.",
    state: model => ({
      view: "switch",
      sw: model.switches.some(one => one.id === "mask") ? ["mask"] : [model.switches[0].id],
    }),
    light: "#compare",
  },
];

export const tourOf = model => STEPS.filter(step => !step.fits || step.fits(model));

/** The change of state with which a step of the tour begins; 0 or past the end leaves it. */
export function stepOf(number, model, pass) {
  const steps = tourOf(model);
  return number < 1 || number > steps.length
    ? { ...NONE, tour: 0 }
    : { ...NONE, tour: number, ...steps[number - 1].state(model, pass) };
}

let shown = 0;

export function drawTour(element, { state, model, work, set }) {
  for (const lit of document.querySelectorAll(".lit")) lit.classList.remove("lit");
  document.body.classList.toggle("touring", state.tour > 0);
  const steps = tourOf(model),
    step = steps[state.tour - 1];
  if (!step) {
    shown = 0;
    return fill(element);
  }
  const go = number => set(stepOf(number, model, work.base));
  fill(
    element,
    h(
      "div",
      { class: "tour", role: "region", "aria-label": "Guided tour" },
      h("p", { class: "label" }, `Tour, ${state.tour} of ${steps.length}`),
      h("h3", {}, step.title),
      h("p", {}, step.say(model)),
      h(
        "div",
        { class: "go" },
        h(
          "button",
          { class: "btn", "data-key": "tour back", disabled: state.tour === 1, onclick: () => go(state.tour - 1) },
          "Back",
        ),
        h(
          "button",
          { class: "btn main", id: "next", "data-key": "tour next", onclick: () => go(state.tour + 1) },
          state.tour === steps.length ? "Done" : "Next",
        ),
        h("button", { class: "btn", "data-key": "tour leave", onclick: () => set({ tour: 0 }) }, "Leave"),
      ),
    ),
  );
  const region = document.querySelector(step.light) ?? byId("view");
  region.classList.add("lit");
  if (shown !== state.tour)
    region.scrollIntoView({
      block: "center",
      behavior: matchMedia("(prefers-reduced-motion: reduce)").matches ? "auto" : "smooth",
    });
  shown = state.tour;
}
