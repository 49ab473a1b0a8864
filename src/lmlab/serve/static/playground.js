"use strict";
const $ = (id) => document.getElementById(id);
let running = null;

async function begin() {
  const answer = await fetch("/v1/models");
  const { data } = await answer.json();
  for (const model of data) {
    const option = document.createElement("option");
    option.value = option.textContent = model.id;
    option.disabled = !model.abilities.includes("next token");
    $("model").append(option);
  }
  show();
}

function body() {
  return {
    model: $("model").value,
    prompt: $("prompt").value,
    max_tokens: Number($("max_tokens").value),
    temperature: Number($("temperature").value),
    top_p: Number($("top_p").value),
    seed: Number($("seed").value),
  };
}

function show() {
  const quoted = JSON.stringify(body()).replaceAll("'", "'\\''");
  $("curl").textContent =
    `curl ${location.origin}/v1/completions -H 'Content-Type: application/json' \\\n  -d '${quoted}'`;
}

function token(text, logprob, top) {
  const span = document.createElement("span");
  span.className = "token s" + Math.min(4, Math.floor(-logprob / Math.LN2 / 2));
  span.textContent = text;
  span.tabIndex = 0;
  const others = Object.entries(top)
    .sort((a, b) => b[1] - a[1])
    .map(([name, value]) => `${JSON.stringify(name)} ${(100 * Math.exp(value)).toFixed(1)}%`)
    .join(" · ");
  const about = () => { $("about").textContent = `${(-logprob / Math.LN2).toFixed(2)} bits – ${others}`; };
  span.addEventListener("mouseenter", about);
  span.addEventListener("focus", about);
  return span;
}

function add(choice) {
  const told = choice.logprobs;
  if (told && told.tokens.length) {
    const last = told.tokens.length - 1;
    $("text").append(token(choice.text, told.token_logprobs[last], told.top_logprobs[last]));
  } else {
    $("text").append(choice.text);
  }
}

async function run(event) {
  event.preventDefault();
  running = new AbortController();
  $("go").disabled = true;
  $("stop").disabled = false;
  $("about").textContent = "";
  const given = document.createElement("span");
  given.className = "given";
  given.textContent = $("prompt").value;
  $("text").replaceChildren(given);
  const began = performance.now();
  let count = 0;
  try {
    const answer = await fetch("/v1/completions", {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify({ ...body(), stream: true, logprobs: 4 }),
      signal: running.signal,
    });
    if (!answer.ok) throw new Error((await answer.json()).error.message);
    let rest = "";
    const decoder = new TextDecoder();
    const reader = answer.body.getReader();
    for (;;) {
      const { value, done } = await reader.read();
      if (done) break;
      rest += decoder.decode(value, { stream: true });
      const events = rest.split("\n\n");
      rest = events.pop();
      for (const each of events) {
        const data = each.slice("data: ".length);
        if (data === "[DONE]") continue;
        const chunk = JSON.parse(data);
        if (chunk.error) throw new Error(chunk.error.message);
        for (const choice of chunk.choices) { add(choice); count += 1; }
      }
      $("told").textContent = `${count} tokens, ${(1000 * count / (performance.now() - began)).toFixed(0)} per second`;
    }
  } catch (error) {
    $("told").textContent = error.name === "AbortError" ? "stopped" : error.message;
  } finally {
    running = null;
    $("go").disabled = false;
    $("stop").disabled = true;
  }
}

$("ask").addEventListener("submit", run);
$("ask").addEventListener("input", show);
$("stop").addEventListener("click", () => running && running.abort());
begin();
