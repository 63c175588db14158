// A collective as a matrix, and what comes back through it. The address keeps the exercise.
const rooted = ["broadcast", "reduce", "gather", "scatter"];
const by_rows = ["all_gather", "reduce_scatter", "gather", "scatter", "all_to_all", "permute"];
const what_forward_does = {
  all_gather: "Every rank gets the rows of all ranks.",
  reduce_scatter: "The sum over ranks is divided: each rank gets its rows of it.",
  all_reduce: "Every rank gets the sum over ranks.",
  broadcast: "Every rank gets what the root has.",
  reduce: "The root gets the sum over ranks, the others zeros.",
  gather: "The root gets the rows of all ranks, the others none.",
  scatter: "Each rank gets its rows of what the root has.",
  all_to_all: "Each rank has a block for every rank.",
  permute: "Each rank gets what the rank before it has.",
  scan: "Each rank gets the sum over the ranks up to itself.",
  exscan: "Each rank gets the sum over the ranks before itself.",
  drawn: "Each rank gets the sum of the tensors that you choose. Click the cells.",
};

const exercise = {collective: "all_gather", ranks: 3, root: 0, uneven: false, seed: 0};
let drawn = [], filled = [];  // cells, of the learner's own collective and backward
let right = null;             // the answer of the adjoint
let predicted = null;         // the fields for predictions

const empty_cells = () => Array.from({length: exercise.ranks}, () => Array(exercise.ranks).fill(false));
function asked() {
  const {collective, ranks, uneven, seed} = exercise, request = {collective, ranks, uneven, seed};
  if (rooted.includes(collective)) request.root = exercise.root;
  if (collective === "drawn") request.drawn = drawn;
  return request;
}

// Which rows of a source land where.
function words_of(portion) {
  if (!portion) return "";
  const [from, count, to] = portion, rows = count > 1 ? `${from}–${from + count - 1}` : `${from}`;
  return to === from ? rows : `${rows}→${to}`;
}

// Rows of the table are those who get; a click calls click(r, s), if there is one.
function show_blocks(id, portions, names, on, click) {
  const cell_of = (r, s) => {
    const text = on[r][s] ? words_of(portions[r][s]) || "0" : "";
    const cell = make(click ? "button" : "span", text, on[r][s] ? "on" : ""), td = make("td");
    cell.dataset.place = `${r},${s}`;
    if (click) {
      cell.setAttribute("aria-pressed", on[r][s]);
      cell.setAttribute("aria-label", `${names[0]} ${r}, ${names[1]} ${s}`);
      cell.addEventListener("click", () => { click(r, s); cell_at(id, r, s).focus(); });
    }
    td.append(cell);
    return td;
  };
  const head = make("tr"), lines = portions.map((row, r) => {
    const line = make("tr");
    line.append(make("th", `${names[0]} ${r}`), ...row.map((_, s) => cell_of(r, s)));
    return line;
  });
  head.append(make("th", ""), ...portions.map((_, s) => make("th", `${names[1]} ${s}`)));
  element(id).replaceChildren(head, ...lines);
}
const cell_at = (id, r, s) => element(id).querySelector(`[data-place="${r},${s}"]`);
const on_where = portions => portions.map(row => row.map(portion => portion !== null));

function show_backward() {
  const name = element("mistake").value;
  if (name === "filled in") return show_blocks("backward", right.backward, ["rank", "loss"], filled, (r, s) => {
    filled[r][s] = !filled[r][s];
    hide_answers();
    show_backward();
  });
  const {backward} = ask({...asked(), mistake: name});
  show_blocks("backward", backward, ["rank", "loss"], on_where(backward));
}

function hide_answers() {
  element("verdict").hidden = true;
  hide_tapes();
}

function show_exercise() {
  right = ask(asked());
  const click = exercise.collective === "drawn" ? (r, s) => { drawn[r][s] = !drawn[r][s]; show_exercise(); } : null;
  show_blocks("forward", right.forward, ["rank", "from"], on_where(right.forward), click);
  element("about-forward").textContent = what_forward_does[exercise.collective]
    + " A cell shows which rows a rank reads, and, after the arrow, where they land.";
  element("of-root").hidden = !rooted.includes(exercise.collective);
  element("uneven").parentElement.hidden = !by_rows.includes(exercise.collective);
  element("about-values").textContent = exercise.seed
    ? "Values, and the factors of the losses, are random. Let Weft judge the matrix above, or look."
    : "Rank r's loss is 10^r times the sum of its result. So the digits of what comes back tell whose losses are in it: 101 is of ranks 0 and 2. One number for each row of the rank's tensor.";
  predicted = predictions(right.cotangents.map((wanted, r) => ({label: `rank ${r}`, wanted})),
    exercise.seed ? 0 : exercise.ranks, () => show_tapes(right.record));
  element("predictions").replaceChildren(predicted.table);
  hide_answers();
  show_backward();
  history.replaceState(null, "", "#" + new URLSearchParams(Object.entries(exercise)));
}

