// The Transformer's forward pass in plain JavaScript, for pages that carry their weights: the order of operations of
// clearhead/model/, the names of its traces, one text at a time, in float32. A test holds every tensor to Python's.
import { ACTIVATIONS, alibiSlopes, linear, softmaxRows, tensorOf } from "./arithmetic.js";

/** What a pass needs to know on its way: `edit` maps names to functions, `taken` (a Map, or null) records. */
export function newRun(edit = {}, record = true) {
  return { edit, taken: record ? new Map() : null };
}

/** Give a tensor its name; the pass goes on with what this returns. An edit gets a copy. */
export function tap(run, name, tensor, letters) {
  const change = run.edit[name];
  if (change) tensor = change({ shape: tensor.shape, data: tensor.data.slice() });
  if (run.taken) {
    let unique = name;
    for (let n = 2; run.taken.has(unique); n++) unique = `${name}#${n}`; // a module that runs twice keeps both
    run.taken.set(unique, { name: unique, letters, shape: tensor.shape, data: tensor.data });
  }
  return tensor;
}

export class Forward {
  constructor(config, weights) {
    this.config = config;
    this.weights = weights; // name -> { shape, data }
    this.width = config.d_model;
    this.heads = config.heads;
    this.shared = config.kv_heads ?? config.heads;
    this.size = config.d_model / config.heads;
  }

  weight(name) {
    return this.weights.get(name);
  }

  // ---- positions and masks: what the attentions of a stack need besides x ----------------------------------------

  /** `before`: how many tokens a cache holds already. */
  inputs(run, stack, count, before = 0) {
    const { positions, window } = this.config,
      keys = before + count,
      causal = stack === "decoder";
    const result = { mask: null, bias: null, cos: null, sin: null, before };
    const windowed = window != null && window < keys;
    if (causal || windowed) {
      const data = new Uint8Array(count * keys);
      for (let s = 0; s < count; s++)
        for (let t = 0; t < keys; t++) {
          const at = before + s,
            near = !windowed || Math.abs(at - t) < window;
          data[s * keys + t] = (!causal || t <= at) && near ? 1 : 0;
        }
      result.mask = {
        shape: windowed ? [1, 1, count, keys] : [count, keys],
        data,
        letters: windowed ? "B H S T" : "S T",
      };
    }
    if (positions.kind === "alibi") {
      const bias = tensorOf([1, this.heads, count, keys]),
        slopes = alibiSlopes(this.heads);
      let i = 0;
      for (const slope of slopes)
        for (let s = 0; s < count; s++)
          for (let t = 0; t < keys; t++) bias.data[i++] = -slope * Math.abs(before + s - t);
      result.bias = tap(run, `${stack}.attention_inputs.bias`, bias, "B H S T");
    } else if (positions.kind === "rope") {
      const half = this.size / 2,
        cos = tensorOf([1, 1, count, half]),
        sin = tensorOf([1, 1, count, half]);
      for (let s = 0; s < count; s++)
        for (let i = 0; i < half; i++) {
          const angle = (before + s) * positions.base ** -((2 * i) / this.size);
          cos.data[s * half + i] = Math.cos(angle);
          sin.data[s * half + i] = Math.sin(angle);
        }
      result.cos = tap(run, `${stack}.attention_inputs.cos`, cos, "B H S d/2");
      result.sin = tap(run, `${stack}.attention_inputs.sin`, sin, "B H S d/2");
    }
    return result;
  }

  /** What is added to the embedding, (1, S, D); null where positions enter otherwise. */
  addedPositions(count, before) {
    const { positions } = this.config,
      width = this.width;
    if (positions.kind !== "sinusoidal" && positions.kind !== "learned") return null;
    const made = tensorOf([1, count, width]);
    for (let s = 0; s < count; s++) {
      if (positions.kind === "learned") {
        const rows = this.weight("embedding.positions.weight");
        made.data.set(rows.data.subarray((before + s) * width, (before + s + 1) * width), s * width);
        continue;
      }
      for (let i = 0; i < width / 2; i++) {
        const angle = (before + s) * positions.base ** -((2 * i) / width),
          split = positions.layout === "split";
        made.data[s * width + (split ? i : 2 * i)] = Math.sin(angle);
        made.data[s * width + (split ? i + width / 2 : 2 * i + 1)] = Math.cos(angle);
      }
    }
    return made;
  }

