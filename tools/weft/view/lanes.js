// The tapes of all ranks side by side (lanes.html), shown by show_record; moved(tape, moment) is called at each move.
// formulas.js and figure.js come before this.
const element = id => document.getElementById(id);
const placements = {
  R: "Replicated: equal values; the cotangents are terms of a sum",
  I: "Invariant: equal values, equal cotangents",
  V: "Varying: each rank has its own",
  P: "Partial: terms of a sum that is pending; equal cotangents",
  C: "Constant: equal values that need no cotangent",
  "?": "unknown",
};
const equal_values = "RIC", equal_cotangents = "IP";
const bytes_of_type = {f64: 8, f32: 4, bf16: 2};

// A node of one rank, as tapes.json has it.
const node_of = fields => fields && {number: fields[0], inputs: fields[1], placement: fields[2], type: fields[3],
  value: {brief: fields[4], whole: fields[5]}, cotangent: {brief: fields[6], whole: fields[7]}};
let tapes = [];
let moved = () => {};
let lines = [];    // of the tape that is shown
let rows = [];     // of the table, one per line
let moments = [];  // forward, a line each, then backward, those that have a cotangent
let now = 0, timer = null;

function make(name, text = "", kind = "") {
  const made = document.createElement(name);
  if (text) made.textContent = text;
  if (kind) made.className = kind;
  return made;
}

const first_of = line => line.ranks.find(node => node);
const chips = placement => [...placement].map(letter => make("span", letter, "chip " + letter));

// Whether values that placements declare equal are not. With several groups the ranks of each are not known here.
function differs(line, part, letters) {
  const nodes = line.ranks.filter(node => node && node.placement.length === 1 && letters.includes(node.placement));
  return new Set(nodes.map(node => node[part].brief).filter(brief => brief)).size > 1;
}

function text_of(excerpt) { return excerpt.whole.length > 0 && excerpt.whole.length < 32 ? excerpt.whole : excerpt.brief; }

// "f32, 98,304 bytes"
function type_and_bytes(node) {
  const extents = node.value.brief.split(" ")[0].split("x").map(each => each === "scalar" ? 1 : Number(each));
  const bytes = extents.reduce((product, each) => product * each, bytes_of_type[node.type]);
  return `${node.type}, ${bytes.toLocaleString("en")} bytes`;
}

function name_of(line) {
  const node = first_of(line);
  return `${node.number} ${line.op}${node.inputs}`;
}

function row_of(line, index) {
  const row = make("tr", "", line.collective ? "collective" : ""), node = first_of(line), name = make("td");
  name.append(make("span", `${name_of(line)} `, "node"), ...chips(node.placement));
  row.append(name);
  const odd_value = differs(line, "value", equal_values), odd_cotangent = differs(line, "cotangent", equal_cotangents);
  for (const node of line.ranks) {
    const cell = make("td");
    if (node) cell.append(make("span", text_of(node.value), "value" + (odd_value ? " differs" : "")),
                          make("span", text_of(node.cotangent), "cotangent" + (odd_cotangent ? " differs" : "")));
    row.append(cell);
  }
  row.addEventListener("click", () => go(moments.findIndex(each => each.line === index)));
  return row;
}

function show_tape(number) {
  lines = tapes[number] ?? [];
  rows = lines.map(row_of);
  document.querySelector(".lanes tbody").replaceChildren(...rows);
  const odd = lines.flatMap(line => [["value", equal_values], ["cotangent", equal_cotangents]]
    .filter(([part, letters]) => differs(line, part, letters)).map(([part]) => `the ${part} of ${first_of(line).number} ${line.op}`));
  element("doubt").textContent = odd.length === 0 ? "" : `Should be equal on all ranks, and ${odd.length > 1 ? "are" : "is"} not: `
    + odd.slice(0, 5).join(", ") + (odd.length > 5 ? `, and ${odd.length - 5} more` : "");
  filter();
}

function filter() {
  const wanted = element("search").value.toLowerCase(), only = element("collectives").checked;
  const shown = lines.map(line => (!only || line.collective) && line.op.toLowerCase().includes(wanted));
  rows.forEach((row, i) => { row.hidden = !shown[i]; });
  const forward = lines.map((line, i) => ({line: i, backward: false})).filter(each => shown[each.line]);
  const backward = [...forward].reverse().filter(each => lines[each.line].ranks.some(node => node?.cotangent.brief))
    .map(each => ({line: each.line, backward: true}));
  moments = [...forward, ...backward];
  element("time").max = Math.max(moments.length - 1, 0);
  go(Math.min(now, moments.length - 1));
}

function go(moment) {
  now = Math.max(0, Math.min(moment, moments.length - 1));
  element("time").value = now;
  const turned = moments[now]?.backward, seen = new Set(), back = new Set();
  moments.slice(0, now + 1).forEach(each => (each.backward ? back : seen).add(each.line));
  rows.forEach((row, i) => {
    row.classList.toggle("seen", turned || seen.has(i));
    row.classList.toggle("back", back.has(i));
    row.classList.toggle("now", i === moments[now]?.line);
  });
  moved(element("tapes").querySelector("select").selectedIndex + 1, now + 1);
  show_details();
}

