// A lecture: views in order, with arrow keys and large type.

import { h } from "./dom.js";

export const startLecture = () => { void h };
