// The service's own API, and nothing else: every request stays on this origin.

/** An answer that is an error; `errors` lists `path` and `message` of each. */
export class Refused extends Error {
  constructor({ message, path, details }) {
    super(message);
    this.errors = details ?? [{ path, message }];
  }
}

const LINES = "application/x-ndjson";

async function send(path, options) {
  try {
    return await fetch(path, options);
  } catch (problem) {
    if (problem.name === "AbortError") throw problem;
    throw new Refused({ message: "the service does not answer; is it still running?", path: "" });
  }
}

const ask = async (path, options) => bodyOf(await send(path, options));

async function bodyOf(answer) {
  const body = await answer.json().catch(() => null);
  if (body?.error) throw new Refused(body.error);
  if (!answer.ok || body === null) {
    throw new Refused({ message: `the service answered with status ${answer.status}`, path: "" });
  }
  return body;
}

export const choices = () => ask("/v1/choices");

const posted = (body, signal, headers = {}) => ({
  method: "POST", headers: { "Content-Type": "application/json", ...headers }, body: JSON.stringify(body), signal,
});

/** POST `body` to `/v1/<door>`. */
export const post = (door, body, signal) => ask(`/v1/${door}`, posted(body, signal));

/** The same where the answer takes long: `onProgress` hears `{ done, total, name }` on the way. */
export async function postLong(door, body, { signal, onProgress }) {
  const answer = await send(`/v1/${door}`, posted(body, signal, { Accept: LINES }));
  if (!answer.headers.get("Content-Type")?.startsWith(LINES)) return bodyOf(answer);
  for await (const line of lines(answer.body.pipeThrough(new TextDecoderStream()).getReader())) {
    if (line.error) throw new Refused(line.error);
    if (line.answer) return line.answer;
    onProgress(line.progress);
  }
  throw new Refused({ message: "the service stopped before its answer was complete", path: "" });
}

async function* lines(reader) {
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const whole = (rest + value).split("\n");
    rest = whole.pop();
    for (const line of whole) yield JSON.parse(line);
  }
}
