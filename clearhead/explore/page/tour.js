// A guided tour of ten steps, in the order of the essays: each sets the state and lights one region. What it points at
// is found in the pass itself (the head that is worth most, the token that it looks at), so that it leads through any
// run; what a model does not have is passed over.
import { byId, fill, h } from "./dom.js";
import { clamp, count, f } from "./numbers.js";
import { titleOf } from "./work.js";

const NONE = { force: [], off: [], sw: [], before: 0, mode: "greedy", mean: 0, ten: "" };
const writes = ({ model }) => model.kind !== "encoder";
const bridged = ({ model }) => model.kind === "encoder-decoder";
const quoted = text => `“${text.length > 40 ? `${text.slice(0, 38)} …` : text}”`;
const answer = ({ pass }) => (pass.writing ?? pass.scoring)?.text ?? "";
const stepNear = ({ pass }, wanted) => clamp(wanted, 0, Math.max(0, pass.answer.length - 1));

/** The head that is worth most among attentions of a kind (all unless given), as { at, head }. */
function best({ model, worth }, fits = () => true) {
  let found = null;
  for (const one of model.attentions.filter(fits))
    for (let head = 0; head < one.heads; head++) {
      const amount = worth?.get(`${one.at}.${head + 1}`) ?? 0;
      if (!found || amount > found.amount) found = { at: one.at, head, amount };
    }
  return found;
}
const pick = found => ({ at: found.at, head: found.head });
const bridge = here => best(here, one => one.kind === "cross") ?? best(here);
const mask = here => best(here, one => one.masked) ?? best(here);
const cell = here => ({ view: "cell", ...pick(bridge(here)), step: stepNear(here, 6), lookAt: 1 });
const headName = ({ at, head }) => `Layer ${titleOf(at).layer}, head ${head + 1} of ${titleOf(at).name.toLowerCase()}`;

