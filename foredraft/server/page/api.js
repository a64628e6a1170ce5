/** The server's HTTP interface: models, and answers as they come. */

/** Something that went wrong, in one line for the reader. status: of HTTP, 0 where no answer came. */
export class ApiError extends Error {
  constructor(message, status = 0) {
    super(message);
    this.status = status;
  }
}

/** All models, as the server lists them. Raises ApiError. */
export async function fetchModels(key) {
  const response = await send("/v1/models", { headers: headersFor(key) });
  try {
    return (await response.json()).data;
  } catch {
    throw new ApiError("What answers here is not foredraft's server.");
  }
}

/**
 * The chunks of an answer, as objects, until it is complete. Raises ApiError, also where the connection is lost, and
 * AbortError when signal stops it.
 * @param {object} body of POST /v1/chat/completions
 * @param {{key: string, signal: AbortSignal}} options
 */
export async function* streamChat(body, { key, signal }) {
  const headers = { ...headersFor(key), "Content-Type": "application/json" };
  const response = await send("/v1/chat/completions", { method: "POST", headers, body: JSON.stringify(body), signal });
  for await (const data of eventsOf(response, signal)) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new ApiError(chunk.error.message || "the server could not go on");
    yield chunk;
  }
  throw new ApiError("The connection was lost before the answer was complete.");
}

function headersFor(key) {
  return key ? { Authorization: `Bearer ${key}` } : {};
}

async function send(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The server cannot be reached.");
  }
  if (!response.ok) throw new ApiError(await messageOf(response), response.status);
  return response;
}

async function messageOf(response) {
  const fallback = `The server answered ${response.status} ${response.statusText}.`.replace(" .", ".");
  try {
    const { error } = await response.json();
    return String(error.message || fallback);
  } catch {
    return fallback;
  }
}

/** The data of each server-sent event. Comments, which only keep the connection alive, are left out. */
async function* eventsOf(response, signal) {
  let lines = [];
  for await (const line of linesOf(response, signal)) {
    if (line.startsWith("data:")) lines.push(line.slice(5).replace(/^ /, ""));
    else if (line === "" && lines.length) {
      yield lines.join("\n");
      lines = [];
    }
  }
}

async function* linesOf(response, signal) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  try {
    for (;;) {
      const { value, done } = await read(reader, signal);
      if (done) return;
      const lines = (rest + value).split("\n");
      rest = lines.pop();
      for (const line of lines) yield line.replace(/\r$/, "");
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

async function read(reader, signal) {
  try {
    return await reader.read();
  } catch (error) {
    if (signal.aborted) throw new DOMException("stopped", "AbortError");
    throw new ApiError("The connection was lost before the answer was complete.");
  }
}
