// A model in the browser: tokenizers, the two graphs of an export to ONNX, and the search.

import { isUnseen, pieces, stripped, whole } from "./parts.js";
import { search, END, START, UNK, PAD } from "./search.js";

/** Tokenize with a tokenizer.json as repose.data.tokenizer does, using @huggingface/tokenizers. */
export class TextTokenizer {
  constructor(Tokenizer, spec) {
    // Special tokens are added and removed here; when they occur in a text, they are ordinary text.
    this.tags = Object.fromEntries(
      spec.added_tokens.filter(({ id }) => id > END).map(({ content, id }) => [content.slice(1, -1), id]),
    );
    this.unsaid = new Set([PAD, START, END, ...Object.values(this.tags)]);
    const { normalizer, lowercases } = withoutLowercase(spec.normalizer);
    const pre_tokenizer = withUnicode(spec.pre_tokenizer);
    const plain = { ...spec, added_tokens: [], post_processor: null, normalizer, pre_tokenizer };
    this.backend = new Tokenizer(plain, { clean_up_tokenization_spaces: false });
    if (partsChinese(spec.normalizer)) {
      const before = this.backend.normalizer;
      this.backend.normalizer = (text) => before(text.replace(RARE_CHINESE, " $& "));
    }
    if (lowercases) {
      const before = this.backend.normalizer;
      // Letter by letter, because lower-casing a whole text changes a sigma at the end of a word.
      this.backend.normalizer = (text) =>
        Array.from(before ? before(text) : text, (letter) => letter.toLowerCase()).join("");
    }
  }

  /** The text after normalisation, as the tokenizer reads it. */
  normalized(text) {
    return this.backend.normalizer ? this.backend.normalizer(text) : text;
  }

  /** Ids from START to END. */
  encode(text) {
    const { ids } = this.backend.encode(text, { add_special_tokens: false });
    return [START, ...ids.map((id) => (id > END || id === UNK ? id : UNK)), END];
  }

  decode(ids) {
    const words = ids.filter((id) => !this.unsaid.has(id));
    if (words.length === 0) return "";
    return this.backend.decode(words, { skip_special_tokens: false, clean_up_tokenization_spaces: false });
  }
}

// The library's own patterns only know ASCII letters and digits.
const WORD = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\u200c\\u200d";
const UNICODE_WORDS = {
  type: "Split",
  pattern: { Regex: `[${WORD}]+|[^\\p{White_Space}${WORD}]+` },
  behavior: "Removed",
  invert: true,
};
const UNICODE_DIGITS = { type: "Split", pattern: { Regex: "\\p{N}" }, behavior: "Isolated", invert: false };

function withUnicode(splitter) {
  if (splitter?.type === "Whitespace") return UNICODE_WORDS;
  if (splitter?.type === "Digits" && splitter.individual_digits) return UNICODE_DIGITS;
  if (splitter?.type !== "Sequence") return splitter;
  return { ...splitter, pretokenizers: splitter.pretokenizers.map(withUnicode) };
}

// Chinese characters of two UTF-16 units, which the library misses; the ranges are those of the original in Rust.
const RARE_CHINESE =
  /[\u{20000}-\u{2a6df}\u{2a700}-\u{2b73f}\u{2b740}-\u{2b81f}\u{2b920}-\u{2ceaf}\u{2f800}-\u{2fa1f}]/gu;

/** Whether a normalizer separates Chinese characters into words. */
function partsChinese(normalizer) {
  return Boolean(normalizer?.handle_chinese_chars ?? normalizer?.normalizers?.some(partsChinese));
}

/** A normalizer without lower-casing, which is always its last step. */
function withoutLowercase(normalizer) {
  if (normalizer?.type === "Lowercase") return { normalizer: null, lowercases: true };
  const steps = normalizer?.type === "Sequence" ? normalizer.normalizers : [];
  if (steps.at(-1)?.type !== "Lowercase") return { normalizer, lowercases: false };
  return { normalizer: { ...normalizer, normalizers: steps.slice(0, -1) }, lowercases: true };
}

/** The rows of one sentence's search, like repose.decoding.onnx_engine.OnnxState. */
class State {
  constructor(translator, memory) {
    this.translator = translator;
    this.memory = memory;
    this.length = 0;
    this.kept = {};
    for (const { name, groups, width } of translator.graphs.kept) {
      const dims = groups ? [1, groups, 0, width] : [1, width];
      this.kept[name] = new translator.ort.Tensor("float32", new Float32Array(groups ? 0 : width), dims);
    }
  }

  async step(tokens) {
    const { ort, graphs, stepGraph } = this.translator;
    const feeds = {
      ...this.memory,
      tokens: new ort.Tensor("int64", BigInt64Array.from(tokens, BigInt), [1, tokens.length]),
      at: new ort.Tensor("int64", BigInt64Array.of(BigInt(this.length)), []),
    };
    for (const name in this.kept) feeds[`past_${name}`] = this.kept[name];
    const wanted = ["log_probs", ...graphs.kept.map(({ name }) => `new_${name}`)];
    const found = await stepGraph.run(feeds, wanted);
    for (const name in this.kept) this.kept[name] = found[`new_${name}`];
    this.length++;
    const { data, dims } = found.log_probs;
    return tokens.map((_, row) => data.slice(row * dims[1], (row + 1) * dims[1]));
  }

