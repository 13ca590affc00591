// Rules for the dashboard's modules; `make modules` runs them after the type checker.
const js = require("@eslint/js");

const BROWSER = [
  "addEventListener", "clearTimeout", "CSS", "document", "DOMParser", "Event", "EventSource", "fetch", "HTMLAnchorElement",
  "HTMLElement", "HTMLInputElement", "location", "requestAnimationFrame", "setInterval", "setTimeout", "URL", "window",
];

module.exports = [
  js.configs.recommended,
  {
    languageOptions: { globals: Object.fromEntries(BROWSER.map((name) => [name, "readonly"])) },
    linterOptions: { reportUnusedDisableDirectives: "error" },
    rules: {
      "eqeqeq": "error",
      "no-eval": "error",
      "no-implied-eval": "error",
      "no-new-func": "error",
      "no-script-url": "error",
      "no-shadow": "error",
      "no-var": "error",
      "prefer-const": "error",
      // HTML is made in html.js alone, by the one policy of trusted types.
      "no-restricted-properties": ["error",
        { property: "outerHTML" }, { property: "insertAdjacentHTML" }, { object: "document", property: "write" }],
    },
  },
  {
    ignores: ["**/html.js"],
    rules: { "no-restricted-syntax": ["error", { selector: "MemberExpression[property.name='innerHTML']", message: "use html.js" }] },
  },
];
