// Finds sections that have all the words that were typed. No server, no other host: the index came as a script.
/* global SECTIONS */
const up = document.currentScript.dataset.up;
const field = document.getElementById("search");
const found = document.getElementById("found");
const MOST = 12;

/** How well a section answers: words in the heading count more than in the text; null when one is missing. */
function score([, , title, heading, text], words) {
  const [top, head, body] = [title.toLowerCase(), heading.toLowerCase(), text.toLowerCase()];
  let total = 0;
  for (const word of words) {
    const own = (head.includes(word) ? 10 : 0) + (top.includes(word) ? 5 : 0) + (body.includes(word) ? 1 : 0);
    if (!own) return null;
    total += own;
  }
  return total;
}

function excerpt(text, word) {
  const at = Math.max(0, text.toLowerCase().indexOf(word) - 50);
  return (at ? "…" : "") + text.slice(at, at + 150);
}

function look() {
  const words = field.value.toLowerCase().split(/\s+/).filter(Boolean);
  const hits = words.length ? SECTIONS.map((one) => [score(one, words), one]).filter(([points]) => points !== null) : [];
  hits.sort((a, b) => b[0] - a[0]);
  found.hidden = !words.length;
  found.replaceChildren(...hits.slice(0, MOST).map(([, [target, anchor, title, heading, text]]) => {
    const link = document.createElement("a");
    link.href = `${up}${target}#${anchor}`;
    link.textContent = heading === title ? title : `${title}: ${heading}`;
    const line = document.createElement("small");
    line.textContent = excerpt(text, words[0]);
    link.append(line);
    const item = document.createElement("li");
    item.append(link);
    return item;
  }));
  if (words.length && !hits.length) found.textContent = "Nothing found.";
}

field.addEventListener("input", look);
field.addEventListener("keydown", (event) => {
  if (event.key === "Enter") found.querySelector("a")?.click();
  if (event.key === "Escape") { field.value = ""; look(); }
});
found.addEventListener("click", () => { found.hidden = true; });
document.addEventListener("keydown", (event) => {
  if (event.key === "/" && document.activeElement !== field) { event.preventDefault(); field.focus(); }
});
