// The page of exercises. All that is computed comes from Weft: answer(exercise) asks it (requests.h).
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
// Programs for PyTorch that make a mistake.
const made_by = {
  "own slot": "rows = [torch.empty_like(x) for _ in range(W)]\ndist.all_gather(rows, x)   # has no gradient\nrows[rank] = x             # so only the own slot has one",
  "nothing": "rows = [torch.empty_like(x) for _ in range(W)]\ndist.all_gather(rows, x)   # has no gradient\ny = torch.cat(rows)",
  "mean": "def backward(ctx, g):\n    dist.all_reduce(g, op=dist.ReduceOp.AVG)   # of a sum, the adjoint is a sum",
  "reduced twice": "y = torch.distributed.nn.functional.all_reduce(x)   # sums gradients in backward\n...\ndist.all_reduce(x.grad)                             # and here again",
  "counted twice": "parameter.register_hook(reduce)   # fires for each of two losses\nfirst.backward(retain_graph=True)\nsecond.backward()",
  "own slot times W": "def backward(ctx, g):\n    return g[rank] * W   # right only if all ranks have the same loss",
  "sum of own slots": "def backward(ctx, g):\n    mine = g[rank].clone()\n    dist.all_reduce(mine)   # adds the slots of different ranks",
};

Weft().then(weft => {
  const answer = exercise => {
    weft.ccall("weft_ask", null, ["string"], [JSON.stringify(exercise)]);
    return JSON.parse(weft.ccall("weft_reply", "string", [], []));
  };
  window.answer = answer;
  const exercise = {collective: "all_gather", ranks: 3, root: 0, uneven: false, seed: 0};
  let drawn = [], filled = [], right = null;  // right: the answer of the adjoint

  const empty_cells = () => Array.from({length: exercise.ranks}, () => Array(exercise.ranks).fill(false));
  const asked = () => {
    const {collective, ranks, uneven, seed} = exercise, request = {collective, ranks, uneven, seed};
    if (rooted.includes(collective)) request.root = exercise.root;
    if (collective === "drawn") request.drawn = drawn;
    return request;
  };

  // A cell tells which rows of a source land where; a click turns it on and off.
  const words = portion => {
    if (!portion) return "";
    const [from, count, to] = portion, rows = count > 1 ? `${from}–${from + count - 1}` : `${from}`;
    return to === from ? rows : `${rows}→${to}`;
  };
  function show_blocks(id, portions, names, on, click) {
    const table = element(id), head = make("tr");
    head.append(make("th", ""), ...portions.map((_, s) => make("th", `${names[1]} ${s}`)));
    const rows = portions.map((row, r) => {
      const line = make("tr");
      line.append(make("th", `${names[0]} ${r}`));
      row.forEach((portion, s) => {
        const cell = make(click ? "button" : "span", on[r][s] ? words(portion) || "0" : "", on[r][s] ? "on" : "");
        cell.dataset.place = `${r},${s}`;
        if (click) {
          cell.setAttribute("aria-pressed", on[r][s]);
          cell.setAttribute("aria-label", `${names[0]} ${r}, ${names[1]} ${s}`);
          cell.addEventListener("click", () => { click(r, s); element(id).querySelector(`[data-place="${r},${s}"]`).focus(); });
        }
        const td = make("td");
        td.append(cell);
        line.append(td);
      });
      return line;
    });
    table.replaceChildren(head, ...rows);
  }
  // Arrow keys go from cell to cell.
  for (const id of ["forward", "backward"])
    element(id).addEventListener("keydown", event => {
      const by = {ArrowUp: [-1, 0], ArrowDown: [1, 0], ArrowLeft: [0, -1], ArrowRight: [0, 1]}[event.key];
      if (!by || !event.target.dataset.place) return;
      const [r, s] = event.target.dataset.place.split(",").map(Number);
      element(id).querySelector(`button[data-place="${r + by[0]},${s + by[1]}"]`)?.focus();
      event.preventDefault();
    });

  const on_where = portions => portions.map(row => row.map(portion => portion !== null));
  function show_backward() {
    const name = element("mistake").value;
    if (name === "filled in")
      show_blocks("backward", right.backward, ["rank", "loss"], filled, (r, s) => { filled[r][s] = !filled[r][s]; hide_answers(); show_backward(); });
    else {
      const {backward} = answer({...asked(), mistake: name});
      show_blocks("backward", backward, ["rank", "loss"], on_where(backward));
    }
  }

  function hide_answers() {
    element("verdict").hidden = element("tape").hidden = true;
    document.querySelectorAll(".outcome").forEach(each => { each.textContent = ""; });
  }

  function show_exercise() {
    right = answer(asked());
    const click = exercise.collective === "drawn" ? (r, s) => { drawn[r][s] = !drawn[r][s]; show_exercise(); } : null;
    show_blocks("forward", right.forward, ["rank", "from"], on_where(right.forward), click);
    element("about-forward").textContent = what_forward_does[exercise.collective]
      + " A cell shows which rows a rank reads, and, after the arrow, where they land.";
    element("of-root").hidden = !rooted.includes(exercise.collective);
    element("uneven").parentElement.hidden = !by_rows.includes(exercise.collective);
    element("about-values").textContent = exercise.seed
      ? "Values, and the factors of the losses, are random. Let Weft judge the matrix above, or look."
      : "Rank r's loss is 10^r times the sum of its result. So the digits of what comes back tell whose losses are in it: 101 is of ranks 0 and 2. One number for each row of the rank's tensor.";
    element("predictions").replaceChildren(...right.inputs.map((rows, r) => {
      const line = make("tr"), name = make("td", `rank ${r}`), field = make("td"), input = make("input"), outcome = make("td", "", "outcome");
      input.setAttribute("aria-label", `what rank ${r} gets back, ${rows} ${rows === 1 ? "number" : "numbers"}`);
      input.placeholder = rows === 0 ? "no rows" : Array(rows).fill("…").join(" ");
      input.disabled = rows === 0;
      input.addEventListener("keydown", event => { if (event.key === "Enter") compare(); event.stopPropagation(); });
      field.append(input);
      line.append(name, field, outcome);
      return line;
    }));
    hide_answers();
    show_backward();
    history.replaceState(null, "", "#" + new URLSearchParams(Object.entries(exercise)));
  }

  // Which losses a prediction lacks or has too often, by its digits.
  function about_digits(given, wanted) {
    const words = [];
    for (let r = 0; r < exercise.ranks; ++r) {
      const digit = number => Math.floor(Math.abs(number) / 10 ** r) % 10;
      const [have, want] = [digit(given), digit(wanted)];
      if (have < want) words.push(have === 0 ? `the loss of rank ${r} is missing` : `the loss of rank ${r} counts too little`);
      if (have > want) words.push(want === 0 ? `the loss of rank ${r} never saw this value` : `the loss of rank ${r} counts too often`);
    }
    return words.join(", ");
  }
  function compare() {
    [...element("predictions").rows].forEach((line, r) => {
      const wanted = right.cotangents[r], text = line.querySelector("input").value;
      const given = text.split(/[\s,;[\]]+/).filter(part => part).map(Number), outcome = line.querySelector(".outcome");
      const same = given.length === wanted.length && wanted.every((each, i) => Math.abs(each - given[i]) < 1e-6 * (1 + Math.abs(each)));
      const at = wanted.findIndex((each, i) => each !== given[i]);
      outcome.className = "outcome " + (same ? "right" : "off");
      outcome.textContent = same ? "✓" : given.some(Number.isNaN) || given.length !== wanted.length
        ? `✗ ${wanted.length} ${wanted.length === 1 ? "number is" : "numbers are"} needed`
        : "✗ " + (exercise.seed ? "" : about_digits(given[at], wanted[at]));
    });
  }
  function show_predictions() {
    [...element("predictions").rows].forEach((line, r) => {
      const outcome = line.querySelector(".outcome");
      outcome.className = "outcome";
      outcome.textContent = right.cotangents[r].map(each => Number(each.toPrecision(6))).join(" ");
    });
    show_tapes_of(right);
  }
  function show_tapes_of(given) {
    element("tape").hidden = false;
    show_record(given.record, 1, 1e9);
  }

  function judge() {
    const name = element("mistake").value;
    const given = answer({...asked(), ...(name === "filled in" ? {backward: filled} : {mistake: name})});
    const {correct, products, names, differences, shows} = given.verdict, card = element("verdict");
    const title = correct ? "This is the adjoint" : names.length ? `Not the adjoint: ${names.map(each => each.name).join(", or ")}` : "Not the adjoint";
    const [there, back] = products.map(each => each.toPrecision(6));
    const parts = [make("h2", title, correct ? "right" : "off"), make("p", correct
      ? `For random x and g, summed over ranks: ⟨g, F x⟩ = ${there} and ⟨F* g, x⟩ = ${back}.`
      : `For random x and g, summed over ranks: ⟨g, F x⟩ = ${there}, but this backward gives ⟨B g, x⟩ = ${back}.`)];
    if (!correct) {
      for (const each of names) parts.push(make("p", each.what + (each.signature ? ` weft verify calls it ${each.signature}.` : "")));
      if (names.length === 0) {
        const list = make("ul");
        list.append(...differences.slice(0, 6).map(each => make("li", each)));
        if (differences.length > 6) list.append(make("li", `and ${differences.length - 6} more`));
        parts.push(list);
      }
      if (!shows) parts.push(make("p", "The values of this exercise cannot show it: what comes back is equal all the same. Take other values."));
      const code = names.map(each => made_by[each.name]).find(each => each);
      if (code) parts.push(make("p", "In PyTorch this is, for example:"), make("pre", code));
    }
    card.replaceChildren(...parts);
    card.hidden = false;
    mark_differences(given);
    show_tapes_of(given);
  }
  function mark_differences(given) {
    given.backward.forEach((row, r) => row.forEach((portion, s) => {
      const cell = element("backward").querySelector(`[data-place="${r},${s}"]`);
      cell.classList.toggle("wrong", String(portion) !== String(right.backward[r][s]));
    }));
  }

  // A block and its transpose are marked together.
  for (const [id, other] of [["forward", "backward"], ["backward", "forward"]]) {
    const mark = (event, on) => {
      const place = event.target.dataset?.place;
      if (!place) return;
      const partner = element(other).querySelector(`[data-place="${place.split(",").reverse().join(",")}"]`);
      partner?.classList.toggle("partner", on && !element("verdict").hidden);
    };
    element(id).addEventListener("mouseover", event => mark(event, true));
    element(id).addEventListener("mouseout", event => mark(event, false));
  }

  const fill = (id, entries) => element(id).replaceChildren(...entries.map(([value, words]) => {
    const option = make("option", words);
    option.value = value;
    return option;
  }));
  const counted = n => Array.from({length: n}, (_, i) => [i, `${i}`]);
  fill("collective", Object.keys(what_forward_does).map(name => [name, name === "drawn" ? "my own" : name]));
  fill("ranks", [1, 2, 3, 4, 5].map(n => [n, `${n}`]));
  fill("seed", [[0, "digits"], ...[1, 2, 3].map(seed => [seed, `random ${seed}`])]);
  fill("mistake", [["filled in", "as I fill it in"], ["none", "the adjoint"],
    ...answer({}).mistakes.filter(name => name !== "none").map(name => [name, name])]);

  function begin() {
    drawn = empty_cells().map((row, r) => row.map((_, s) => r === s));
    filled = empty_cells();
    fill("root", counted(exercise.ranks));
    for (const [name, value] of Object.entries(exercise)) name === "uneven" ? element(name).checked = value : element(name).value = value;
    show_exercise();
  }
  element("collective").addEventListener("change", event => { exercise.collective = event.target.value; begin(); });
  element("ranks").addEventListener("change", event => {
    exercise.ranks = Number(event.target.value);
    exercise.root = Math.min(exercise.root, exercise.ranks - 1);
    begin();
  });
  element("root").addEventListener("change", event => { exercise.root = Number(event.target.value); begin(); });
  element("uneven").addEventListener("change", event => { exercise.uneven = event.target.checked; begin(); });
  element("seed").addEventListener("change", event => { exercise.seed = Number(event.target.value); begin(); });
  element("mistake").addEventListener("change", () => { hide_answers(); show_backward(); if (element("mistake").value !== "filled in") judge(); });
  element("judge").addEventListener("click", judge);
  element("compare").addEventListener("click", compare);
  element("show").addEventListener("click", () => { show_predictions(); });

  const given = new URLSearchParams(location.hash.slice(1));
  if (given.get("collective") in what_forward_does) exercise.collective = given.get("collective");
  if (given.get("ranks") >= 1 && given.get("ranks") <= 5) exercise.ranks = Number(given.get("ranks"));
  if (given.get("root") < exercise.ranks) exercise.root = Number(given.get("root"));
  exercise.uneven = given.get("uneven") === "true";
  if (given.get("seed") <= 3) exercise.seed = Number(given.get("seed"));
  begin();
  document.documentElement.dataset.ready = "yes";
});
