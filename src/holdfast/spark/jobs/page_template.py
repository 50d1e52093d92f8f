"""The report's page around its charts. `@NAME@` is where `page` puts its parts; no part comes from another host."""

STYLE = """
:root { --bg: #f7f8fa; --card: #ffffff; --ink: #1d2733; --dim: #5d6b7a; --line: #dfe4ea; color-scheme: light; }
:root[data-theme="dark"] {
  --bg: #12171d; --card: #1b222b; --ink: #e6ebf0; --dim: #9aa7b4; --line: #2d3742; color-scheme: dark;
}
* { box-sizing: border-box; }
body { margin: 0; background: var(--bg); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 1080px; margin: 0 auto; padding: 1rem; }
header { display: flex; align-items: center; gap: 1rem; flex-wrap: wrap; }
h1 { font-size: 1.6rem; margin: .6rem 0; flex: 1; } h2 { font-size: 1.15rem; margin: 0 0 .3rem; }
h2 small { color: var(--dim); font-weight: normal; }
button {
  background: var(--card); color: var(--ink); border: 1px solid var(--line); border-radius: 8px;
  padding: .4rem .8rem; font: inherit; cursor: pointer;
}
p { margin: .2rem 0 .8rem; } .lead, section p, .none { color: var(--dim); }
section, .card {
  background: var(--card); border: 1px solid var(--line); border-radius: 12px; padding: 1rem; margin: 1rem 0;
}
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: .8rem; }
.card { margin: 0; } .card b { display: block; font-size: 1.5rem; } .card span { color: var(--dim); }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%; font-size: .92rem; }
th, td { text-align: left; padding: .3rem .6rem; border-bottom: 1px solid var(--line); overflow-wrap: anywhere; }
dt { font-weight: 600; } dd { margin: 0 0 .5rem; color: var(--dim); }
"""

THEME = """
const root = document.documentElement;
const wanted = matchMedia('(prefers-color-scheme: dark)');
const charts = [...document.querySelectorAll('.figure')].map(script => {
  const figure = JSON.parse(script.textContent);
  return { box: script.previousElementSibling, figure };
});
function colours() {
  const style = getComputedStyle(root);
  const ink = style.getPropertyValue('--ink').trim(), line = style.getPropertyValue('--line').trim();
  return {
    'font.color': ink, 'xaxis.gridcolor': line, 'yaxis.gridcolor': line,
    'xaxis.linecolor': line, 'yaxis.linecolor': line,
  };
}
function show(theme) {
  root.dataset.theme = theme;
  for (const { box } of charts) if (box.data) Plotly.relayout(box, colours());
}
root.dataset.theme = wanted.matches ? 'dark' : 'light';
for (const { box, figure } of charts) {
  Plotly.newPlot(box, figure.data, figure.layout, { responsive: true, displaylogo: false, displayModeBar: false })
    .then(() => Plotly.relayout(box, colours()));
}
wanted.addEventListener('change', event => show(event.matches ? 'dark' : 'light'));
const other = () => root.dataset.theme === 'dark' ? 'light' : 'dark';
document.getElementById('theme').addEventListener('click', () => show(other()));
"""

PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>Holdfast report</title><style>@STYLE@</style></head>
<body><main><header><h1>What your devices have been saying</h1><button id="theme">light / dark</button></header>
@HEAD@
@BODY@
<section><h2>Words used here</h2><dl>
<dt>Message</dt><dd>A small piece of data that a device or a program sends, for example a temperature.</dd>
<dt>Topic</dt><dd>The name a message is sent under, like an address: <code>site/3/line/1/press/temperature</code>.</dd>
<dt>Broker</dt><dd>The post office: it receives every message and hands it to everyone who asked for its topic.</dd>
<dt>Remembered (retained)</dt>
<dd>The sender asked the broker to keep the newest message of a topic for whoever comes later.</dd>
<dt>Expiry</dt><dd>The sender said how long a remembered message is worth keeping.</dd>
</dl></section></main>
<script>@PLOTLY@</script><script>@THEME@</script></body></html>
"""
