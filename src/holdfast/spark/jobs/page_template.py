"""The report's page around its charts. `@NAME@` is where `page` puts its parts; no part comes from another host."""

STYLE = """
:root {
  --bg: #f3f5f9; --card: #ffffff; --ink: #18222e; --dim: #5a6878; --line: #dde3ea; --accent: #2f6fe0;
  --good: #1f8a5b; --look: #b06f00; color-scheme: light;
}
:root[data-theme="dark"] {
  --bg: #0f141a; --card: #19212a; --ink: #e8edf3; --dim: #9caab9; --line: #2a3541; --accent: #7fb0ff;
  --good: #4fd19a; --look: #f0b54a; color-scheme: dark;
}
* { box-sizing: border-box; }
html { scroll-behavior: smooth; scroll-padding-top: 3.4rem; }
body { margin: 0; background: var(--bg); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 1180px; margin: 0 auto; padding: 0 1rem 3rem; }
header { display: flex; align-items: center; gap: 1rem; flex-wrap: wrap; padding-top: 1.4rem; }
h1 { font-size: clamp(1.5rem, 4vw, 2.1rem); line-height: 1.2; margin: 0; flex: 1; letter-spacing: -.01em; }
h2 { font-size: 1.12rem; margin: 0 0 .2rem; } h2 small { color: var(--dim); font-weight: normal; }
a { color: var(--accent); }
button {
  background: var(--card); color: var(--ink); border: 1px solid var(--line); border-radius: 99px;
  padding: .4rem .9rem; font: inherit; cursor: pointer;
}
p { margin: 0 0 .7rem; } .lead, section p, .none { color: var(--dim); } section p { font-size: .94rem; }
.lead { margin: .4rem 0 1rem; }
nav {
  position: sticky; top: 0; z-index: 9; display: flex; gap: .4rem; overflow-x: auto; padding: .5rem 0;
  background: var(--bg); margin-bottom: .4rem; scrollbar-width: none;
}
nav a {
  white-space: nowrap; text-decoration: none; font-size: .88rem; color: var(--dim); padding: .2rem .7rem;
  border: 1px solid var(--line); border-radius: 99px; background: var(--card);
}
nav a:hover { color: var(--ink); }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: .8rem; margin-bottom: .8rem; }
section, .card { background: var(--card); border: 1px solid var(--line); border-radius: 14px; padding: 1rem 1.1rem; }
.card b { display: block; font-size: 1.6rem; line-height: 1.25; font-variant-numeric: tabular-nums; }
.card span { color: var(--dim); font-size: .9rem; }
.grid { display: grid; grid-template-columns: repeat(2, minmax(0, 1fr)); gap: .8rem; }
.grid > * { grid-column: 1 / -1; min-width: 0; } .grid > .half { grid-column: auto; }
@media (max-width: 820px) { .grid > .half { grid-column: 1 / -1; } }
.findings ul { list-style: none; margin: .5rem 0 0; padding: 0; }
.findings li { padding: .28rem 0 .28rem 1.6rem; position: relative; overflow-wrap: anywhere; }
.findings li::before { position: absolute; left: 0; font-weight: 700; content: "\\2022"; color: var(--dim); }
.findings li.good::before { content: "\\2713"; color: var(--good); }
.findings li.look::before { content: "!"; color: var(--look); left: .25rem; }
.findings a { font-size: .85rem; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: left; padding: .3rem .6rem .3rem 0; border-bottom: 1px solid var(--line); }
th { color: var(--dim); font-weight: 600; } td { overflow-wrap: anywhere; min-width: 5.5rem; }
summary { cursor: pointer; color: var(--accent); padding: .4rem 0; font-size: .9rem; }
dl { margin: .4rem 0 0; } dt { font-weight: 600; } dd { margin: 0 0 .5rem; color: var(--dim); }
@media print { nav, button { display: none; } section { break-inside: avoid; } }
"""

THEME = """
const root = document.documentElement;
const wanted = matchMedia('(prefers-color-scheme: dark)');
const charts = [...document.querySelectorAll('.figure')].map(script => {
  const figure = JSON.parse(script.textContent);
  return { box: script.previousElementSibling, figure };
});
function colours(figure) {
  const style = getComputedStyle(root);
  const of = name => style.getPropertyValue(name).trim();
  const ink = of('--ink'), line = of('--line');
  const found = {
    'font.color': ink, 'xaxis.gridcolor': line, 'yaxis.gridcolor': line,
    'xaxis.linecolor': line, 'yaxis.linecolor': line, 'xaxis.zerolinecolor': line, 'yaxis.zerolinecolor': line,
    'hoverlabel.bgcolor': of('--card'), 'hoverlabel.bordercolor': line, 'hoverlabel.font.color': ink,
  };
  (figure.layout.annotations || []).forEach((_, at) => { found[`annotations[${at}].font.color`] = ink; });
  return found;
}
function show(theme) {
  root.dataset.theme = theme;
  for (const { box, figure } of charts) if (box.data) Plotly.relayout(box, colours(figure));
}
root.dataset.theme = wanted.matches ? 'dark' : 'light';
function draw({ box, figure }) {
  Plotly.newPlot(box, figure.data, figure.layout, { responsive: true, displaylogo: false, displayModeBar: false })
    .then(() => Plotly.relayout(box, colours(figure)));
}
const watch = new IntersectionObserver(entries => {
  for (const entry of entries) if (entry.isIntersecting) {
    watch.unobserve(entry.target);
    draw(charts.find(chart => chart.box === entry.target));
  }
}, { rootMargin: '600px' });
for (const chart of charts) {
  chart.box.style.minHeight = `${chart.figure.layout.height}px`;
  watch.observe(chart.box);
}
addEventListener('beforeprint', () => charts.filter(chart => !chart.box.data).forEach(draw));
wanted.addEventListener('change', event => show(event.matches ? 'dark' : 'light'));
const other = () => root.dataset.theme === 'dark' ? 'light' : 'dark';
document.getElementById('theme').addEventListener('click', () => show(other()));
"""

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Holdfast report</title><style>@STYLE@</style></head>
<body><main><header><h1>What your devices have been saying</h1><button id="theme">light / dark</button></header>
@HEAD@
<nav aria-label="parts of this page">
<a href="#traffic">Traffic</a><a href="#busiest">Busiest</a><a href="#biggest">Biggest</a><a href="#fresh">Freshness</a>
<a href="#churn">Changes</a><a href="#expiry">Expiry</a><a href="#refused">Refused</a><a href="#devices">Devices</a>
<a href="#quiet">Gone quiet</a><a href="#ghost">Clean up</a><a href="#words">Words</a></nav>
<div class="grid">
@BODY@
<section id="words"><h2>Words used here</h2><dl>
<dt>Message</dt><dd>A small piece of data that a device or a program sends, for example a temperature.</dd>
<dt>Topic</dt><dd>The name a message is sent under, like an address: <code>site/3/line/1/press/temperature</code>.</dd>
<dt>Broker</dt><dd>The post office: it receives every message and hands it to everyone who asked for its topic.</dd>
<dt>Remembered (retained)</dt>
<dd>The sender asked the broker to keep the newest message of a topic for whoever comes later.</dd>
<dt>Expiry</dt><dd>The sender said how long a remembered message is worth keeping.</dd>
</dl></section></div></main>
<script>@PLOTLY@</script><script>@THEME@</script></body></html>
"""
