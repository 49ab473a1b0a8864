// Questions to the server. The token, which starting a run needs, is taken from the address once and kept for this tab.

const KEY = "lmlab-token";
const given = /^#token=([\w-]+)/.exec(location.hash);
if (given) {
  sessionStorage.setItem(KEY, given[1]);
  history.replaceState(null, "", location.pathname + "#/");
}
export const token = () => sessionStorage.getItem(KEY);

const headers = () => (token() ? { authorization: `Bearer ${token()}` } : {});

const check = async response => {
  if (response.ok) return response;
  let message = `the server answered ${response.status}`;
  try { message = (await response.json()).error.message } catch { /* no JSON: the number will do */ }
  throw new Error(message);
};

const path = (name, query) => {
  const search = new URLSearchParams();
  for (const [key, value] of Object.entries(query ?? {})) for (const each of [value].flat()) if (each !== undefined && each !== null) search.append(key, each);
  const tail = search.toString();
  return `/studio/api/${name}${tail ? "?" + tail : ""}`;
};

export const get = async (name, query, signal) => (await check(await fetch(path(name, query), { headers: headers(), signal }))).json();
export const post = async (name, body, signal) => (await check(await ask(name, body, signal))).json();
export const bytes = async (name, body, signal) => (await check(await ask(name, body, signal))).arrayBuffer();
const ask = (name, body, signal) => fetch(path(name), { method: "POST", headers: { "content-type": "application/json", ...headers() }, body: JSON.stringify(body), signal });

/** Server-sent events: `on` maps names of events to functions of their data. Off this machine they need the token, which EventSource cannot send, so it is read by fetch. */
export const listen = (name, query, on) => {
  const stop = new AbortController();
  (async () => {
    while (!stop.signal.aborted) {
      try {
        const response = await check(await fetch(path(name, query), { headers: headers(), signal: stop.signal }));
        const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
        let rest = "";
        for (;;) {
          const { done, value } = await reader.read();
          if (done) break;
          const parts = (rest + value).split("\n\n");
          rest = parts.pop();
          for (const part of parts) {
            const event = /^event: (.*)$/m.exec(part)?.[1], data = /^data: (.*)$/m.exec(part)?.[1];
            if (event && data) on[event]?.(JSON.parse(data));
          }
        }
      } catch (error) {
        if (stop.signal.aborted) return;
        on.error?.(error);
      }
      await new Promise(resolve => setTimeout(resolve, 2000));
    }
  })();
  return () => stop.abort();
};
