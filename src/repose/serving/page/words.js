/** The words of a translation, their sources, and the model's confidence. Offsets count code points. */

const UNSURE = Math.log(0.5);
const VERY_UNSURE = Math.log(0.2);
const SHADES = [0.04, 0.12, 0.3, 0.55];

/** The CSS class for a share of attention; none below 4 %. */
export function shadeOf(share) {
  const level = SHADES.filter((least) => share >= least).length;
  return level ? `shade-${level}` : "";
}

export function percent(share) {
  return `${Math.round(100 * share)}\u00a0%`;
}

/** Group tokens into words: [{start, end, tokens: [indices]}], without special tokens and tokens without letters. */
function wordsOf(tokens) {
  const words = [];
  tokens.forEach((token, place) => {
    if (token.end <= token.start) return;
    const last = words.at(-1);
    if (last && token.continues && last.end === token.start) {
      last.end = token.end;
      last.tokens.push(place);
    } else {
      words.push({ start: token.start, end: token.end, tokens: [place] });
    }
  });
  return words;
}

/** The words of an answer of /explain, in order, each with its sources `from`: [{start, end, share}]. */
export function explainedWords(sentences) {
  return sentences.flatMap(({ source, target, weights }) => {
    const sources = wordsOf(source.tokens);
    return wordsOf(target.tokens).map((word) => {
      const rows = word.tokens.map((place) => weights[place]).filter(Boolean);
      const shares = sources.map(({ tokens }) =>
        rows.reduce((sum, row) => sum + tokens.reduce((all, place) => all + (row[place] ?? 0), 0), 0),
      );
      const total = shares.reduce((sum, share) => sum + share, 0) || 1;
      const from = sources.map(({ start, end }, place) => ({ start, end, share: shares[place] / total }));
      const known = word.tokens.map((place) => target.tokens[place].logProbability).filter((p) => typeof p === "number");
      const logProbability = known.length ? known.reduce((sum, p) => sum + p, 0) : 0;
      return { start: word.start, end: word.end, from, logProbability };
    });
  });
}

/** Fill an element with text whose words react to hovering, tapping and the arrow keys. */
export class Translation {
  constructor(element, onWord) {
    this.element = element;
    this.onWord = onWord;
    this.words = [];
    this.pieces = [];
    element.addEventListener("mouseover", (event) => this.#look(event.target));
    element.addEventListener("mouseleave", () => this.#look(document.activeElement));
    element.addEventListener("focusin", (event) => this.#look(event.target));
    element.addEventListener("focusout", () => this.#show(-1));
    element.addEventListener("click", (event) => event.target.closest?.(".piece")?.focus());
    element.addEventListener("keydown", (event) => this.#walk(event));
  }

  show(text, words = []) {
    const letters = Array.from(text);
    const nodes = [];
    let place = 0;
    this.words = words;
    this.pieces = words.map((word, number) => {
      nodes.push(letters.slice(place, word.start).join(""));
      const piece = document.createElement("span");
      piece.className = "piece";
      piece.textContent = letters.slice(word.start, word.end).join("");
      piece.tabIndex = number === 0 ? 0 : -1;
      piece.setAttribute("role", "button");
      piece.setAttribute("aria-describedby", "word");
      if (word.logProbability < VERY_UNSURE) piece.classList.add("very-unsure");
      else if (word.logProbability < UNSURE) piece.classList.add("unsure");
      nodes.push(piece);
      place = word.end;
      return piece;
    });
    nodes.push(letters.slice(place).join(""));
    this.element.replaceChildren(...nodes);
    this.onWord(null, "");
  }

  get unsure() {
    return this.words.some(({ logProbability }) => logProbability < UNSURE);
  }

  #look(element) {
    this.#show(this.pieces.indexOf(element?.closest?.(".piece") ?? null));
  }

  #show(number) {
    this.pieces.forEach((piece, place) => piece.classList.toggle("chosen", place === number));
    if (number < 0) this.onWord(null, "");
    else this.onWord(this.words[number], this.pieces[number].textContent);
  }

  #walk(event) {
    const here = this.pieces.indexOf(document.activeElement);
    if (here < 0) return;
    const steps = { ArrowRight: here + 1, ArrowLeft: here - 1, Home: 0, End: this.pieces.length - 1 };
    const next = this.pieces[steps[event.key] ?? -1];
    if (!next) return;
    event.preventDefault();
    this.pieces[here].tabIndex = -1;
    next.tabIndex = 0;
    next.focus();
  }
}

/** Shade source words behind the typed text. */
export function shade(element, text, word) {
  const letters = Array.from(text);
  const nodes = [];
  let place = 0;
  for (const { start, end, share } of word ? word.from : []) {
    nodes.push(letters.slice(place, start).join(""));
    const span = document.createElement("span");
    span.className = shadeOf(share);
    span.textContent = letters.slice(start, end).join("");
    nodes.push(span);
    place = end;
  }
  nodes.push(letters.slice(place).join(""), "\n");
  element.replaceChildren(...nodes);
}

/** Isolate a word of either writing direction within an English sentence (Unicode isolates). */
function quoted(word) {
  return `“\u2068${word}\u2069”`;
}

/** Describe where a word came from and how probable it was. */
export function told(word, written, text) {
  if (!word) return "";
  const letters = Array.from(text);
  const most = word.from.filter(({ share }) => share >= SHADES[1]).sort((a, b) => b.share - a.share);
  const sources = most.slice(0, 3).map(({ start, end, share }) => `${quoted(letters.slice(start, end).join(""))} (${percent(share)})`);
  const from = sources.length ? `from ${sources.join(", ")}` : "from no word in particular";
  return `${quoted(written)} ${from}; probability ${percent(Math.exp(word.logProbability))}`;
}
