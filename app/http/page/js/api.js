// The service's own API, and nothing else: every request stays on this origin.

/** An answer that is an error; `errors` lists `path` and `message` of each. */
export class Refused extends Error {
  constructor({ message, path, details }) {
    super(message);
    this.errors = details ?? [{ path, message }];
  }
}

async function ask(path, options) {
  let answer;
  try {
    answer = await fetch(path, options);
  } catch (problem) {
    if (problem.name === "AbortError") throw problem;
    throw new Refused({ message: "the service does not answer; is it still running?", path: "" });
  }
  const body = await answer.json().catch(() => null);
  if (body?.error) throw new Refused(body.error);
  if (!answer.ok || body === null) {
    throw new Refused({ message: `the service answered with status ${answer.status}`, path: "" });
  }
  return body;
}

export const choices = () => ask("/v1/choices");

/** POST `body` to `/v1/<door>`. */
export function post(door, body, signal) {
  const headers = { "Content-Type": "application/json" };
  return ask(`/v1/${door}`, { method: "POST", headers, body: JSON.stringify(body), signal });
}
