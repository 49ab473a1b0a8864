// Requests to the server. The printed link has signed the browser in, which sends its cookie with each of them.

const check = async response => {
  if (response.ok) return response;
  let message = `the server answered ${response.status}`;
  try {
    message = (await response.json()).error.message;
  } catch {
    /* no JSON: the number will do */
  }
  throw new Error(message);
};

const path = (name, query) => {
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(query ?? {}))
    for (const each of [value].flat()) if (each !== undefined && each !== null) search.append(key, each);
  const tail = search.toString();
  return `/studio/api/${name}${tail ? "?" + tail : ""}`;
};

export const get = async (name, query, signal) => (await check(await fetch(path(name, query), { signal }))).json();
export const post = async (name, body, signal) => (await check(await ask(name, body, signal))).json();
export const bytes = async (name, body, signal) => (await check(await ask(name, body, signal))).arrayBuffer();
const ask = (name, body, signal) =>
  fetch(path(name), {
    method: "POST",
    headers: { "content-type": "application/json" },
    body: JSON.stringify(body),
    signal,
  });

/** The blocks of a stream of server-sent events: {event, data}, as text. */
async function* blocks(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await reader.read();
    if (done) return;
    const parts = (rest + value).split("\n\n");
    rest = parts.pop();
    for (const part of parts) yield { event: /^event: (.*)$/m.exec(part)?.[1], data: /^data: (.*)$/m.exec(part)?.[1] };
  }
}

/** The chunks of a completion, as they come, from the API of `lmlab serve`. */
export async function* complete(body, signal) {
  const response = await check(
    await fetch("/v1/completions", {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify({ ...body, stream: true }),
      signal,
    }),
  );
  for await (const { data } of blocks(response)) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new Error(chunk.error.message);
    yield chunk;
  }
  throw new Error("the server ended before the text did");
}

/** Server-sent events: `on` maps names of events to functions of their data. Read by fetch, which says why a request is refused. */
const listen = (name, query, on) => {
  const stop = new AbortController();
  (async () => {
    while (!stop.signal.aborted) {
      try {
        const response = await check(await fetch(path(name, query), { signal: stop.signal }));
        for await (const { event, data } of blocks(response)) if (event && data) on[event]?.(JSON.parse(data));
      } catch (error) {
        if (stop.signal.aborted) return;
        on.error?.(error);
      }
      await new Promise(resolve => setTimeout(resolve, 2000));
    }
  })();
  return () => stop.abort();
};

/** What goes on in the folder, by one stream for all of a tab: browsers hold only a few connections to a server. */
const heard = {};
let stop, followed;
export const hear = (event, listener) => {
  heard[event] = listener;
};
export const follow = (runs, points) => {
  heard.points = points;
  const asked = JSON.stringify(runs);
  if (asked === followed) return;
  followed = asked;
  stop?.();
  stop = listen("live", { run: runs }, { runs: found => heard.runs?.(found), points: found => heard.points?.(found) });
};
/** Begin to listen, unless a view does already. */
export const watch = () => {
  if (followed === undefined) follow([]);
};
