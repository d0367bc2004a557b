// A token that no font of this machine can draw shows its code point in place of a box that says nothing.

const SIZE = 24,
  MISSING = "\u{10fffe}"; // a code point that never gets a glyph: what it looks like is the box
const known = new Map();
let context = null,
  box = null;

function drawn(letter) {
  context ??= Object.assign(document.createElement("canvas"), { width: SIZE, height: SIZE }).getContext("2d", {
    willReadFrequently: true,
  });
  context.clearRect(0, 0, SIZE, SIZE);
  context.font = `${SIZE - 8}px monospace`;
  context.fillText(letter, 2, SIZE - 6);
  return context.getImageData(0, 0, SIZE, SIZE).data.join();
}

function hasGlyph(letter) {
  if (letter < "\u0250") return true; // Latin: every font
  if (!known.has(letter)) known.set(letter, drawn(letter) !== (box ??= drawn(MISSING)));
  return known.get(letter);
}

/** A text with each letter that cannot be drawn written as its code point. */
export const readable = text =>
  [...text]
    .map(letter =>
      hasGlyph(letter) ? letter : `U+${letter.codePointAt(0).toString(16).toUpperCase().padStart(4, "0")}`,
    )
    .join("");