const STEPS = [
  {
    title: () => "A text goes in, an answer comes out",
    light: "#sentence",
    state: () => ({ view: "write", step: 0 }),
    say: here =>
      bridged(here)
        ? `This model has two halves. The encoder reads ${quoted(here.pass.text)}. The decoder writes ${quoted(answer(here))}, one token at a time. Nobody told it how: it saw pairs of texts. Press → to step.`
        : `Above, ${quoted(here.pass.text)} as the model reads it, token by token, and what it makes of it.`,
  },
  {
    title: ({ model }) => `Every step is a choice among ${count(model.config.head.classes || model.config.vocab_size)}`,
    light: "#bars",
    state: here => ({ view: "write", step: stepNear(here, 5) }),
    say: here =>
      `At each step every one of them gets a probability, and the likeliest is ${writes(here) ? "written. Click another one to force it, and read what it then makes of the rest" : "taken"}.`,
  },
  {
    title: () => "Tokens are rows of numbers, and rows have a place",
    light: "#view .st:nth-of-type(2)",
    state: cell,
    say: ({ model: { letters, config, switches } }) =>
      `A token is an id. The id picks a row of ${letters.D} numbers${config.embedding.scaled ? `, times √${letters.D}` : ""}. Attention alone would see a heap of tokens, so their places are ${config.positions.kind === "sinusoidal" ? "added as sines and cosines" : config.positions.kind === "none" ? "left to the mask" : `brought in (${config.positions.kind})`}. ${switches.some(one => one.id === "positions") ? "What it makes of a text without them, the switch “Positions” shows." : ""}`,
  },
  {
    title: () => "One asks, all answer",
    light: "#view .st[data-step^=Multiply]",
    state: cell,
    say: here =>
      `Each token makes a query, a key and a value. Query times key says how well two tokens match: number by number, then the sum. ${bridged(here) ? "Here the decoder, about to write a token, asks; the source token that answers loudest is the one chosen." : ""}`,
  },
  {
    title: ({ model }) => `Why divide by √${model.letters.d}?`,
    light: "#view .st[data-step^=Divide]",
    state: cell,
    say: ({ model }) =>
      `The product is a sum of ${model.letters.d} terms, so it is spread √${model.letters.d} times as wide as one. Dividing brings it back, and the softmax stays soft. What that is for, the lab measured: see the switch.`,
  },
  {
    title: () => "Several heads, several questions",
    light: "#thumbs",
    state: here => ({ view: "look", sort: "worth", ...pick(bridge(here)), step: stepNear(here, 6), lookAt: 1 }),
    say: ({ model, worth }) =>
      `The ${model.letters.D} numbers are cut into ${model.letters.H} heads of ${model.letters.d}, and each looks in its own way. The line below each says what it is worth for this text${worth ? `: of ${worth.size ? [...worth.keys()].filter(name => name.split(".").length === 4).length : 0} heads, ${[...worth].filter(([name, amount]) => name.split(".").length === 4 && amount > 0.1).length} are worth more than 0.1 nats` : ""}.`,
  },
  {
    title: () => "No peeking",
    light: ".stack",
    fits: writes,
    state: here => ({ view: "look", ...pick(mask(here)), step: stepNear(here, 6), back: 0 }),
    say: () =>
      "While it writes a token, the later ones must not be seen. Their scores become −∞ before the softmax, so their share is exactly 0: the hatched cells. A mask put on after the softmax leaves rows that no longer add up to one.",
  },
  {
    title: () => "The bridge between the halves",
    light: "#arcs",
    fits: bridged,
    state: here => ({ view: "look", ...pick(bridge(here)), step: stepNear(here, 3), lookAt: 1 }),
    say: () =>
      "Cross-attention: queries come from the decoder, keys and values from the encoder’s output. Step through the answer with ← and →, and watch the arcs move over the text.",
  },
  {
    title: () => "Silence one",
    light: "#compare",
    state: here => {
      const found = best(here);
      return { view: "look", ...pick(found), step: stepNear(here, 5), off: [`${found.at}.${found.head + 1}`] };
    },
    say: here => {
      const found = best(here);
      return `${headName(found)}, silenced: it hands over nothing. For this text it is worth most of all${here.worth ? `, ${f(found.amount, 2)} nats` : ""}; the third line says what is written now. Undo it and silence others: of most the model hardly notices.`;
    },
  },
  {
    title: () => "Layer by layer, step by step",
    light: "#lens",
    state: here => ({ view: "layers", step: stepNear(here, 6) }),
    say: here =>
      `Each sub-layer adds to one road, so the model’s guess can be read off after any of them. ${writes(here) ? "And because earlier tokens never see later ones, their keys and values never change: they are kept, not made again. " : ""}Now type a text of your own.`,
  },
];

export const tourOf = here => STEPS.filter(step => !step.fits || step.fits(here));

const hereOf = ({ model, work }) => ({ model, pass: work.base, worth: work.known(work.base, "worth") });

/** The change of state with which a step of the tour begins; 0 or past the end leaves it. */
export function stepOf(number, app) {
  const here = hereOf(app),
    steps = tourOf(here);
  return number < 1 || number > steps.length
    ? { ...NONE, tour: 0 }
    : { ...NONE, tour: number, ...steps[number - 1].state(here) };
}

let shown = 0;

export function drawTour(element, app) {
  const { state, set } = app,
    here = hereOf(app),
    steps = tourOf(here),
    step = steps[state.tour - 1];
  for (const lit of document.querySelectorAll(".lit")) lit.classList.remove("lit");
  document.body.classList.toggle("touring", Boolean(step));
  if (!step) {
    shown = 0;
    return fill(element);
  }
  const go = number => set(stepOf(number, app));
  const button = (text, props) => h("button", { class: "btn", ...props }, text);
  fill(
    element,
    h(
      "div",
      { class: "tour", role: "region", "aria-label": "Guided tour" },
      h("p", { class: "label" }, `Tour, ${state.tour} of ${steps.length}`),
      h("h3", {}, step.title(here)),
      h("p", { "aria-live": "polite" }, step.say(here)),
      h(
        "div",
        { class: "go" },
        button("Back", { "data-key": "tour back", disabled: state.tour === 1, onclick: () => go(state.tour - 1) }),
        button(state.tour === steps.length ? "Done" : "Next", {
          class: "btn main",
          id: "next",
          "data-key": "tour next",
          onclick: () => go(state.tour + 1),
        }),
        button("Leave", { "data-key": "tour leave", onclick: () => set({ tour: 0 }) }),
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
