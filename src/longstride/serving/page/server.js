// Asks the server. What goes wrong becomes a Failure with a sentence for the person who asked.

export class Failure extends Error {
  constructor(sentence, status = 0) {
    super(sentence);
    this.status = status;
  }
}

const UNREACHABLE = "The server cannot be reached; it may have stopped, or the network is down.";

async function asked(path, options) {
  let response;
  try {
    response = await fetch(path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new Failure(UNREACHABLE);
  }
  if (response.ok) return response;
  const told = await response.json().catch(() => ({}));
  throw new Failure(told.error || `The server answered with the status ${response.status}.`, response.status);
}

export async function settings() {
  return (await asked("page/settings")).json();
}

// Decodes one text with one decoder and gives the last event, which holds the trace; `step` hears of every other one.
export async function decoded({ text, model, decoder, key }, signal, step = () => {}) {
  const headers = { "Content-Type": "application/json", ...(key ? { "X-API-Key": key } : {}) };
  const body = JSON.stringify({ text, model, decoder, stream: true, trace: true });
  const response = await asked("generate", { method: "POST", headers, body, signal });
  for await (const event of events(response.body)) {
    if (event.error) throw new Failure(event.error, event.status);
    if (event.done) return event;
    step(event);
  }
  throw new Failure("The server broke off before the text was done.");
}

async function* events(stream) {
  const reader = stream.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    let part;
    try {
      part = await reader.read();
    } catch (error) {
      if (error.name === "AbortError") throw error;
      throw new Failure(UNREACHABLE);
    }
    if (part.done) return;
    const lines = (rest + part.value).split("\n\n");
    rest = lines.pop();
    for (const line of lines) if (line.startsWith("data: ")) yield JSON.parse(line.slice(6));
  }
}
