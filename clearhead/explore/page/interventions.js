// Interventions in the page: edits of a pass, by the names of the trace. The same as clearhead/explore/interventions.py.
import { Refusal } from "./server.js";

const ones = tensor => ({ ...tensor, data: tensor.data.fill(1) });
const zeros = tensor => ({ ...tensor, data: tensor.data.fill(0) });

/** Every attention of a model, in the order of a pass: { at, path, stack, kind }. */
export function places(config) {
  const found = [];
  const add = (stack, layer, kind) =>
    found.push({
      at: `${stack}.${layer + 1}.${kind}`,
      path: `${stack}.layers.${layer}.${kind}_attention`,
      stack,
      kind,
    });
  for (let layer = 0; layer < config.encoder_layers; layer++) add("encoder", layer, "self");
  for (let layer = 0; layer < config.decoder_layers; layer++) {
    add("decoder", layer, "self");
    if (config.kind === "encoder-decoder") add("decoder", layer, "cross");
  }
  return found;
}

/** "decoder.2.cross.3" as { path, head }, head from 0. */
export function findHead(config, name) {
  const at = name.slice(0, name.lastIndexOf(".")),
    head = Number(name.slice(name.lastIndexOf(".") + 1)) - 1;
  const place = places(config).find(one => one.at === at);
  if (!place || !(Number.isInteger(head) && head >= 0 && head < config.heads))
    throw new Refusal(`no head '${name}' in this model`, 400);
  return { path: place.path, head };
}

/** All at once; two edits of one tensor follow each other. */
export function combine(...edits) {
  const result = {};
  for (const edit of edits)
    for (const [name, change] of Object.entries(edit)) {
      const first = result[name];
      result[name] = first ? tensor => change(first(tensor)) : change;
    }
  return result;
}

export function silence({ path, head }) {
  return {
    [`${path}.context`]: context => {
      const size = context.shape[2] * context.shape[3];
      context.data.fill(0, head * size, (head + 1) * size);
      return context;
    },
  };
}

export function even({ path, head }) {
  return {
    [`${path}.weights`]: weights => {
      const [, , rows, keys] = weights.shape;
      for (let s = 0; s < rows; s++) {
        const from = (head * rows + s) * keys,
          row = weights.data.subarray(from, from + keys);
        const seen = row.reduce((count, value) => count + (value > 0 ? 1 : 0), 0);
        row.forEach((value, t) => {
          row[t] = value > 0 ? 1 / seen : 0;
        });
      }
      return weights;
    },
  };
}

/** The layer's sub-layers add nothing. */
export function withoutLayer(config, stack, layer) {
  const crossing = stack === "decoder" && config.kind === "encoder-decoder";
  const parts = ["self_attention", ...(crossing ? ["cross_attention"] : []), "feed_forward"];
  return Object.fromEntries(parts.map(part => [`${stack}.layers.${layer}.${part}.output`, zeros]));
}

const masked = config => places(config).filter(place => place.stack === "decoder" && place.kind === "self");
const stacks = config =>
  [
    ["encoder", config.encoder_layers],
    ["decoder", config.decoder_layers],
  ].filter(([, layers]) => layers > 0);

function noScale(config) {
  return combine(
    ...places(config).map(({ path }) => {
      const kept = {};
      const keep = name => tensor => {
        kept[name] = tensor;
        return tensor;
      };
      const change = scores => {
        const { q, k } = kept,
          [, heads, rows, size] = q.shape,
          [, shared, keys] = k.shape,
          by = 1 - 1 / Math.sqrt(size);
        for (let h = 0; h < heads; h++) {
          const g = Math.floor((h * shared) / heads);
          for (let s = 0; s < rows; s++)
            for (let t = 0; t < keys; t++) {
              let sum = 0;
              for (let i = 0; i < size; i++)
                sum += q.data[(h * rows + s) * size + i] * k.data[(g * keys + t) * size + i];
              scores.data[(h * rows + s) * keys + t] += sum * by;
            }
        }
        return scores;
      };
      return { [`${path}.q`]: keep("q"), [`${path}.k`]: keep("k"), [`${path}.scores`]: change };
    }),
  );
}

function lateMask(config) {
  return combine(
    ...masked(config).map(({ path }) => {
      let kept;
      const lift = mask => {
        kept = mask.data.slice();
        return ones(mask);
      };
      const apply = weights => {
        weights.data.forEach((value, i) => {
          weights.data[i] = value * kept[i % kept.length];
        });
        return weights;
      };
      return { [`${path}.mask`]: lift, [`${path}.weights`]: apply };
    }),
  );
}

function noPositions(config) {
  const kind = config.positions.kind;
  if (kind === "sinusoidal" || kind === "learned") return { "embedding.positions": zeros };
  const of = (name, change) => stacks(config).map(([stack]) => [`${stack}.attention_inputs.${name}`, change]);
  if (kind === "alibi") return Object.fromEntries(of("bias", zeros));
  if (kind === "rope") return Object.fromEntries([...of("cos", ones), ...of("sin", zeros)]);
  return {};
}

function oneHead(config) {
  const change = context => {
    context.data.fill(0, context.shape[2] * context.shape[3]);
    return context;
  };
  return Object.fromEntries(places(config).map(({ path }) => [`${path}.context`, change]));
}

function noNorm(config) {
  let stream; // what a norm gets is what was last put on the residual stream
  const keep = tensor => {
      stream = tensor;
      return tensor;
    },
    giveBack = () => ({ shape: stream.shape, data: stream.data.slice() });
  const edit = { "embedding.embedding": keep };
  for (const [stack, layers] of stacks(config))
    for (let layer = 0; layer < layers; layer++) {
      const crossing = stack === "decoder" && config.kind === "encoder-decoder";
      for (const part of ["self_attention", ...(crossing ? ["cross_attention"] : []), "feed_forward"]) {
        edit[`${stack}.layers.${layer}.${part}_residual.norm.norm`] = giveBack;
        edit[`${stack}.layers.${layer}.${part}_residual.residual`] = keep;
      }
    }
  return edit;
}

const SWITCHES = {
  norm: noNorm,
  sqrtD: config =>
    config.embedding.scaled
      ? { "embedding.tokens": rows => ({ ...rows, data: rows.data.map(value => value / Math.sqrt(config.d_model)) }) }
      : {},
  positions: noPositions,
  scale: noScale,
  mask: config => Object.fromEntries(masked(config).map(({ path }) => [`${path}.mask`, ones])),
  late: lateMask,
  onehead: oneHead,
  ff: config =>
    Object.fromEntries(
      stacks(config).flatMap(([stack, layers]) =>
        Array.from({ length: layers }, (_, layer) => [`${stack}.layers.${layer}.feed_forward.output`, zeros]),
      ),
    ),
};

/** The edits of these switches. */
export function switched(config, names) {
  for (const name of names)
    if (!(name in SWITCHES) || !Object.keys(SWITCHES[name](config)).length)
      throw new Refusal(`no switch '${name}' for this model`, 400);
  return combine(
    ...Object.keys(SWITCHES)
      .filter(name => names.includes(name))
      .map(name => SWITCHES[name](config)),
  );
}
