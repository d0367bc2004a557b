// The page: one state, the passes behind it, and what draws them. At most one redraw a frame.
import { applyTheme, isDark } from "./colour.js";
import { byId, fill, h, say } from "./dom.js";
import { save } from "./exporting.js";
import { inspector } from "./inspector.js";
import { measure } from "./measure.js";
import { drawSentence } from "./sentence.js";
import { Refusal } from "./server.js";
import { openSource } from "./source.js";
import { drawSpine } from "./spine.js";
import { address, edited, fit, fresh, parse, VIEWS, within } from "./state.js";
import { drawTour, stepOf } from "./tour.js";
import { training } from "./training.js";
import { drawCell } from "./view_cell.js";
import { drawLayers } from "./view_layers.js";
import { drawLook } from "./view_look.js";
import { drawSwitch } from "./view_switch.js";
import { drawWrite } from "./view_write.js";
import { sides, Work } from "./work.js";

const NAMES = {
  write: "Token by token",
  look: "Who looks at whom",
  cell: "One cell, opened",
  switch: "Switches",
  layers: "Layers and cache",
};
const DRAW = { write: drawWrite, look: drawLook, cell: drawCell, switch: drawSwitch, layers: drawLayers };
const source = await openSource(),
  model = await source.model(),
  work = new Work(source, model.kind);
const app = { state: fresh(), work, model, source, set, weights: null, redraw };
let waiting = 0,
  reading = 0,
  pending = false, // whether something is being read: what is drawn meanwhile is not the last word
  drawing = 0;

/** Change what is chosen; reads again only if text, search or edits changed. */
function set(change) {
  app.state = { ...app.state, ...change };
  return update();
}

