// Who computes what when in a pipeline: 1F1B, plain or interleaved, in units of one forward pass
// of a whole stage. A backward pass takes two. Transfers are left out.

const FORWARD = 1;
const BACKWARD = 2;

/** Passes `{ stage, chunk, microbatch, isForward, start, end }` of `pp` stages of `vpp` chunks. */
export function schedule(pp, vpp, microbatches) {
  const orders = Array.from({ length: pp }, (_, stage) => order(stage, pp, vpp, microbatches));
  const next = new Array(pp).fill(0);
  const free = new Array(pp).fill(0);
  const ended = new Map();
  const passes = [];
  let moved = true;
  while (moved) {
    moved = false;
    for (let stage = 0; stage < pp; stage += 1) {
      while (next[stage] < orders[stage].length) {
        const pass = orders[stage][next[stage]];
        const ready = readyAt(pass, stage, pp, vpp, ended);
        if (ready === undefined) break;
        const start = Math.max(ready, free[stage]);
        const end = start + (pass.isForward ? FORWARD : BACKWARD) / vpp;
        passes.push({ ...pass, stage, start, end });
        ended.set(key(pass.isForward, pass.chunk * pp + stage, pass.microbatch), end);
        free[stage] = end;
        next[stage] += 1;
        moved = true;
      }
    }
  }
  return passes;
}

const key = (isForward, part, microbatch) => `${isForward}/${part}/${microbatch}`;

// A pass waits for the same microbatch on the part of the model before it (behind it, backwards).
function readyAt({ isForward, chunk, microbatch }, stage, pp, vpp, ended) {
  const part = chunk * pp + stage;
  if (isForward) return part === 0 ? 0 : ended.get(key(true, part - 1, microbatch));
  const isLast = part === pp * vpp - 1;
  return ended.get(isLast ? key(true, part, microbatch) : key(false, part + 1, microbatch));
}

// Warm-up forwards, then one forward and one backward in turn, then the backwards that are left.
function order(stage, pp, vpp, microbatches) {
  const total = microbatches * vpp;
  const warmup = Math.min(total, vpp === 1 ? pp - stage - 1 : (pp - stage - 1) * 2 + (vpp - 1) * pp);
  const passes = [];
  for (let number = 0; number < warmup; number += 1) passes.push(pass(number, true, pp, vpp));
  for (let number = warmup; number < total; number += 1) {
    passes.push(pass(number, true, pp, vpp), pass(number - warmup, false, pp, vpp));
  }
  for (let number = total - warmup; number < total; number += 1) passes.push(pass(number, false, pp, vpp));
  return passes;
}

// The interleaved order takes pp microbatches through one chunk, then through the next.
function pass(number, isForward, pp, vpp) {
  if (vpp === 1) return { chunk: 0, microbatch: number, isForward };
  const round = Math.floor(number / (pp * vpp));
  const within = number % (pp * vpp);
  const chunk = Math.floor(within / pp);
  return { chunk: isForward ? chunk : vpp - 1 - chunk, microbatch: round * pp + (within % pp), isForward };
}
