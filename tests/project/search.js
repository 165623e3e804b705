// node search.js HTML_FOLDER WORD...: the pages that Sphinx's search lists, best first, one JSON list a word.
const fs = require("fs");
const vm = require("vm");
const [folder, ...words] = process.argv.slice(2);
// The browser's objects that Sphinx's scripts touch.
const page = { documentElement: { dataset: { content_root: "" } }, readyState: "loading" };
page.addEventListener = () => {};
page.getElementById = page.querySelector = () => null;
page.querySelectorAll = () => [];
const context = vm.createContext({ document: page, console, URLSearchParams });
context.window = context;
context.location = { search: "" };
context.localStorage = { setItem() {} };
const scripts = ["documentation_options", "doctools", "sphinx_highlight", "language_data", "searchtools"];
for (const path of [...scripts.map((name) => `_static/${name}.js`), "searchindex.js"])
  vm.runInContext(fs.readFileSync(`${folder}/${path}`, "utf8"), context);
for (const word of words) {
  const found = vm.runInContext(`Search._performSearch(...Search._parseQuery(${JSON.stringify(word)}))`, context);
  console.log(JSON.stringify(found.reverse().map(([name]) => name)));
}