function save_moment() {
  if (moments.length === 0) return;
  const here = moments.slice(0, now + 1), back = new Set(here.filter(each => each.backward).map(each => each.line));
  const seen = [...new Set(here.map(each => each.line))].map(index => {
    const line = lines[index], value_differs = differs(line, "value", equal_values);
    const cotangent_differs = differs(line, "cotangent", equal_cotangents);
    const cells = line.ranks.map(node => node && {value: text_of(node.value), value_differs, cotangent_differs,
      cotangent: back.has(index) && node.cotangent.brief ? `← ${text_of(node.cotangent)}` : ""});
    return {line, name: name_of(line), placement: first_of(line).placement, cells};
  });
  const tape = choice.selectedIndex + 1, which = tapes.length > 1 ? `tape ${tape}, ` : "";
  const title = `${document.title}; ${which}${document.querySelector("output").textContent}`;
  save_figure(figure_of(seen, lines[0].ranks.length, title), `tape-${tape}-${now + 1}.svg`);
}

function link_to(number, rank) {
  const link = make("a", number);
  link.href = "#";
  link.addEventListener("click", event => {
    event.preventDefault();
    const line = lines.findIndex(each => each.ranks[rank]?.number === Number(number));
    const there = moments.findIndex(each => each.line === line && each.backward === moments[now].backward);
    if (there >= 0) go(there);
    follow();
  });
  return link;
}

// "(3, const)", with links to the nodes.
function inputs_of(node, rank) {
  const made = make("span", "");
  for (const part of node.inputs.split(/(\d+)/)) made.append(/^\d+$/.test(part) ? link_to(part, rank) : part);
  return made;
}

function show_details() {
  const moment = moments[now], details = element("details");
  const output = document.querySelector("output");
  if (!moment) {
    output.textContent = "no node";
    return details.replaceChildren();
  }
  output.textContent = `${moment.backward ? "backward" : "forward"}, ${now + 1} of ${moments.length}`;
  const line = lines[moment.line], node = first_of(line), rank = line.ranks.indexOf(node), head = make("h2");
  head.append(`${node.number} ${line.op}`, inputs_of(node, rank), " ", ...chips(node.placement));
  const about = make("p", [...new Set(node.placement)].map(letter => placements[letter]).join(". ") + ".", "soft");
  const list = make("dl"), formula = (formulas[line.op] ?? []).map(each => make("p", each, "formula"));
  line.ranks.forEach((each, r) => {
    if (!each) return;
    const value = make("dd", `${each.value.whole || each.value.brief} `);
    value.append(make("span", type_and_bytes(each), "soft"));
    list.append(make("dt", `rank ${r}`), value);
    if (moment.backward) list.append(make("dd", "cotangent " + (each.cotangent.whole || each.cotangent.brief)));
  });
  details.replaceChildren(head, about, ...formula);
  if (line.collective) details.append(make("p", "All ranks run this together" + (line.place ? `, at ${line.place}.` : ".")));
  details.append(list);
}

function follow() {
  const row = rows[moments[now]?.line], lanes = document.querySelector(".lanes");
  if (row) lanes.scrollTop = row.offsetTop - lanes.clientHeight / 2;
}
function step(by) { go(now + by); follow(); }
function play() {
  clearInterval(timer);
  timer = timer ? null : setInterval(() => now + 1 < moments.length ? step(1) : play(), 400);
  element("play").textContent = timer ? "stop" : "play";
}

for (const [letter, meaning] of Object.entries(placements)) {
  const entry = make("span");
  entry.append(...chips(letter), " " + meaning);
  element("legend").append(entry);
}
const choice = element("tapes").querySelector("select");
choice.addEventListener("change", () => { now = 0; show_tape(choice.selectedIndex); });
element("time").addEventListener("input", event => { go(Number(event.target.value)); follow(); });
element("before").addEventListener("click", () => step(-1));
element("after").addEventListener("click", () => step(1));
element("play").addEventListener("click", play);
element("figure").addEventListener("click", save_moment);
element("collectives").addEventListener("change", filter);
element("search").addEventListener("input", filter);
document.addEventListener("keydown", event => {
  if (event.defaultPrevented || event.target.matches("input[type=search], select")) return;
  const moves = {ArrowDown: 1, ArrowRight: 1, ArrowUp: -1, ArrowLeft: -1, PageDown: 20, PageUp: -20, Home: -1e9, End: 1e9};
  if (event.key in moves) step(moves[event.key]);
  else if (event.key === " " && !event.target.matches("button, input")) play();
  else return;
  event.preventDefault();
});

// Shows the first moment, or this one; both count from 1.
function show_record(record, tape = 1, moment = 1) {
  tapes = record.tapes.map(lines => lines.map(line => ({...line, ranks: line.ranks.map(node_of)})));
  const head = make("tr");
  head.append(make("th", "node"), ...Array.from({length: record.ranks}, (_, r) => make("th", `rank ${r}`)));
  document.querySelector(".lanes thead").replaceChildren(head);
  document.querySelector(".lanes table").style.minWidth = `${12 + 9 * record.ranks}rem`;
  choice.replaceChildren(...tapes.map((tape, i) => make("option", `${i + 1} of ${tapes.length}: ${tape.length} lines`)));
  element("tapes").hidden = tapes.length < 2;
  choice.selectedIndex = Math.min(Math.max(tape, 1), tapes.length) - 1;
  now = moment - 1;
  show_tape(choice.selectedIndex);
}
