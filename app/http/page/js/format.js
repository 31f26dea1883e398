// Numbers as people read them. SI inside, GiB and ms only here.

const GIB = 2 ** 30;

export const gib = (bytes) => `${figures(bytes / GIB)} GiB`;
export const inGib = (bytes) => bytes / GIB;
export const percent = (ratio) => `${figures(ratio * 100)} %`;
export const count = (number) => number.toLocaleString("en-US");

/** Three figures, as many as a prediction deserves. */
export function figures(number) {
  const size = Math.abs(number);
  if (size >= 100) return number.toFixed(0);
  if (size >= 10) return number.toFixed(1);
  return number.toFixed(size === 0 ? 0 : 2);
}

export function seconds(value) {
  if (value >= 120) return `${figures(value / 60)} min`;
  if (value >= 1) return `${figures(value)} s`;
  return `${figures(value * 1e3)} ms`;
}

export function params(number) {
  for (const [size, letter] of [[1e12, "T"], [1e9, "B"], [1e6, "M"]]) {
    if (number >= size) return `${figures(number / size)}${letter}`;
  }
  return count(number);
}

/** The degrees that say something, shortest form: "TP 8 · PP 4 · DP 2". */
export function brief(layout) {
  const words = ["tp", "pp", "vpp", "cp", "ep", "dp"]
    .filter((name) => layout[name] > 1)
    .map((name) => `${name.toUpperCase()} ${layout[name]}`);
  return `${words.join(" · ") || "1 GPU"}, ${layout.sharding}, micro-batch ${layout.microbatch_size}, ` +
    `recompute ${layout.recompute}, ${layout.precision}`;
}

/** "1 GPU", "2 GPUs". */
export const plural = (number, one) => `${count(number)} ${one}${number === 1 ? "" : "s"}`;

/** "p5.48xlarge" alone, "8 × p5.48xlarge". */
export const instances = (nodes, name) => `${count(nodes)} × ${name}`;
