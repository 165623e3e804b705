// Scores of Sphinx's search, with which pages that explain a word come before references that contain it.
const REFERENCES = ["api/", "worlds/", "servers/", "wrappers/"];
var Scorer = {
  score: ([docname, title, anchor, descr, score]) =>
    REFERENCES.some((folder) => docname.startsWith(folder)) ? score - 100 : score,
  // Sphinx's own values follow.
  objNameMatch: 11,
  objPartialMatch: 6,
  objPrio: { 0: 15, 1: 5, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
