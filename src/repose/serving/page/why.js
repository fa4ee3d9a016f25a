/** The attention of every head: small pictures to choose from, and the chosen head as a table. */

import { percent, shadeOf } from "./words.js";

const SVG = "http://www.w3.org/2000/svg";
const SHOWN = 0.05;

function mean(rows) {
  return rows[0].map((row, t) => row.map((_, s) => rows.reduce((sum, head) => sum + head[t][s], 0) / rows.length));
}

function picture(weights) {
  const svg = document.createElementNS(SVG, "svg");
  const [height, width] = [weights.length, weights[0]?.length ?? 0];
  svg.setAttribute("viewBox", `0 0 ${width || 1} ${height || 1}`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.setAttribute("aria-hidden", "true");
  weights.forEach((row, y) =>
    row.forEach((share, x) => {
      if (share < SHOWN) return;
      const cell = document.createElementNS(SVG, "rect");
      for (const [name, value] of Object.entries({ x, y, width: 1, height: 1 })) cell.setAttribute(name, value);
      cell.setAttribute("fill-opacity", Math.min(1, 0.1 + share).toFixed(2));
      svg.append(cell);
    }),
  );
  return svg;
}

function header(text, scope) {
  const cell = document.createElement("th");
  cell.scope = scope;
  cell.textContent = text;
  return cell;
}

function table(title, weights, source, target) {
  const made = document.createElement("table");
  made.createCaption().textContent = title;
  const head = made.createTHead().insertRow();
  head.append(document.createElement("td"), ...source.map((token) => header(token, "col")));
  head.firstChild.className = "corner";
  const body = made.createTBody();
  weights.forEach((row, place) => {
    const line = body.insertRow();
    line.append(header(target[place] ?? "", "row"));
    row.forEach((share, from) => {
      const cell = line.insertCell();
      cell.className = shadeOf(share);
      cell.textContent = share >= SHOWN ? String(Math.round(100 * share)) : "";
      cell.title = `${target[place]} ← ${source[from]}: ${percent(share)}`;
    });
  });
  return made;
}

function label({ text, continues }) {
  return continues ? `·${text}` : text;
}

export class Why {
  constructor({ heads, map, sentence }) {
    Object.assign(this, { heads, map, sentence });
    sentence.addEventListener("change", () => this.#sentence(Number(sentence.value)));
  }

  show(sentences) {
    this.sentences = sentences.filter(({ attention }) => attention?.length);
    const options = this.sentences.map(({ source }, place) => new Option(source.text, place));
    this.sentence.replaceChildren(...options);
    this.sentence.parentElement.hidden = options.length < 2;
    if (options.length) this.#sentence(0);
    else this.clear("There is nothing to look at.");
  }

  /** Show a message instead of the pictures. */
  clear(text) {
    this.sentences = [];
    this.sentence.parentElement.hidden = true;
    this.heads.replaceChildren();
    this.map.textContent = text;
  }

  #sentence(place) {
    const { source, target, attention } = this.sentences[place];
    const labels = [source.tokens.map(label), target.tokens.map(label)];
    const choices = attention.map((layer, number) => {
      const row = document.createElement("div");
      row.className = "layer";
      const title = document.createElement("span");
      title.textContent = `Layer ${number + 1}`;
      const all = [["mean", mean(layer)], ...layer.map((head, h) => [`head ${h + 1}`, head])];
      row.append(title, ...all.map(([name, weights]) => this.#choice(`Layer ${number + 1}, ${name}`, weights, labels)));
      return row;
    });
    this.heads.replaceChildren(...choices);
    choices.at(-1).querySelector("button").click();
  }

  #choice(title, weights, [source, target]) {
    const button = document.createElement("button");
    button.type = "button";
    button.title = title;
    button.setAttribute("aria-label", title);
    button.setAttribute("aria-pressed", "false");
    const name = document.createElement("span");
    name.textContent = title.split(", ")[1];
    button.append(picture(weights), name);
    button.addEventListener("click", () => {
      for (const other of this.heads.querySelectorAll("button")) other.setAttribute("aria-pressed", String(other === button));
      this.map.replaceChildren(table(title, weights, source, target));
    });
    return button;
  }
}
