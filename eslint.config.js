// Rules for the studio's page: the recommended ones, and lines of at most 120 characters (prettier leaves long strings).

import js from "@eslint/js";
import globals from "globals";

export default [
  js.configs.recommended,
  {
    files: ["src/lmlab/studio/static/**/*.js"],
    languageOptions: { globals: globals.browser },
  },
  {
    files: ["tests/studio/js/**/*.js"],
    languageOptions: { globals: globals.node },
  },
  {
    rules: {
      eqeqeq: "error",
      "max-len": ["error", { code: 120 }],
      "no-var": "error",
      "prefer-const": ["error", { destructuring: "all" }],
    },
  },
];
