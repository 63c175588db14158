// SPDX-License-Identifier: Apache-2.0
#pragma once
// The style sheet of reports, for light and dark themes and for wide and narrow screens.

namespace weft {

inline constexpr const char* report_style = R"(
:root { color-scheme: light dark; --paper: #faf9f7; --card: #ffffff; --ink: #22262b; --soft: #6d737b; --rule: #e7e4df;
  --one: #2f7295; --two: #c4703a; --three: #6b8f3d; --four: #8661a8; --five: #b34a5e;
  --mono: ui-monospace, "SF Mono", Menlo, "DejaVu Sans Mono", monospace; }
@media (prefers-color-scheme: dark) { :root { --paper: #14171a; --card: #1c2024; --ink: #e4e5e3; --soft: #979da4;
  --rule: #2c3136; --one: #6db2d3; --two: #e09b6c; --three: #a3c274; --four: #b79bd3; --five: #e08a9b; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, "Segoe UI", Roboto,
  "Noto Sans", "DejaVu Sans", sans-serif; font-variant-numeric: tabular-nums; -webkit-text-size-adjust: 100%; }
main { max-width: 64rem; margin: 0 auto; padding: clamp(1.25rem, 5vw, 3.5rem) clamp(1rem, 4vw, 2rem); }
h1 { font-size: clamp(1.6rem, 4vw, 2.1rem); font-weight: 600; letter-spacing: -.015em; line-height: 1.2; margin: 0;
  text-wrap: balance; }
h2 { font-size: 1.05rem; font-weight: 600; margin: 2.75rem 0 .9rem; }
h3, figcaption { font-size: .92rem; font-weight: 600; margin: 0 0 .3rem; text-wrap: balance; }
.soft, header p, footer { color: var(--soft); }
header p { margin: .4rem 0 0; overflow-wrap: anywhere; }
.grid { display: grid; gap: 1rem; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); }
.pictures { grid-template-columns: 1fr; }
.figures { display: flex; flex-wrap: wrap; gap: .75rem; margin: 2rem 0 .9rem; }
.card { background: var(--card); border: 1px solid var(--rule); border-radius: 12px; padding: 1.1rem 1.25rem; margin: 0;
  min-width: 0; }
.figures .card { display: flex; flex: 1 1 7.4rem; flex-direction: column-reverse; justify-content: flex-end;
  padding: .9rem .85rem; min-width: min-content; }
.figures dt { color: var(--soft); font-size: .85rem; }
.figures dd { margin: 0; font-size: 1.3rem; font-weight: 600; letter-spacing: -.01em; white-space: nowrap; }
.names { margin: 0; font-size: .85rem; overflow-wrap: anywhere; }
.names b { color: var(--ink); font-weight: 400; font-family: var(--mono); }
svg { display: block; width: 100%; height: auto; overflow: visible; }
svg text { fill: var(--soft); font-size: 11.5px; }
.grid line, line.grid { stroke: var(--rule); stroke-width: 1; }
.one { --color: var(--one); } .two { --color: var(--two); } .three { --color: var(--three); }
.four { --color: var(--four); } .five { --color: var(--five); }
.hue { --color: hsl(var(--hue) 55% 45%); }
@media (prefers-color-scheme: dark) { .hue { --color: hsl(var(--hue) 60% 65%); } }
g.hue { fill: var(--color); opacity: .75; }
.line { fill: none; stroke: var(--color); stroke-width: 2; stroke-linejoin: round; stroke-linecap: round; }
.band { fill: var(--color); opacity: .16; }
.end, .bar { fill: var(--color); }
.legend { display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; margin: 0 0 .6rem; font-size: .85rem; color: var(--soft); }
.legend b { color: var(--ink); font-weight: 600; }
.legend span::before { content: ""; display: inline-block; width: .6em; height: .6em; border-radius: 50%;
  background: var(--color); margin-right: .45em; }
figure img { display: block; width: 100%; image-rendering: pixelated; border-radius: 6px; margin-top: .5rem; }
.rank { display: grid; grid-template-columns: 4.2rem 1fr; gap: .75rem; align-items: center; margin: .45rem 0;
  font-size: .9rem; }
.split { display: flex; gap: 2px; height: 1.1rem; border-radius: 5px; overflow: hidden; }
.split i { background: var(--color); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: .9rem; }
th, td { text-align: right; padding: .45rem 0 .45rem 1.25rem; white-space: nowrap; }
th:first-child, td:first-child { text-align: left; padding-left: 0; }
th { color: var(--soft); font-weight: 400; }
td { border-top: 1px solid var(--rule); }
tr:last-child td { font-weight: 600; }
.even tr:last-child td { font-weight: 400; }
.even td { white-space: normal; overflow-wrap: anywhere; }
pre { margin: 0; font: .82rem/1.7 var(--mono); columns: 17rem;
  column-gap: 2rem; white-space: pre-wrap; overflow-wrap: anywhere; }
footer { margin-top: 2.75rem; font-size: .82rem; }
@media (min-width: 56rem) { figure { display: grid; grid-template-columns: 1fr 36rem; gap: 2rem; }
  figure img { margin: 0; } }
@media (max-width: 40rem) { svg text { font-size: 14px; } table { font-size: .82rem; }
  tr { display: grid; grid-template-columns: repeat(4, 1fr); border-top: 1px solid var(--rule); padding: .3rem 0; }
  tr:first-child { border: 0; } th, td { border: 0; padding: 0; white-space: normal; align-self: end; }
  th:first-child, td:first-child { grid-column: 1 / -1; }
  .even tr { display: flex; flex-wrap: wrap; gap: 0 .75rem; } .even th, .even td { flex: 1 0 0; min-width: 0; }
  .even th:first-child, .even td:first-child { flex-basis: 100%; } }
@media print { .card { break-inside: avoid; } }
)";

}  // namespace weft
