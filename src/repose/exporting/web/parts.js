// Split sentences that are too long for the model, and join their translations: repose.decoding.parts.

// Python's white space and code points differ from JavaScript's white space and UTF-16 units.
const SPACE = "[\\t-\\r\\x1c-\\x20\\x85\\xa0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000]";
const CLAUSE = new RegExp(
  `(?<=[;:,])(?![!-~])${SPACE}*|(?<=[،؛、，；：])${SPACE}*|(?<!${SPACE})${SPACE}+(?=[–—(])|(?<=[–—)])${SPACE}+`,
  "gu",
);
const WORD = new RegExp(`${SPACE}+`, "gu");
const MARK = /(?<=[;:,])/gu;
const EDGES = new RegExp(`^(${SPACE}*)(.*?)(${SPACE}*)$`, "su");
const LAST_IS_SPACE = new RegExp(`${SPACE}$`, "u");
// Characters with East_Asian_Width W or F, except Korean; browsers have no such property.
const WIDE = new RegExp(
  "(?![\\u{1f1e6}-\\u{1f1ff}])[\\p{Emoji_Presentation}\\u1100-\\u115f\\u2329\\u232a\\u2e80-\\u303e\\u3041-\\u3247" +
    "\\u3250-\\u4dbf\\u4e00-\\ua4c6\\ua960-\\ua97c\\uf900-\\ufad9\\ufe10-\\ufe19\\ufe30-\\ufe6b" +
    "\\uff01-\\uff60\\uffe0-\\uffe6\\u{16fe0}-\\u{1b2fb}\\u{1f200}-\\u{1f265}\\u{20000}-\\u{3fffd}]",
  "u",
);

const HAN = ["Han", "Hiragana", "Katakana", "Bopomofo"];
const ADDRESS = /^(?:(?:https?:\/\/|www\.)[!-~]+|[\p{L}\p{N}_.+-]+@[\p{L}\p{N}_-]+\.[\p{L}\p{N}_.-]+)$/iu;

/** Whether text is in a script without spaces between sentences: Chinese, Japanese. */
export const isWide = (character) => WIDE.test(character);

/** Sentences, of which browsers end some within an address: "https://example.com/?a=b". */
export function* whole(sentences) {
  let begun = "";
  for (const sentence of sentences) {
    if (begun && !LAST_IS_SPACE.test(begun) && !isParted(begun, sentence)) {
      begun += sentence;
      continue;
    }
    if (begun) yield begun;
    begun = sentence;
  }
  if (begun) yield begun;
}

/** Whether a sentence can end between two texts without white space: after "。" or "।", before "猫". */
const isParted = (before, after) => /[^\x00-\x7f]$/u.test(before) || isWide(Array.from(after)[0] ?? "");

/** Split a sentence in halves, recursively, until each piece fits. */
export function pieces(text, fits) {
  const place = fits(text) || ADDRESS.test(stripped(text).text) ? null : placeToSplit(text);
  return place === null ? [text] : [...pieces(text.slice(0, place), fits), ...pieces(text.slice(place), fits)];
}

/** Cut off what does not fit, for a part without a place to split it. */
export function beginning(text, fits) {
  if (fits(text)) return text;
  const letters = Array.from(text);
  const first = (number) => letters.slice(0, number).join("");
  let fitting = 0, tooLong = letters.length;
  while (tooLong - fitting > 1) {
    const middle = Math.floor((fitting + tooLong) / 2);
    if (fits(first(middle))) fitting = middle;
    else tooLong = middle;
  }
  return first(fitting);
}

/** Where to split: the clause end nearest to the middle; else a word end, or between two wide characters; at last, after
 * a mark inside a word or number ("1,000"). */
function placeToSplit(text) {
  const letters = Array.from(text), numbers = new Map(), num = letters.length;
  let unit = 0; // in UTF-16 units
  for (const [number, letter] of [...letters, ""].entries()) {
    numbers.set(unit, number);
    unit += letter.length;
  }
  const distance = (place) => Math.abs(numbers.get(place) - num / 2);
  const nearest = (places) => places.reduce((best, place) => (distance(place) < distance(best) ? place : best));
  for (const [pattern, edge] of [[CLAUSE, Math.max(1, Math.floor(num / 5))], [WORD, 1]]) {
    const ends = Array.from(text.matchAll(pattern), (found) => found.index + found[0].length);
    const places = ends.filter((end) => edge <= numbers.get(end) && numbers.get(end) <= num - edge);
    if (places.length > 0) return nearest(places);
  }
  const wide = letters.map(isWide);
  const between = [...numbers].filter(([, number]) => wide[number - 1] && wide[number]).map(([place]) => place);
  const marked = Array.from(text.matchAll(MARK), (found) => found.index).filter((place) => place < text.length);
  const inside = between.length > 0 ? between : marked;
  return inside.length > 0 ? nearest(inside) : null;
}

/** Whether a part should be translated: text without letters, such as a number, and bare addresses stay as they are. */
export const isTranslated = (text) => /\p{L}/u.test(text) && !ADDRESS.test(text);

/** Whether most letters of a text are of a script that is not among those seen, which repose.data.scripts has named;
 * false if these are not known. */
export function isUnseen(text, seen) {
  const number = (pattern) => Array.from(text.matchAll(new RegExp(pattern, "gu"))).length;
  const properties = (name) => (name === "Han" ? HAN : [name]).map((one) => `\\p{Script=${one}}`).join("");
  try {
    const each = seen.map((name) => number(`(?=[${properties(name)}])\\p{L}`));
    const all = number("(?![\\p{Script=Common}\\p{Script=Inherited}])\\p{L}");
    return seen.length > 0 && all - each.reduce((sum, one) => sum + one, 0) > Math.max(...each);
  } catch {
    return false; // a script that browsers call otherwise
  }
}

/** A piece for the model, and the white space before and after it; a blank piece is white space only. */
export function stripped(piece) {
  const [, before, text, after] = EDGES.exec(piece);
  return { before, text, after };
}

/** Join a part's translation to those of the line's earlier parts, the last of which is `previous`. */
export function joined(done, translation, { before, text, after }, previous) {
  const last = Array.from(done.slice(-2)).at(-1) ?? "";
  // The source has no white space there: add none within a name, a number or an address.
  const parted = isParted(previous?.text ?? "", text);
  const said = /\p{L}/u.test((previous?.text ?? "") + text); // text without letters stays as it is
  const glued = said && last && translation && !LAST_IS_SPACE.test(last) && !before && parted && !isWide(last);
  return `${done}${glued ? " " : ""}${before}${stripped(translation).text}${after}`;
}