  select(rows) {
    for (const [name, tensor] of Object.entries(this.kept)) {
      const [num, ...rest] = tensor.dims, size = tensor.data.length / num;
      const data = new Float32Array(rows.length * size);
      rows.forEach((row, i) => data.set(tensor.data.subarray(row * size, (row + 1) * size), i * size));
      this.kept[name] = new this.translator.ort.Tensor("float32", data, [rows.length, ...rest]);
    }
  }
}

export class Translator {
  /**
   * `read(name)` gives the bytes of a file of the model; `settings` is its model.json.
   * `ort` and `Tokenizer` are those of onnxruntime-web and @huggingface/tokenizers.
   */
  static async load({ ort, Tokenizer, read, settings }) {
    const self = new Translator();
    const json = async (name) => JSON.parse(new TextDecoder().decode(await read(name)));
    Object.assign(self, { ort, settings, graphs: settings.graphs });
    self.source = new TextTokenizer(Tokenizer, await json("tokenizer.src.json"));
    self.target = new TextTokenizer(Tokenizer, await json("tokenizer.tgt.json"));
    const session = async (name) => ort.InferenceSession.create(await read(name), { executionProviders: ["wasm"] });
    self.encoderGraph = await session("encoder.onnx");
    self.stepGraph = await session("step.onnx");
    return self;
  }

  /** The best hypotheses of one sentence, best first, each with its `text`; none for a blank sentence. */
  async hypotheses(text, { beamSize, lengthPenalty, numHypotheses = 1, to } = {}) {
    const { decoding, tag } = this.settings, { max_length: longest } = this.graphs;
    if (typeof text !== "string") throw new Error("a text must be a string");
    for (const [what, number] of Object.entries({ beamSize: beamSize ?? decoding.beam_size, numHypotheses }))
      if (!Number.isInteger(number) || number < 1) throw new Error(`${what} must be a whole number of at least 1`);
    const name = to ?? tag;
    if (name && !Object.hasOwn(this.source.tags, name)) throw new Error(`this model has no tag ${name}: leave it out`);
    if (!stripped(this.source.normalized(text)).text) return [];
    let ids = this.source.encode(text);
    if (name) ids = [START, this.source.tags[name], ...ids.slice(1)];
    if (ids.length > longest) ids = [...ids.slice(0, longest - 1), END];
    const src = new this.ort.Tensor("int64", BigInt64Array.from(ids, BigInt), [1, ids.length]);
    const memory = await this.encoderGraph.run({ src }, ["src_bias", ...this.graphs.memory]);
    const found = await search(new State(this, memory), {
      limit: Math.min(ids.length + decoding.max_extra_tokens, longest),
      beamSize: beamSize ?? decoding.beam_size,
      alpha: lengthPenalty ?? decoding.length_penalty,
      noRepeat: decoding.no_repeat_ngram_size,
      numHypotheses,
    });
    return found.map((hypothesis) => ({ ...hypothesis, text: this.target.decode(hypothesis.tokens) }));
  }

  /** The translation of one sentence. */
  async translate(text, options) {
    return (await this.hypotheses(text, options))[0]?.text ?? "";
  }

  /** Split a line into sentences, and sentences longer than nearly all of the training's into pieces. `begins`: whether
   * a piece is the first of its sentence that has text. */
  *parts(line, options) {
    const { split_src_tokens: usual, max_src_tokens: longest } = this.settings;
    const fits = this.fits(options, usual ?? longest);
    for (const sentence of whole(this.sentences(line, options))) {
      const parts = pieces(sentence, fits).map(stripped), first = parts.find((part) => part.text);
      for (const part of parts) yield { ...part, begins: part === first };
    }
  }

  /** Whether a text is short enough for the model. */
  fits({ to } = {}, longest = this.settings.max_src_tokens) {
    const tagged = to ?? this.settings.tag ? 1 : 0; // a tag is a source token
    const limit = Math.max(3, longest - tagged);
    return (text) => this.source.encode(text).length <= limit;
  }

  /** Whether a text is in a script that the model's training hardly saw. */
  isUnseen(text) {
    return isUnseen(text, this.settings.src_scripts);
  }

  /** Languages and their names for this tag. */
  direction(tag) {
    const { directions } = this.settings;
    return Object.hasOwn(directions, tag) ? directions[tag] : this.settings;
  }

  /** Split a line into sentences, each with the white space after it. */
  *sentences(line, { to = this.settings.tag } = {}) {
    if (!globalThis.Intl?.Segmenter) return yield line;
    let segmenter;
    try {
      segmenter = new Intl.Segmenter(this.direction(to).src_lang, { granularity: "sentence" });
    } catch {
      segmenter = new Intl.Segmenter(undefined, { granularity: "sentence" }); // the language code is invalid
    }
    const spaced = line.replace(/[\u0085\u2028\u2029]/g, " "); // a sentence would begin after these
    for (const { index, segment } of segmenter.segment(spaced)) yield line.slice(index, index + segment.length);
  }
}
