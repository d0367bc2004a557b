// A session in the page itself: the file carries the weights, and answers what the server would, in the same shapes.
// clearhead/explore/session.py is the same in Python, and a test compares the two.
import { Forward, newRun } from "./forward.js";
import { combine, even, findHead, places, silence, switched } from "./interventions.js";
import { described, entropies, guessesOf, pooled, worthOf } from "./measured.js";
import { beamSearch, hypotheses, likeliest, logSoftmax, Steps, write } from "./search.js";
import { Refusal } from "./server.js";
import { Tokenizer } from "./tokenize.js";

const KEPT = 6,
  MOST_LETTERS = 8000,
  MOST_ANSWER = 512;
const SEARCH = {
  kind: "greedy",
  beam_size: 4,
  length_penalty: null,
  temperature: 1,
  top_k: 0,
  top_p: 1,
  min_p: 0,
  seed: 0,
};
const refuse = (wrong, why) => {
  if (wrong) throw new Refusal(why, 400);
};
const sum = numbers => numbers.reduce((a, b) => a + b, 0);

export class Alive {
  alive = true;
  served = false;

  /** `carried`: what single_file.py wrote; `weights`: a list of tensors. */
  constructor(carried, weights) {
    this.carried = carried;
    this.first = carried.first; // the text to begin with
    this.begin = carried.begin; // and the rest of the state, as in an address
    this.config = carried.model.config;
    this.settings = carried.settings;
    this.tokenizer = new Tokenizer(carried.tokenizer);
    this.weights = new Map(weights.map(tensor => [tensor.name, tensor]));
    this.forward = new Forward(this.config, this.weights);
    this.passes = new Map();
    this.count = 0;
  }

  async model() {
    return this.carried.model;
  }
  async training(after = 0) {
    const { metrics, checkpoints } = this.carried.training;
    return { metrics: metrics.filter(row => row.step > after), checkpoints };
  }

  // ---- a text as the model reads it --------------------------------------------------------------------------------

  /** { source, prompt, places, cut }: places only for an encoder-only model. */
  reading(text) {
    const { settings, tokenizer, config } = this,
      letters = Array.from(text);
    const encode = part => tokenizer.encode(part.join(""));
    if (config.kind === "encoder-decoder") {
      const most = settings.most_source,
        part = letters.slice(0, 64 * most),
        ids = [...encode(part), settings.end];
      const cut = ids.length > most || part.length < letters.length;
      return {
        source: ids.length <= most ? ids : [...ids.slice(0, most - 1), settings.end],
        prompt: [settings.start],
        cut,
      };
    }
    if (config.kind === "decoder") {
      let ids = tokenizer.encode(text);
      if (settings.beginning !== null) ids = [settings.beginning, ...ids];
      else if (!ids.length && settings.documents === "none") ids = tokenizer.encode("\n");
      refuse(!ids.length, "an empty prompt, and the tokenizer has no token for a beginning: give a prompt");
      const most = (settings.positions ?? 2 ** 30) - 1;
      refuse(
        ids.length > most,
        `the prompt has ${ids.length} tokens; this model's learned positions leave room for ${most}`,
      );
      return { source: [], prompt: ids, cut: false };
    }
    const part = letters.slice(0, 64 * settings.most_source).join(""),
      gap = settings.mask;
    const pieces = gap === null ? [part] : part.split("<mask>");
    const ids = pieces
      .flatMap((piece, i) => [...(i ? [gap] : []), ...tokenizer.encode(piece)])
      .slice(0, settings.most_source);
    refuse(!ids.length, "the text has no tokens: nothing to look at");
    const { kind, classes } = config.head;
    let found = ids.map((_, i) => i);
    if (kind === "none" || (kind === "pooled" && !classes)) found = [];
    else if (kind === "pooled") found = [0];
    else if (kind === "masked" && ids.includes(gap)) found = found.filter(i => ids[i] === gap);
    return { source: ids, prompt: [], places: found, cut: false };
  }

  withAnswer(reading, ids) {
    const { config } = this,
      known = config.kind === "encoder" ? config.head.classes || config.vocab_size : config.vocab_size;
    const wrong = ids.find(id => !(Number.isInteger(id) && id >= 0 && id < known));
    refuse(wrong !== undefined, `the answer holds the id ${wrong}; ids go from 0 to ${known - 1}`);
    refuse(
      reading.places && ids.length !== reading.places.length,
      `the answer has ${ids.length} ids; this text asks for ${reading.places?.length}`,
    );
    const read = reading.prompt.length ? [...reading.prompt, ...ids.slice(0, -1)] : [],
      most = this.settings.positions;
    refuse(
      ids.length > MOST_ANSWER || (most && read.length > most),
      `the answer has ${ids.length} tokens; there is room for ${Math.min(MOST_ANSWER, most ?? MOST_ANSWER)}`,
    );
    const rows = reading.places ?? ids.map((_, i) => reading.prompt.length - 1 + i);
    return { ...reading, answer: ids, read, rows };
  }

