// Greedy and beam search for one sentence, with exactly the rules of repose.decoding.search.

export const PAD = 0, UNK = 1, START = 2, END = 3;

/** GNMT's length penalty ((5 + |y|) / 6)^alpha; |y| includes END. */
function lengthPenalty(length, alpha) {
  return ((5 + length) / 6) ** alpha;
}

/** The `width` best allowed tokens of one row, as [value, id], in the order of ids. */
function bestTokens(row, width) {
  const best = []; // best first; the lower id first among equals
  for (let id = 0; id < row.length; id++) {
    if (id === PAD || id === START) continue;
    const value = row[id];
    if (Number.isNaN(value)) throw new Error("the model gave NaN as a log-probability");
    if (best.length === width && !(value > best[width - 1][0])) continue;
    let place = best.length;
    while (place > 0 && value > best[place - 1][0]) place--;
    best.splice(place, 0, [value, id]);
    if (best.length > width) best.pop();
  }
  return best.sort((a, b) => a[1] - b[1]);
}

/** Set the log-probability of tokens that would repeat an n-gram to −Infinity. */
function withoutRepeats(row, said, n) {
  if (!n || said.length < n) return;
  const last = said.slice(said.length - n + 1).join();
  for (let i = 0; i + n <= said.length; i++) {
    if (said.slice(i, i + n - 1).join() === last) row[said[i + n - 1]] = -Infinity;
  }
}

/**
 * The best hypotheses of a sentence, best first: {tokens, score, normalised, finished}, tokens without START and END.
 *
 * `state.step(tokens)` returns one row of log-probabilities per token (a promise of Float32Arrays), and
 * `state.select(rows)` makes row i what row rows[i] was. `limit`: the maximum number of tokens, including END.
 */
export async function search(state, { limit, beamSize, alpha, numHypotheses = 1, noRepeat = 0 }) {
  if (beamSize === 1) return [await greedy(state, limit, alpha, noRepeat)];
  const lastPenalty = lengthPenalty(limit, alpha);
  const finished = [];
  let best = Array(numHypotheses).fill(-Infinity); // `normalised` of the best finished hypotheses, descending
  let live = [{ score: 0, tokens: [] }];
  let next = [START];
  for (let length = 1; live.length > 0; length++) {
    const rows = await state.step(next);
    const candidates = [];
    live.forEach((hypothesis, row) => {
      withoutRepeats(rows[row], hypothesis.tokens, noRepeat);
      for (const [value, id] of bestTokens(rows[row], beamSize + 1)) {
        candidates.push({ score: hypothesis.score + value, row, id });
      }
    });
    candidates.sort((a, b) => (b.score === a.score ? 0 : b.score - a.score)); // stable: ties go to the earlier row, then to the lower id
    const enough = best[numHypotheses - 1], ended = [];
    for (const { score, row, id } of candidates.slice(0, beamSize)) {
      const normalised = id === END ? score / lengthPenalty(length, alpha) : -Infinity;
      ended.push(normalised);
      if (normalised > enough) finished.push({ tokens: live[row].tokens, score, normalised, finished: true });
    }
    best = [...best, ...ended].sort((a, b) => (a === b ? 0 : b - a)).slice(0, numHypotheses);
    const going = candidates.filter(({ id, score }) => id !== END && score > -Infinity).slice(0, beamSize);
    const written = ({ score, row, id }) => ({ score, row, tokens: [...live[row].tokens, id] });
    const kept = going.filter(({ score }) => length < limit && score / lastPenalty > best[numHypotheses - 1]);
    if (kept.length === 0 && finished.length === 0) {
      const cut = going.length > 0 ? going.map(written) : live;
      const reached = going.length > 0 ? length : length - 1;
      for (const { score, tokens } of cut) {
        finished.push({ tokens, score, normalised: score / lengthPenalty(reached, alpha), finished: false });
      }
    }
    live = kept.map(written);
    next = kept.map(({ id }) => id);
    if (live.length > 0) state.select(live.map(({ row }) => row));
  }
  return finished.sort((a, b) => b.normalised - a.normalised).slice(0, numHypotheses);
}

async function greedy(state, limit, alpha, noRepeat) {
  const tokens = [];
  let score = 0, finished = false;
  for (let token = START; tokens.length < limit && !finished; ) {
    const [row] = await state.step([token]);
    withoutRepeats(row, tokens, noRepeat);
    const [[value, id]] = bestTokens(row, 1);
    if (value === -Infinity) break;
    score += value;
    finished = id === END;
    if (!finished) tokens.push((token = id));
  }
  return { tokens, score, finished, normalised: score / lengthPenalty(tokens.length + finished, alpha) };
}