  // ---- the pass --------------------------------------------------------------------------------------------------

  embed(run, ids, before) {
    const width = this.width,
      table = this.weight("embedding.weight"),
      rows = tensorOf([1, ids.length, width]);
    ids.forEach((id, s) => rows.data.set(table.data.subarray(id * width, (id + 1) * width), s * width));
    const tokens = tap(run, "embedding.tokens", rows, "B S D"),
      scale = this.config.embedding.scaled ? Math.sqrt(width) : 1;
    let x = tensorOf(
      [1, ids.length, width],
      tokens.data.map(value => value * scale),
    );
    const places = this.addedPositions(ids.length, before);
    if (places) {
      const added = tap(run, "embedding.positions", places, "B S D");
      x = tensorOf(
        x.shape,
        x.data.map((value, i) => value + added.data[i]),
      );
    }
    const segments = this.weight("embedding.segments");
    if (segments)
      x = tensorOf(
        x.shape,
        x.data.map((value, i) => value + segments.data[i % width]),
      );
    if (this.config.embedding.norm) x = this.norm(run, "embedding.norm", x);
    return tap(run, "embedding.embedding", x, "B S D");
  }

  norm(run, path, x) {
    const { kind, epsilon } = this.config.norm,
      width = this.width,
      made = tensorOf(x.shape);
    const weight = this.weight(`${path}.weight`),
      bias = this.weight(`${path}.bias`);
    for (let from = 0; from < x.data.length; from += width) {
      let mean = 0,
        square = 0;
      if (kind === "layer") {
        for (let i = 0; i < width; i++) mean += x.data[from + i];
        mean /= width;
      }
      for (let i = 0; i < width; i++) square += (x.data[from + i] - mean) ** 2;
      const by = 1 / Math.sqrt(square / width + epsilon);
      for (let i = 0; i < width; i++)
        made.data[from + i] = (x.data[from + i] - mean) * by * weight.data[i] + (bias ? bias.data[i] : 0);
    }
    return tap(run, `${path}.norm`, made, "B S D");
  }

  /** (count, heads · d) -> (1, heads, count, d) */
  split(data, count, heads) {
    const size = this.size,
      made = tensorOf([1, heads, count, size]);
    for (let h = 0; h < heads; h++)
      for (let s = 0; s < count; s++)
        for (let i = 0; i < size; i++) made.data[(h * count + s) * size + i] = data[(s * heads + h) * size + i];
    return made;
  }

  /** Turn pairs of dimensions by the angle of their place. */
  rotate(x, cos, sin) {
    const [, heads, count, size] = x.shape,
      half = size / 2,
      made = tensorOf(x.shape);
    const split = this.config.positions.layout === "split";
    for (let h = 0; h < heads; h++)
      for (let s = 0; s < count; s++)
        for (let i = 0; i < half; i++) {
          const from = (h * count + s) * size,
            one = from + (split ? i : 2 * i),
            two = from + (split ? i + half : 2 * i + 1);
          const c = cos.data[s * half + i],
            n = sin.data[s * half + i];
          made.data[one] = x.data[one] * c - x.data[two] * n;
          made.data[two] = x.data[one] * n + x.data[two] * c;
        }
    return made;
  }

