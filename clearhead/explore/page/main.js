import { openSource } from "./source.js";

const app = document.getElementById("app"), shown = document.createElement("pre");
app.append(shown);
const source = await openSource();
const model = await source.model();
const made = await source.pass({ text: model.examples[0] });
shown.textContent = `${made.text} → ${made.writing ? made.writing.text : made.scoring.text}`;
