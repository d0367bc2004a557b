// Text to ids and back in the page: characters, integers, or byte pairs, as clearhead/tokenizer/ has them.
import { Refusal } from "./server.js";

const toBytes = text => Array.from(text, letter => letter.charCodeAt(0)); // how a token's bytes are carried: as Latin-1

export class Tokenizer {
  /** `carried`: { kind, special, names, bytes, …what its kind needs }. */
  constructor(carried) {
    Object.assign(this, carried);
    if (this.kind === "Characters")
      this.ids = new Map(this.characters.map((one, i) => [one, Object.keys(this.special).length + i]));
    if (this.kind === "BytePair") {
      this.ranks = new Map(this.merges.map(([left, right, made], rank) => [`${left},${right}`, [rank, made]]));
      this.splitter = new RegExp(this.pattern, "gu");
      this.whole = this.whole_words ? new Map(this.bytes.map((bytes, id) => [bytes, id])) : null;
    }
  }

  /** The ids of a text in which special tokens are nothing special. */
  encode(text) {
    if (this.kind === "Characters") return Array.from(text, letter => this.character(letter));
    if (this.kind === "Integers")
      return text
        .split(/\p{White_Space}+|[\x1c-\x1f]+/u)
        .filter(Boolean)
        .map(word => this.integer(word));
    return this.words(text).flatMap(word => this.mergeSteps(word).at(-1).ids);
  }

  character(letter) {
    const id = this.ids.get(letter) ?? this.special["<unk>"];
    if (id === undefined)
      throw new Refusal(`the character '${letter}' is not in the vocabulary, and there is no <unk>`, 400);
    return id;
  }

  integer(word) {
    const digits = /^[0-9]+$/.test(word) ? word.replace(/^0+/, "") || "0" : "";
    if (!digits || digits.length > 10 || Number(digits) >= this.count)
      throw new Refusal(
        `'${word.length <= 40 ? word : word.slice(0, 40) + "…"}' is not an integer from 0 to ${this.count - 1}`,
        400,
      );
    return Object.keys(this.special).length + Number(digits);
  }

  /** The words that a text is cut into before any merging; what the pattern passes over is a word of its own. */
  words(text) {
    const found = [];
    let end = 0;
    for (const match of text.matchAll(this.splitter)) {
      if (match.index > end) found.push(text.slice(end, match.index));
      if (match[0]) found.push(match[0]);
      end = match.index + match[0].length;
    }
    if (end < text.length) found.push(text.slice(end));
    return found;
  }

  /** The ids of a word's bytes, then after every merge, with its rank. */
  mergeSteps(word) {
    const bytes = [...new TextEncoder().encode(word)],
      raw = String.fromCharCode(...bytes);
    let ids = bytes.map(byte => this.alphabet[byte]);
    const steps = [{ rank: null, ids }];
    if (this.whole?.has(raw)) return [...steps, { rank: null, ids: [this.whole.get(raw)] }];
    for (;;) {
      let best = null;
      for (let i = 0; i + 1 < ids.length; i++) {
        const found = this.ranks.get(`${ids[i]},${ids[i + 1]}`);
        if (found && (!best || found[0] < best.rank)) best = { rank: found[0], made: found[1], at: i };
      }
      if (!best) return steps;
      ids = [...ids.slice(0, best.at), best.made, ...ids.slice(best.at + 2)];
      steps.push({ rank: best.rank, ids });
    }
  }

  /** The text of ids; bytes that are no UTF-8 become U+FFFD. */
  decode(ids) {
    const bytes = ids.flatMap((id, i) => [...(i && this.kind === "Integers" ? [32] : []), ...toBytes(this.bytes[id])]);
    return new TextDecoder("utf-8", { ignoreBOM: true }).decode(new Uint8Array(bytes));
  }

  /** As people can read it: { id, text }. */
  token(id) {
    return { id, text: this.names[id] };
  }

  /** Each word with its bytes and every merge as it happens; null where tokens are not merged bytes. */
  pieces(text) {
    if (this.kind !== "BytePair") return null;
    const shown = ids => ids.map(id => show(new Uint8Array(toBytes(this.bytes[id]))));
    return this.words(text)
      .slice(0, 64)
      .map(word => {
        const steps = this.mergeSteps(word),
          merges = steps.slice(1).filter(step => step.rank !== null);
        return {
          word: show(new TextEncoder().encode(word)),
          bytes: shown(steps[0].ids),
          merges: merges.map(step => ({ rank: step.rank, pieces: shown(step.ids) })),
          ids: steps.at(-1).ids,
        };
      });
  }
}

const SIGNS = { " ": "␣", "\n": "⏎", "\t": "⇥", "\r": "␍" };
const hex = number => `<${number.toString(16).toUpperCase().padStart(2, "0")}>`;

/** Bytes as people can read them: white space as signs, bytes that are no whole character as <E2>. */
function show(bytes) {
  let text;
  try {
    text = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(bytes);
  } catch {
    return [...bytes].map(byte => (byte > 0x7f ? hex(byte) : show(new Uint8Array([byte])))).join("");
  }
  return Array.from(
    text,
    letter => SIGNS[letter] ?? (/[\p{C}\p{Z}]/u.test(letter) ? hex(letter.codePointAt(0)) : letter),
  ).join("");
}
