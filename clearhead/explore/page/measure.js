// What heads are worth is measured by taking each away once: quick for a short text, asked for first for a long one.

const AUTOMATIC = { served: 96, here: 48 }; // tokens up to which it is measured without being asked

/** Measure what the heads are worth for a pass, if that is quick or was asked for, and draw again when it is known. */
export function measure(app, pass) {
  const { work, redraw } = app,
    tokens = Math.max(pass.source.length, pass.read.length);
  if (!pass.answer.length || work.known(pass, "worth")) return;
  const quick = tokens <= AUTOMATIC[work.source.served ? "served" : "here"] || !work.source.alive;
  if (quick || app.measure === pass.id) setTimeout(() => work.worth(pass).then(redraw, () => {}), 0);
}
