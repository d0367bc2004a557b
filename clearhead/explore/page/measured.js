// What is worked out about a pass that the page itself has made: worth of heads and layers, early guesses, statistics.
// The same as clearhead/explore/worth.py, early_guesses.py and describe.py.
import { newRun } from "./forward.js";
import { combine, places, silence, withoutLayer } from "./interventions.js";
import { likeliest, logSoftmax } from "./search.js";
import { Refusal } from "./server.js";

const sum = numbers => numbers.reduce((a, b) => a + b, 0);

/** What the answer of a pass loses without each head and each layer. */
export function worthOf(session, id) {
  const { reading, edit } = session.kept(id),
    { config } = session;
  if (!reading.answer.length)
    throw new Refusal("there is no answer to score: this model's head gives vectors, neither right nor wrong", 400);
  const crossing = config.kind === "encoder-decoder";
  const memory = crossing ? session.forward.states(newRun(edit, false), "encoder", reading.source) : null;
  const score = (change, decoderOnly) => {
    const { logProbs } = session.traced(reading, combine(edit, change), false, decoderOnly ? memory : null);
    return reading.answer.map((token, step) => logProbs[step][token]);
  };
  const before = score({}, true),
    heads = [],
    layers = [];
  const lost = (at, after) => {
    const by_token = before.map((value, i) => value - after[i]);
    return { at, worth: sum(by_token), by_token };
  };
  for (const { at, path, stack } of places(config))
    for (let head = 0; head < config.heads; head++)
      heads.push(lost(`${at}.${head + 1}`, score(silence({ path, head }), stack === "decoder")));
  for (const [stack, count] of [
    ["encoder", config.encoder_layers],
    ["decoder", config.decoder_layers],
  ])
    for (let layer = 0; layer < count; layer++)
      layers.push(lost(`${stack}.${layer + 1}`, score(withoutLayer(config, stack, layer), stack === "decoder")));
  return { log_probs: before, heads, layers };
}

/** The residual stream read early: the last norm and the output matrix after each sub-layer. */
export function guessesOf(session, id) {
  const { reading, taken } = session.kept(id),
    { config, forward } = session;
  if (!reading.answer.length) return { states: [] };
  const stack = config.kind === "encoder" ? "encoder" : "decoder",
    crossing = config.kind === "encoder-decoder";
  const layers = stack === "encoder" ? config.encoder_layers : config.decoder_layers,
    last = config.norm.placement === "post" ? "norm.norm" : "residual";
  const states = [["embedding", crossing ? "embedding.embedding#2" : "embedding.embedding"]];
  for (let layer = 0; layer < layers; layer++)
    for (const [short, part] of [
      ["self", "self_attention"],
      ...(crossing ? [["cross", "cross_attention"]] : []),
      ["ff", "feed_forward"],
    ])
      states.push([`${stack}.${layer + 1}.${short}`, `${stack}.layers.${layer}.${part}_residual.${last}`]);
  return {
    states: states.map(([at, tensor]) => {
      const run = newRun({}, false),
        state = taken.get(tensor);
      const made = forward.head(run, config.norm.final ? forward.norm(run, `${stack}.norm`, state) : state),
        width = made.shape[2];
      return {
        at,
        tensor,
        guesses: reading.answer.map((answer, step) => {
          const row = made.shape[1] === 1 ? 0 : reading.rows[step],
            logProbs = logSoftmax(made.data.subarray(row * width, (row + 1) * width));
          const [best, p] = likeliest(logProbs)[0];
          return { ...session.tokens([best], true)[0], p, right: Math.exp(logProbs[answer]) };
        }),
      };
    }),
  };
}

/** The last two dimensions shrunk to at most `most` each, by the maximum of each block. */
export function pooled(shape, data, most) {
  const [rows, columns] = shape.slice(-2),
    high = Math.ceil(rows / most),
    wide = Math.ceil(columns / most);
  if (high === 1 && wide === 1) return { shape, data };
  const down = Math.ceil(rows / high),
    across = Math.ceil(columns / wide),
    count = data.length / (rows * columns);
  const made = new Float32Array(count * down * across).fill(-Infinity);
  for (let n = 0; n < count; n++)
    for (let r = 0; r < rows; r++)
      for (let c = 0; c < columns; c++) {
        const at = (n * down + Math.floor(r / high)) * across + Math.floor(c / wide);
        made[at] = Math.max(made[at], data[(n * rows + r) * columns + c]);
      }
  return { shape: [...shape.slice(0, -2), down, across], data: made };
}

/** Bits of each head, averaged over its rows. */
export function entropies({ shape: [, heads, rows, keys], data }) {
  return Array.from({ length: heads }, (_, h) => {
    let bits = 0;
    for (let i = h * rows * keys; i < (h + 1) * rows * keys; i++) if (data[i] > 0) bits -= data[i] * Math.log2(data[i]);
    return bits / rows;
  });
}

/** One line of the table of tensors. */
export function described({ name, letters, shape, data }) {
  let min = Infinity,
    max = -Infinity,
    total = 0;
  for (const value of data) {
    min = Math.min(min, value);
    max = Math.max(max, value);
    total += value;
  }
  return {
    name,
    letters,
    shape,
    dtype: data instanceof Uint8Array ? "bool" : "float32",
    min,
    mean: total / data.length,
    max,
  };
}
