// Just enough YAML to write a manifest: block style, and every doubtful text in JSON quotes, which
// are YAML quotes too.

const PLAIN = /^[A-Za-z/][\w./-]*$/;
const RESERVED = /^(true|false|null|yes|no|on|off|y|n)$/i;

/** `value` as a YAML document. */
export const toYaml = (value) => `${lines(value, "").join("\n")}\n`;

function lines(value, indent) {
  if (Array.isArray(value)) return value.flatMap((item) => listed(item, indent));
  return Object.entries(value).filter(([, item]) => item !== undefined).flatMap(([key, item]) => keyed(key, item, indent));
}

function listed(item, indent) {
  if (typeof item !== "object") return [`${indent}- ${scalar(item)}`];
  const [first, ...rest] = lines(item, `${indent}  `);
  return [`${indent}- ${first.trimStart()}`, ...rest];
}

function keyed(key, item, indent) {
  if (typeof item !== "object") return [`${indent}${scalar(key)}: ${scalar(item)}`];
  const inner = lines(item, `${indent}  `);
  return inner.length ? [`${indent}${scalar(key)}:`, ...inner] : [];
}

function scalar(value) {
  if (typeof value !== "string") return String(value);
  return PLAIN.test(value) && !RESERVED.test(value) ? value : JSON.stringify(value);
}
