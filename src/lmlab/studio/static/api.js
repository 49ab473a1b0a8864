// Requests to the server; the browser sends the cookie that it got with the printed link. A saved lecture has none:
// there the answers are those that were recorded with it.

import { answer, decode, encode, isRecording, isSaved } from "./recording.js";

const check = async response => {
  if (response.ok) return response;
  let message = `the server answered ${response.status}`;
  try {
    message = (await response.json()).error.message;
  } catch {
    /* not JSON: the status is all there is */
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

const send = async (address, body, signal) =>
  check(
    await fetch(address, {
      method: "POST",
      headers: { "content-type": "application/json" },
      body: JSON.stringify(body),
      signal,
    }),
  );

export const get = (name, query, signal) =>
  answer(path(name, query), null, async () => (await check(await fetch(path(name, query), { signal }))).json());
export const post = (name, body, signal) =>
  answer(path(name), body, async () => (await send(path(name), body, signal)).json());
export const bytes = async (name, body, signal) => {
  const request = async () => (await send(path(name), body, signal)).arrayBuffer();
  if (!isSaved() && !isRecording()) return request(); // megabytes, for attention
  return decode(await answer(path(name), body, async () => encode(await request())));
};

/** A route of `lmlab serve`, which the studio has too. */
export const postV1 = (name, body, signal) =>
  answer(`/v1/${name}`, body, async () => (await send(`/v1/${name}`, body, signal)).json());

/** The responses for several runs, and the runs that are `refused`; an error if all are. */
export const forEachRun = async (runs, request) => {
  const results = await Promise.allSettled(runs.map(request));
  const failed = results.filter(each => each.status === "rejected").map(each => each.reason);
  if (failed.length === runs.length) throw new Error([...new Set(failed.map(each => each.message))].join("; "));
  return {
    runs: results.flatMap((each, index) => (each.status === "fulfilled" ? { run: runs[index], ...each.value } : [])),
    refused: results.flatMap((each, index) =>
      each.status === "rejected" ? { run: runs[index], why: each.reason.message } : [],
    ),
  };
};

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

const stream = async function* (body, signal) {
  const response = await send("/v1/completions", { ...body, stream: true }, signal);
  for await (const { data } of blocks(response)) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new Error(chunk.error.message);
    yield chunk;
  }
  throw new Error("the server ended before the text did");
};

/** The chunks of a streamed completion, from the API of `lmlab serve`. */
export const complete = async function* (body, signal) {
  if (!isSaved() && !isRecording()) return yield* stream(body, signal);
  const collect = async () => {
    const chunks = [];
    for await (const chunk of stream(body, signal)) chunks.push(chunk);
    return chunks;
  };
  for (const chunk of await answer("/v1/completions", body, collect)) {
    if (isSaved()) await new Promise(requestAnimationFrame); // the text is written as it was then
    yield chunk;
  }
};

/** Listen to server-sent events: `on` maps their names to functions. By fetch, whose errors have messages. */
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

/** Events of the folder, in one stream for the whole tab: browsers hold only a few connections to a server. */
const heard = {};
let stop, followed;
export const hear = (event, listener) => {
  heard[event] = listener;
};
export const follow = (runs, points) => {
  if (isSaved()) return;
  heard.points = points;
  const asked = JSON.stringify(runs);
  if (asked === followed) return;
  followed = asked;
  stop?.();
  stop = listen("live", { run: runs }, { runs: found => heard.runs?.(found), points: found => heard.points?.(found) });
};
/** Start to listen, unless a view does already. */
export const watch = () => {
  if (followed === undefined) follow([]);
};