  attention(run, path, x, inputs, memory, cache) {
    const count = x.shape[1],
      { heads, shared, size } = this,
      project = (part, from) =>
        linear(from.data, from.shape[1], this.weight(`${path}.${part}.weight`), this.weight(`${path}.${part}.bias`));
    let q = this.split(project("query", x), count, heads),
      k,
      v;
    if (memory && cache && cache[path]) {
      ({ k, v } = cache[path]); // a memory does not change while decoding: projected once
    } else {
      const from = memory ?? x;
      k = this.split(project("key", from), from.shape[1], shared);
      v = this.split(project("value", from), from.shape[1], shared);
      if (inputs.cos) [q, k] = [this.rotate(q, inputs.cos, inputs.sin), this.rotate(k, inputs.cos, inputs.sin)];
      if (cache) {
        const kept = cache[path];
        cache[path] = kept ? { k: appended(kept.k, k), v: appended(kept.v, v) } : { k, v };
        ({ k, v } = cache[path]);
      }
    }
    q = tap(run, `${path}.q`, q, "B H S d");
    k = tap(run, `${path}.k`, k, "B G T d");
    v = tap(run, `${path}.v`, v, "B G T d");
    const keys = k.shape[2],
      by = 1 / Math.sqrt(size);
    let scores = tensorOf([1, heads, count, keys]);
    for (let h = 0; h < heads; h++) {
      const g = Math.floor((h * shared) / heads);
      for (let s = 0; s < count; s++)
        for (let t = 0; t < keys; t++) {
          const qAt = (h * count + s) * size,
            kAt = (g * keys + t) * size,
            at = (h * count + s) * keys + t;
          let sum = 0;
          for (let i = 0; i < size; i++) sum += q.data[qAt + i] * k.data[kAt + i];
          scores.data[at] = sum * by + (inputs.bias ? inputs.bias.data[at] : 0);
        }
    }
    scores = tap(run, `${path}.scores`, scores, "B H S T");
    let seen = scores.data;
    if (inputs.mask) {
      const mask = tap(run, `${path}.mask`, inputs.mask, inputs.mask.letters).data;
      seen = seen.map((value, i) => (mask[i % mask.length] ? value : -Infinity));
    }
    const weights = tap(run, `${path}.weights`, tensorOf(scores.shape, softmaxRows(seen, keys)), "B H S T");
    let context = tensorOf([1, heads, count, size]);
    for (let h = 0; h < heads; h++) {
      const g = Math.floor((h * shared) / heads);
      for (let s = 0; s < count; s++)
        for (let t = 0; t < keys; t++) {
          const share = weights.data[(h * count + s) * keys + t],
            from = (g * keys + t) * size,
            to = (h * count + s) * size;
          if (share !== 0) for (let i = 0; i < size; i++) context.data[to + i] += share * v.data[from + i];
        }
    }
    context = tap(run, `${path}.context`, context, "B H S d");
    const merged = new Float32Array(count * heads * size);
    for (let h = 0; h < heads; h++)
      for (let s = 0; s < count; s++)
        for (let i = 0; i < size; i++) merged[(s * heads + h) * size + i] = context.data[(h * count + s) * size + i];
    const out = linear(merged, count, this.weight(`${path}.out.weight`), this.weight(`${path}.out.bias`));
    return tap(run, `${path}.output`, tensorOf([1, count, this.width], out), "B S D");
  }

  feedForward(run, path, x) {
    const count = x.shape[1],
      act = ACTIVATIONS[this.config.activation],
      inner = part => linear(x.data, count, this.weight(`${path}.${part}.weight`), this.weight(`${path}.${part}.bias`));
    let made = inner("inner");
    if (this.weight(`${path}.gate.weight`)) {
      const gate = inner("gate");
      made = made.map((value, i) => act(gate[i]) * value);
    } else made = made.map(act);
    const hidden = tap(run, `${path}.hidden`, tensorOf([1, count, this.config.d_ff], made), "B S F");
    const out = linear(hidden.data, count, this.weight(`${path}.outer.weight`), this.weight(`${path}.outer.bias`));
    return tap(run, `${path}.output`, tensorOf(x.shape, out), "B S D");
  }