async function update() {
  const mine = ++reading,
    dim = setTimeout(() => document.body.classList.add("busy"), 150);
  delete document.body.dataset.idle;
  pending = true;
  try {
    if (app.state.text) await work.read(app.state);
    if (mine !== reading) return;
    byId("problem").textContent = "";
    const said = app.state.text ? settle(within(app.state, work.shown(app.state))) : [];
    if (app.state.text && app.state.lookAt) await lookAtHeaviest();
    if (mine !== reading) return;
    // whole, because in a notebook's frame what is relative belongs to the notebook
    history.replaceState(null, "", location.href.replace(/#.*$/s, "") + address(app.state));
    redraw();
    return said;
  } catch (refusal) {
    if (mine === reading) trouble(refusal);
    return null;
  } finally {
    clearTimeout(dim);
    if (mine === reading) {
      document.body.classList.remove("busy");
      pending = false;
    }
  }
}

/** Choose the token that the chosen row looks at most. */
async function lookAtHeaviest() {
  const { state } = app,
    pass = work.shown(state);
  app.state = { ...state, lookAt: 0 };
  if (!state.at) return;
  const at = sides(pass, state),
    { shape, data } = await work.head(pass, state.at, state.head),
    row = data.subarray(at.row * shape[1], (at.row + 1) * shape[1]);
  app.state = { ...app.state, ...at.pick(at.row, row.indexOf(Math.max(...row))) };
}

/** A pass that the server no longer keeps is read again, once. */
function lost(refusal) {
  if (!/no longer kept/.test(refusal.message) || work.again) return trouble(refusal);
  work.forget();
  work.again = true;
  update().finally(() => (work.again = false));
}

/** One line below the text field; the last good pass stays. */
function trouble(refusal) {
  byId("problem").textContent = refusal.message;
  if (!(refusal instanceof Refusal)) console.error(refusal);
  document.body.dataset.idle = "refused";
}

function settle({ state, said }) {
  app.state = state;
  if (said.length) say(said.join("; "));
  return said;
}

function redraw() {
  delete document.body.dataset.idle;
  if (!waiting)
    waiting = requestAnimationFrame(() => {
      waiting = 0;
      draw().catch(lost);
    });
}

async function draw() {
  const mine = ++drawing,
    { state } = app;
  applyTheme(state.theme);
  if (!model.kind) return drawUnread();
  drawTabs();
  if (!state.text || !work.base) return drawEmpty();
  const pass = work.shown(state),
    at = state.at && sides(pass, state);
  if (at) {
    const head = await work.head(pass, state.at, state.head),
      columns = head.shape[1];
    app.weights =
      at.kind === "self" && pass.kind !== "decoder"
        ? null
        : head.data.subarray(at.row * columns, (at.row + 1) * columns);
  }
  if (mine !== drawing) return;
  measure(app, pass);
  drawSentence(byId("sentence"), app);
  drawSpine(byId("spine"), app);
  const shown = await DRAW[state.view](app, pass, at);
  if (mine !== drawing) return;
  fill(byId("view"), shown);
  const told = await inspector(app, pass, at);
  if (mine !== drawing) return;
  fill(byId("inspect"), told);
  drawTour(byId("tour"), app);
  if (!pending) document.body.dataset.idle = state.view;
}

function drawTabs() {
  fill(
    byId("tabs"),
    VIEWS.filter(view => DRAW[view]).map(view =>
      h(
        "a",
        {
          href: address({ ...app.state, view }),
          "data-key": view,
          "aria-current": app.state.view === view && "page",
          onclick: event => {
            event.preventDefault();
            set({ view });
          },
        },
        NAMES[view],
      ),
    ),
  );
  const tabs = byId("tabs"),
    here = tabs.querySelector("[aria-current]");
  if (here && tabs.scrollWidth > tabs.clientWidth)
    tabs.scrollLeft = here.offsetLeft - tabs.offsetLeft - (tabs.clientWidth - here.offsetWidth) / 2;
}

function drawEmpty() {
  for (const id of ["sentence", "spine", "inspect", "tour"]) fill(byId(id));
  fill(
    byId("view"),
    h("h2", {}, "Type a text, or begin with one of these"),
    h(
      "p",
      { class: "examples" },
      model.examples.map(text => h("button", { class: "btn mono", onclick: () => begin(text) }, text)),
    ),
  );
  document.body.dataset.idle = "empty";
}

/** A run without a checkpoint: its training, and nothing else yet. */
async function drawUnread() {
  app.state.view = "layers";
  fill(
    byId("view"),
    h("h2", {}, "No checkpoint yet"),
    h(
      "p",
      { class: "lede" },
      "This run has not kept a checkpoint: its training can be watched. Load the page again when there is one.",
    ),
    await training(app, null),
  );
  document.body.dataset.idle = "unread";
}

function begin(text) {
  byId("q").value = text;
  set({ text, force: [], off: [], sw: [], step: 0, src: 0, to: 0, back: 0, before: 0 });
}

function open(words) {
  if (!model.kind) return redraw();
  const chosen = new URLSearchParams(words.replace(/^#/, "")),
    began = parse(words, {
      ...fresh(),
      text: source.first ?? model.examples[0] ?? "",
      lookAt: chosen.has("src") ? 0 : 1,
    }),
    fitted = fit(began.state, model),
    wrong = [...began.said, ...fitted.said];
  app.state = fitted.state;
  byId("q").value = app.state.text;
  update().then(said => {
    if (said && wrong.length + said.length)
      byId("problem").textContent = `Of the address, not all could be shown: ${[...wrong, ...said].join("; ")}`;
  });
}

byId("run").textContent = `${model.run} · ${model.checkpoint ?? "no checkpoint"}`;
document.title = `clearhead explore · ${model.run}`;
byId("q").disabled = !source.alive || !model.kind;
byId("ask").addEventListener("submit", event => {
  event.preventDefault();
  begin(byId("q").value);
});
byId("theme").addEventListener("click", () => set({ theme: isDark() ? "light" : "dark" }));
byId("tourButton").addEventListener("click", () => work.base && set(stepOf(1, app)));
for (const form of ["svg", "png", "json"])
  byId(`save${form[0].toUpperCase()}${form.slice(1)}`).addEventListener("click", () => {
    byId("menu").open = false;
    if (work.base) save(app, form).catch(trouble);
  });
byId("skip").addEventListener("click", event => {
  event.preventDefault();
  byId("main").focus();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
addEventListener("hashchange", () => open(location.hash));
let width = innerWidth;
addEventListener("resize", () => {
  if (innerWidth !== width) {
    width = innerWidth;
    redraw();
  }
});
addEventListener("keydown", event => {
  if (
    event.target.closest?.("input,select,textarea,[role=application]") ||
    event.altKey ||
    event.ctrlKey ||
    event.metaKey ||
    !work.base
  )
    return;
  const { state } = app,
    by = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
  if (by) {
    set({ step: state.step + by });
    say(`step ${app.state.step + 1}`);
  } else if (/^[1-5]$/.test(event.key)) set({ view: DRAW[VIEWS[event.key - 1]] ? VIEWS[event.key - 1] : state.view });
  else if (event.key === "Escape")
    set(state.tour ? { tour: 0 } : edited(state) ? { force: [], off: [], sw: [], before: 0 } : {});
});
open(location.hash || source.begin || "");