function judge() {
  const name = element("mistake").value;
  const given = ask({...asked(), ...(name === "filled in" ? {backward: filled} : {mistake: name})});
  element("verdict").replaceChildren(...words_of_verdict(given.verdict));
  element("verdict").hidden = false;
  given.backward.forEach((row, r) => row.forEach((portion, s) =>
    cell_at("backward", r, s).classList.toggle("wrong", String(portion) !== String(right.backward[r][s]))));
  show_tapes(given.record);
}
function words_of_verdict({correct, products, names, differences, shows}) {
  const [there, back] = products.map(each => each.toPrecision(6));
  if (correct) return [make("h2", "This is the adjoint", "right"),
    make("p", `For random x and g, summed over ranks: ⟨g, F x⟩ = ${there} and ⟨F* g, x⟩ = ${back}.`)];
  const title = "Not the adjoint" + (names.length ? `: ${names.map(each => each.name).join(", or ")}` : "");
  const parts = [make("h2", title, "off"),
    make("p", `For random x and g, summed over ranks: ⟨g, F x⟩ = ${there}, but this backward gives ⟨B g, x⟩ = ${back}.`)];
  parts.push(...names.map(about_mistake));
  if (names.length === 0) {
    const list = make("ul"), more = differences.length - 6;
    list.append(...differences.slice(0, 6).map(each => make("li", each)));
    if (more > 0) list.append(make("li", `and ${more} more`));
    parts.push(list);
  }
  if (!shows) parts.push(make("p", "The values of this exercise cannot show it: what comes back is equal all the same. Take other values."));
  return [...parts, ...in_pytorch(names)];
}

function begin_matrix() {
  drawn = empty_cells().map((row, r) => row.map((_, s) => r === s));
  filled = empty_cells();
  fill(element("root"), Array.from({length: exercise.ranks}, (_, i) => [i, `${i}`]));
  for (const [name, value] of Object.entries(exercise)) name === "uneven" ? element(name).checked = value : element(name).value = value;
  show_exercise();
}
function prepare_matrix() {
  fill(element("collective"), Object.keys(what_forward_does).map(name => [name, name === "drawn" ? "my own" : name]));
  fill(element("ranks"), [1, 2, 3, 4, 5].map(n => [n, `${n}`]));
  fill(element("seed"), [[0, "digits"], ...[1, 2, 3].map(seed => [seed, `random ${seed}`])]);
  fill(element("mistake"), [["filled in", "as I fill it in"], ["none", "the adjoint"],
    ...mistakes.slice(1).map(({name}) => [name, name])]);
  const take = {collective: value => value, ranks: Number, root: Number, seed: Number};
  for (const [name, read] of Object.entries(take)) element(name).addEventListener("change", event => {
    exercise[name] = read(event.target.value);
    exercise.root = Math.min(exercise.root, exercise.ranks - 1);
    begin_matrix();
  });
  element("uneven").addEventListener("change", event => { exercise.uneven = event.target.checked; begin_matrix(); });
  element("mistake").addEventListener("change", () => {
    hide_answers();
    show_backward();
    if (element("mistake").value !== "filled in") judge();
  });
  element("judge").addEventListener("click", judge);
  element("compare").addEventListener("click", () => predicted.compare());
  element("show").addEventListener("click", () => predicted.reveal());

  // Arrow keys go from cell to cell.
  for (const id of ["forward", "backward"]) element(id).addEventListener("keydown", event => {
    const by = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]}[event.key];
    if (!by || !event.target.dataset.place) return;
    const [r, s] = event.target.dataset.place.split(",").map(Number), next = cell_at(id, r + by[0], s + by[1]);
    if (next?.matches("button")) next.focus();
    event.preventDefault();
  });
  // A block and its transpose are marked together.
  for (const [id, other] of [["forward", "backward"], ["backward", "forward"]]) {
    const mark = (event, on) => {
      const place = event.target.dataset?.place;
      if (place) cell_at(other, ...place.split(",").reverse())?.classList.toggle("partner", on && !element("verdict").hidden);
    };
    element(id).addEventListener("mouseover", event => mark(event, true));
    element(id).addEventListener("mouseout", event => mark(event, false));
  }
}

function open_matrix(given) {
  if (given.get("collective") in what_forward_does) exercise.collective = given.get("collective");
  if (given.get("ranks") >= 1 && given.get("ranks") <= 5) exercise.ranks = Number(given.get("ranks"));
  if (given.has("root")) exercise.root = Number(given.get("root"));
  if (!(exercise.root >= 0 && exercise.root < exercise.ranks)) exercise.root = 0;
  if (given.has("uneven")) exercise.uneven = given.get("uneven") === "true";
  if (given.get("seed") >= 0 && given.get("seed") <= 3) exercise.seed = Number(given.get("seed"));
  begin_matrix();
}
