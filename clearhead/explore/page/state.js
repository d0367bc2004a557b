// What is chosen, in one place, and in the address of the page: a step, a source token, an attention and its head, an
// earlier token, and every edit. All views draw from this alone. In the address tokens count from 0, layers and heads
// from 1; on the screen everything counts from 1.

export const VIEWS = ["write", "look", "cell", "switch", "layers"];
const MODES = ["greedy", "beam", "sample"],
  SORTS = ["worth", "entropy", "place"];
const START = {
  text: "",
  view: "write",
  step: 0,
  src: 0,
  to: 0,
  back: 0,
  at: "",
  head: 0,
  force: [],
  off: [],
  sw: [],
  mode: "greedy",
  temperature: 1,
  top_k: 0,
  top_p: 1,
  seed: 0,
  tokens: 24, // that a language model writes at most
  sort: "worth",
  mean: 0,
  before: 0,
  tour: 0,
  theme: "",
  ck: "",
  ten: "",
};
const NUMBERS = {
  step: 1,
  src: 1,
  to: 1,
  back: 1,
  seed: 1,
  tour: 1,
  temperature: 0,
  top_k: 1,
  top_p: 0,
  tokens: 1,
  mean: 1,
  before: 1,
};

export const fresh = () => ({ ...START, force: [], off: [], sw: [] });

/** The state of an address, over `state`; { state, said }: said names what could not be read. */
export function parse(address, state = fresh()) {
  const found = { ...state },
    said = [],
    words = new URLSearchParams(address.replace(/^#/, ""));
  for (const list of ["force", "off", "sw"]) found[list] = [];
  for (const [key, value] of words) {
    if (key === "text" || key === "theme" || key === "ck" || key === "ten") found[key] = value;
    else if (key === "view" || key === "mode" || key === "sort") {
      const known = { view: VIEWS, mode: MODES, sort: SORTS }[key];
      if (known.includes(value)) found[key] = value;
      else said.push(`${key}=${value}`);
    } else if (key in NUMBERS) {
      const number = Number(value);
      if (value !== "" && Number.isFinite(number) && (!NUMBERS[key] || Number.isInteger(number))) found[key] = number;
      else said.push(`${key}=${value}`);
    } else if (key === "at") {
      const parts = value.match(/^(encoder|decoder)\.([1-9]\d*)\.(self|cross)\.([1-9]\d*)$/);
      if (parts) Object.assign(found, { at: `${parts[1]}.${parts[2]}.${parts[3]}`, head: Number(parts[4]) - 1 });
      else said.push(`at=${value}`);
    } else if (key === "force") {
      const parts = value.match(/^(\d{1,4}):(\d{1,9})$/);
      if (parts)
        found.force = [
          ...found.force.filter(([step]) => step !== Number(parts[1])),
          [Number(parts[1]), Number(parts[2])],
        ];
      else said.push(`force=${value}`);
    } else if (key === "off" || key === "sw") {
      if (!found[key].includes(value)) found[key].push(value);
    }
  }
  if (!["", "light", "dark"].includes(found.theme)) found.theme = "";
  return { state: found, said };
}

/** The address of a state; what is as usual is left out. */
export function address(state) {
  const words = new URLSearchParams({ view: state.view, step: state.step, src: state.src });
  if (state.at) words.set("at", `${state.at}.${state.head + 1}`);
  for (const key of [
    "to",
    "back",
    "mode",
    "temperature",
    "top_k",
    "top_p",
    "seed",
    "tokens",
    "sort",
    "mean",
    "before",
    "tour",
    "theme",
    "ck",
    "ten",
  ])
    if (state[key] !== START[key]) words.set(key, state[key]);
  for (const [step, token] of state.force) words.append("force", `${step}:${token}`);
  for (const list of ["off", "sw"]) for (const one of state[list]) words.append(list, one);
  words.set("text", state.text);
  return `#${words}`;
}

/** The nearest valid state for a model, before any text is read; { state, said }. */
export function fit(state, model) {
  const found = { ...state },
    said = [];
  const here = model.attentions.find(one => one.at === found.at);
  if (!here) {
    const usual = model.attentions.at(-1);
    if (found.at) said.push(`there is no attention ${found.at}`);
    found.at = usual?.at ?? "";
  }
  const heads = model.config.heads;
  if (found.head >= heads) {
    said.push(`there is no head ${found.head + 1}, the last is ${heads}`);
    found.head = heads - 1;
  }
  const known = new Set(
    model.attentions.flatMap(one => Array.from({ length: heads }, (_, head) => `${one.at}.${head + 1}`)),
  );
  const switches = new Set(model.switches.map(one => one.id));
  for (const [list, right] of [
    ["off", known],
    ["sw", switches],
  ]) {
    for (const one of found[list])
      if (!right.has(one)) said.push(`there is no ${list === "off" ? "head" : "switch"} ${one}`);
    found[list] = found[list].filter(one => right.has(one));
  }
  const wrong = found.force.filter(([, token]) => token >= model.config.vocab_size);
  for (const [, token] of wrong) said.push(`there is no token ${token}`);
  found.force = found.force.filter(pair => !wrong.includes(pair));
  found.tour = Math.max(0, Math.min(10, found.tour));
  found.temperature = Math.max(0, Math.min(5, found.temperature));
  found.top_p = Math.max(0.01, Math.min(1, found.top_p));
  found.top_k = Math.max(0, found.top_k);
  found.tokens = Math.max(1, Math.min(512, found.tokens));
  found.seed = Math.max(0, Math.min(2 ** 32 - 1, found.seed));
  return { state: found, said };
}

/** The nearest step and tokens that a pass has; { state, said }. */
export function within(state, pass) {
  const found = { ...state },
    said = [],
    last = Math.max(0, pass.answer.length - 1);
  const limit = (key, low, high, name) => {
    const value = Math.max(low, Math.min(high, found[key]));
    if (value !== found[key]) {
      said.push(`${name} ${found[key] + 1} is not there; shown is ${value + 1}`);
      found[key] = value;
    }
  };
  limit("step", pass.kind === "decoder" ? 1 - pass.prompt : 0, last, "step");
  limit("src", 0, Math.max(0, pass.source.length - 1), "source token");
  limit("to", 0, Math.max(0, pass.source.length - 1), "source token");
  limit("back", 0, Math.max(0, pass.read.length - 1), "token");
  return { state: found, said };
}

export const edited = state => state.force.length + state.off.length + state.sw.length > 0;