  givenAnswer(reading, target) {
    refuse(reading.places, "a target is for models that write");
    const ids = [
      ...this.tokenizer.encode(target),
      ...(this.config.kind === "encoder-decoder" ? [this.settings.end] : []),
    ];
    refuse(!ids.length, "the target has no tokens: nothing to score");
    return this.withAnswer(reading, ids);
  }

  room(reading, most) {
    const { settings, config } = this;
    let wanted = config.kind === "encoder-decoder" ? reading.source.length + settings.max_extra : settings.max_tokens;
    if (settings.positions) wanted = Math.min(wanted, settings.positions - reading.prompt.length + 1);
    return Math.max(1, Math.min(wanted, MOST_ANSWER, most ?? MOST_ANSWER));
  }

  // ---- a pass ------------------------------------------------------------------------------------------------------

  /** One pass: log-probabilities of each row that answers, and the run with its tensors. */
  traced(reading, edit, record = true, memory = null) {
    const run = newRun(edit, record),
      { forward, config } = this;
    let hidden;
    if (config.kind === "encoder-decoder")
      hidden = forward.states(run, "decoder", reading.read, memory ?? forward.states(run, "encoder", reading.source));
    else if (config.kind === "decoder") hidden = forward.states(run, "decoder", reading.read);
    else hidden = forward.states(run, "encoder", reading.source);
    const made = forward.head(run, hidden),
      width = made.shape[2];
    const logProbs = reading.rows.map(row => logSoftmax(made.data.subarray(row * width, (row + 1) * width)));
    return { logProbs, run };
  }

  edit({ off = [], even: alike = [], sw = [] }) {
    const { config } = this;
    return combine(
      switched(config, sw),
      ...alike.map(name => even(findHead(config, name))),
      ...off.map(name => silence(findHead(config, name))),
    );
  }

  written(reading, edit, request) {
    const { settings, forward, config } = this,
      search = { ...SEARCH, ...request.search },
      force = request.edits?.force ?? [];
    const allowed = {
      ...settings,
      limit: this.room(reading, request.max_tokens),
      end: settings.stop,
      vocabulary: config.vocab_size,
    };
    const memory = reading.source.length ? forward.states(newRun(edit, false), "encoder", reading.source) : null;
    const steps = new Steps(forward, reading, edit, memory);
    if (search.kind !== "beam") return { written: write(steps, reading.prompt, allowed, search, force), columns: null };
    refuse(force.length, "a forced token goes with greedy search or sampling, not with a beam");
    refuse(
      !(search.beam_size >= 1 && search.beam_size <= 16),
      `search.beam_size must be from 1 to 16, not ${search.beam_size}`,
    );
    return beamSearch(
      steps,
      reading.prompt,
      allowed,
      search.beam_size,
      search.length_penalty ?? settings.length_penalty,
    );
  }

  async pass(request) {
    const started = performance.now(),
      text = request.text.toWellFormed?.() ?? request.text;
    const { write: writes = true, look = "writing", keep = true } = request;
    refuse(text.length > MOST_LETTERS, `the text has ${text.length} letters; at most ${MOST_LETTERS} are read`);
    const given = request.answer ?? request.target ?? null,
      own = this.carried.model.checkpoint;
    refuse(request.checkpoint && request.checkpoint !== own, `this file carries ${own} only`);
    refuse(given === null && !(writes && look === "writing"), "there is nothing to read: write, or give an answer");
    const reading = this.reading(text),
      edit = this.edit(request.edits ?? {}),
      encoderOnly = reading.places !== undefined;
    const made = writes && !encoderOnly ? this.written(reading, edit, request) : { written: null, columns: null };
    let scored;
    if (request.answer) scored = this.withAnswer(reading, request.answer);
    else if (request.target != null) scored = this.givenAnswer(reading, request.target);
    else if (made.written) scored = this.withAnswer(reading, made.written.ids);
    else {
      const open = { ...reading, answer: [], read: [], rows: reading.places };
      const guesses = reading.places.length
        ? this.traced(open, edit, false).logProbs.map(row => likeliest(row)[0][0])
        : [];
      scored = this.withAnswer(reading, guesses);
    }
    const { logProbs, run } = this.traced(scored, edit);
    let looked = scored,
      seen = run;
    if (look === "writing" && made.written && made.written.ids.join() !== scored.answer.join()) {
      looked = this.withAnswer(reading, made.written.ids);
      seen = this.traced(looked, edit).run;
    }
    return {
      id: keep ? this.keep({ reading: looked, edit, taken: seen.taken }) : null,
      kind: this.config.kind,
      checkpoint: own,
      text,
      cut: reading.cut,
      look: made.written ? look : "scoring",
      source: this.tokens(reading.source),
      read: this.tokens(looked.read),
      predicted: looked.read.length ? this.tokens([...looked.read.slice(1), ...looked.answer.slice(-1)]) : [],
      prompt: reading.prompt.length,
      rows: looked.rows,
      answer: this.tokens(looked.answer, true),
      writing: made.written && this.writing(made.written),
      scoring: this.scoring(scored, logProbs),
      beam: made.columns && this.tree(made.columns),
      pieces: this.tokenizer.pieces(text),
      attentions: places(this.config).map(({ at, path }) => ({
        at,
        path,
        entropy: entropies(seen.taken.get(`${path}.weights`)),
      })),
      tensors: keep ? [...seen.taken.values()].map(described) : [],
      cache: this.cacheBytes(looked),
      milliseconds: performance.now() - started,
    };
  }