  /** x + sublayer(x), with a norm before or after. */
  residual(run, path, x, sublayer) {
    const pre = this.config.norm.placement === "pre",
      around = `${path}_residual`;
    const y = sublayer(pre ? this.norm(run, `${around}.norm`, x) : x);
    const sum = tap(
      run,
      `${around}.residual`,
      tensorOf(
        x.shape,
        x.data.map((value, i) => value + y.data[i]),
      ),
      "B S D",
    );
    return pre ? sum : this.norm(run, `${around}.norm`, sum);
  }

  stack(run, name, x, inputs, memory = null, cache = null) {
    const layers = name === "encoder" ? this.config.encoder_layers : this.config.decoder_layers;
    for (let layer = 0; layer < layers; layer++) {
      const path = `${name}.layers.${layer}`;
      x = this.residual(run, `${path}.self_attention`, x, y =>
        this.attention(run, `${path}.self_attention`, y, inputs, null, cache),
      );
      if (memory)
        x = this.residual(run, `${path}.cross_attention`, x, y =>
          this.attention(run, `${path}.cross_attention`, y, {}, memory, cache),
        );
      x = this.residual(run, `${path}.feed_forward`, x, y => this.feedForward(run, `${path}.feed_forward`, y));
    }
    return this.config.norm.final ? this.norm(run, `${name}.norm`, x) : x;
  }

  /** Token ids through one stack: the states (1, S, D) after it. With a cache, `ids` are only what is new. */
  states(run, name, ids, memory = null, cache = null) {
    const before = cache?.length ?? 0,
      inputs = this.inputs(run, name, ids.length, before);
    const hidden = this.stack(run, name, this.embed(run, ids, before), inputs, memory, cache);
    if (cache) cache.length = before + ids.length;
    return hidden;
  }

  /** What the head makes of states: { shape, data } of (1, S, V), (1, S, classes) or, pooled, (1, 1, classes). */
  head(run, hidden) {
    const { head, activation } = this.config,
      count = hidden.shape[1],
      width = this.width;
    if (head.kind === "tokens" || head.kind === "pooled") {
      let rows = hidden.data,
        number = count;
      if (head.kind === "pooled") {
        const first = linear(
          hidden.data.subarray(0, width),
          1,
          this.weight("output.transform.weight"),
          this.weight("output.transform.bias"),
        );
        rows = tap(run, "output.pooled", tensorOf([1, width], first.map(Math.tanh)), "B D").data;
        number = 1;
      }
      if (!head.classes) return tensorOf([1, number, width], rows);
      const made = linear(rows, number, this.weight("output.classify.weight"), this.weight("output.classify.bias"));
      return tensorOf([1, number, head.classes], made);
    }
    if (head.kind === "none") return hidden;
    let x = hidden;
    if (head.kind === "masked") {
      const act = ACTIVATIONS[activation === "swiglu" ? "gelu" : activation];
      const made = linear(x.data, count, this.weight("output.transform.weight"), this.weight("output.transform.bias"));
      x = this.norm(run, "output.norm", tensorOf(x.shape, made.map(act)));
    }
    const matrix = this.weight("output.weight") ?? this.weight("embedding.weight");
    const made = linear(x.data, count, matrix, this.weight("output.bias"));
    return tap(run, "output.logits", tensorOf([1, count, this.config.vocab_size], made), "B S V");
  }
}

/** (1, G, T, d) with more keys behind. */
function appended(old, more) {
  const [, heads, before, size] = old.shape,
    count = more.shape[2],
    made = tensorOf([1, heads, before + count, size]);
  for (let h = 0; h < heads; h++) {
    made.data.set(old.data.subarray(h * before * size, (h + 1) * before * size), h * (before + count) * size);
    made.data.set(more.data.subarray(h * count * size, (h + 1) * count * size), (h * (before + count) + before) * size);
  }
  return made;
}
