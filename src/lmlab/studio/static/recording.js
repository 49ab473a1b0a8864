// Answers of the server, recorded when a lecture is saved as a file, and given again where the file is opened.

import { sampleFrom } from "./sampling.js";

let recording = null,
  saved = null;

export const isRecording = () => recording !== null;
/** Whether this page is a saved lecture, which has no server. */
export const isSaved = () => saved !== null;

/** Record all answers until `stop` is called, which returns them by their keys. */
export const record = () => {
  recording = {};
  return {
    size: () => JSON.stringify(recording).length,
    stop: () => {
      const found = recording;
      recording = null;
      return found;
    },
  };
};

/** Answer from a recording from now on. */
export const replay = answers => {
  saved = new Map(Object.entries(answers));
};

/** Requests that differ only in what the page can compute itself have one key. */
const keyOf = (address, body) => {
  if (address.endsWith("/next") && body) return JSON.stringify([address, body.runs, body.text]);
  return JSON.stringify([address, body]);
};

/** The answer to a request: from the recording of a saved lecture, else what `request` returns. */
export const answer = async (address, body, request) => {
  const key = keyOf(address, body);
  if (!saved) {
    const found = await request();
    if (recording && (!(key in recording) || body?.distribution)) recording[key] = found;
    return found;
  }
  if (!saved.has(key))
    throw new Error("This file has no answer to that. It contains the texts and runs of the lecture, but no models.");
  const found = structuredClone(saved.get(key));
  return address.endsWith("/next") ? sampleFrom(found, body) : found;
};

/** Bytes as text, and back. */
export const encode = buffer => {
  const bytes = new Uint8Array(buffer),
    parts = [];
  for (let at = 0; at < bytes.length; at += 8192) parts.push(String.fromCharCode(...bytes.subarray(at, at + 8192)));
  return btoa(parts.join(""));
};
export const decode = text => Uint8Array.from(atob(text), letter => letter.charCodeAt(0)).buffer;