  keep(made) {
    const id = `here-${++this.count}`;
    this.passes.set(id, made);
    while (this.passes.size > KEPT) this.passes.delete(this.passes.keys().next().value);
    return id;
  }

  kept(id) {
    const found = this.passes.get(id);
    refuse(!found, "that pass is no longer kept: read the text again");
    this.passes.delete(id);
    this.passes.set(id, found);
    return found;
  }

  // ---- what is told of it ------------------------------------------------------------------------------------------

  get labels() {
    return this.config.kind === "encoder" && this.config.head.classes > 0;
  }
  tokens(ids, said = false) {
    return ids.map(id => (said && this.labels ? { id, text: String(id) } : this.tokenizer.token(id)));
  }
  top(step) {
    return step.map(([id, p]) => ({ ...this.tokens([id], true)[0], p }));
  }
  said(ids) {
    if (this.labels) return ids.join(" ");
    return this.tokenizer.decode(ids.at(-1) === this.settings.end ? ids.slice(0, -1) : ids);
  }

  writing({ ids, logProbs, top, finished, forced }) {
    return {
      ids,
      tokens: this.tokens(ids),
      text: this.said(ids),
      log_probs: logProbs,
      log_prob: sum(logProbs),
      finished,
      forced,
      top: top.map(step => this.top(step)),
    };
  }

  scoring(scored, logProbs) {
    if (!scored.answer.length) return null;
    const picked = scored.answer.map((id, step) => logProbs[step][id]);
    return {
      ids: scored.answer,
      tokens: this.tokens(scored.answer, true),
      text: this.said(scored.answer),
      log_probs: picked,
      log_prob: sum(picked),
      top: logProbs.map(row => this.top(likeliest(row))),
    };
  }

  tree(columns) {
    return {
      columns: columns.map(column =>
        column.map(({ token, logProb, total, parent, kept, finished, score }) => ({
          ...this.tokenizer.token(token),
          log_prob: logProb,
          total,
          parent,
          kept,
          finished,
          score,
        })),
      ),
      hypotheses: hypotheses(columns).map(({ ids, logProb, score }) => ({
        ids,
        text: this.said(ids),
        log_prob: logProb,
        score,
      })),
    };
  }

  cacheBytes(reading) {
    const { config } = this;
    if (config.kind === "encoder") return null;
    const token = 2 * config.decoder_layers * (config.kv_heads ?? config.heads) * (config.d_model / config.heads) * 4;
    const own = reading.answer.map((_, step) => token * (reading.prompt.length + step));
    return { token, self: own, cross: config.kind === "encoder-decoder" ? token * reading.source.length : 0 };
  }

  async worth(id) {
    return worthOf(this, id);
  }
  async guesses(id) {
    return guessesOf(this, id);
  }

  async tensors(id, wanted) {
    const { taken } = this.kept(id);
    return wanted.map(({ name, index = [], pool = null }) => {
      const whole = name.startsWith("model:") ? this.weights.get(name.slice(6)) : taken.get(name);
      refuse(!whole, `the pass has no tensor '${name}'`);
      refuse(
        index.length > whole.shape.length || index.some((i, at) => !(i >= 0 && i < whole.shape[at])),
        `${name} has the shape (${whole.shape}): there is no [${index}] in it`,
      );
      let shape = whole.shape.slice(index.length),
        from = 0;
      index.forEach((i, at) => {
        from += i * whole.shape.slice(at + 1).reduce((a, b) => a * b, 1);
      });
      let data = whole.data.subarray(from, from + shape.reduce((a, b) => a * b, 1));
      if (pool !== null && shape.length >= 2) ({ shape, data } = pooled(shape, data, pool));
      const letters = name.startsWith("model:") ? "" : whole.letters.split(" ").slice(index.length).join(" ");
      return { name, letters, shape, index, dtype: data instanceof Uint8Array ? "uint8" : "float32", data };
    });
  }
}
