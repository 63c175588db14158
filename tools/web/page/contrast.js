// How much of NT-Xent's gradient each mistake leaves, while a network learns.
const steps_of_contrast = [0, 3, 10, 30, 100, 300];
const contrasts = new Map();  // by request
const contrast = {ranks: 4, temperature: 0.2, noise: 0.2, steps: 0, mistake: "own slot"};

function contrast_at(steps) {
  const {ranks, temperature, noise} = contrast, request = {contrast: {ranks, temperature, noise, steps}}, key = JSON.stringify(request);
  if (!contrasts.has(key)) contrasts.set(key, ask(request));
  return contrasts.get(key);
}

function show_contrast() {
  const {loss, left} = contrast_at(contrast.steps);
  element("contrast-about").textContent = `After ${contrast.steps} steps the loss is ${loss.toFixed(3)}. The length of what each mistake leaves of the gradient, over the right length, and the cosine between the two:`;
  const head = make("tr");
  head.append(...["mistake", "", "length", "cosine"].map(text => make("th", text)));
  element("contrast-table").replaceChildren(head, ...left.filter(each => each.name !== "none").map(({name, signature, ratio, cosine}) => {
    const row = make("tr", "", name === contrast.mistake ? "chosen" : "");
    row.append(make("td", name), make("td", signature), make("td", ratio.toFixed(3)), make("td", ratio > 0 ? cosine.toFixed(3) : "–"));
    return row;
  }));
  draw_contrast();
  history.replaceState(null, "", "#" + new URLSearchParams({view: "contrast", ...contrast}));
}

// Length and cosine of one mistake over the steps of training.
function draw_contrast() {
  const points = steps_of_contrast.map(contrast_at).map(({left}) => left.find(each => each.name === contrast.mistake));
  const top = Math.max(1, ...points.map(each => each.ratio)) * 1.05, low = Math.min(0, ...points.map(each => each.cosine));
  const x = i => 46 + i * 90, y = value => 170 - 150 * (value - low) / (top - low), svg = (name, attributes, text = "") => {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    made.textContent = text;
    return made;
  };
  const curve = (part, kind) => svg("polyline", {points: points.map((each, i) => `${x(i)},${y(each[part])}`).join(" "), class: `curve ${kind}`});
  const last = points.length - 1, chosen = steps_of_contrast.indexOf(contrast.steps);
  const names = [["ratio", "length", "one"], ["cosine", "cosine", "two"]].sort((a, b) => points[last][b[0]] - points[last][a[0]]);
  const at = names.map(([part]) => y(points[last][part]) + 4);
  if (at[1] - at[0] < 14) at[1] = at[0] + 14;
  element("contrast-curve").replaceChildren(
    ...[low, 0, 1].filter((value, i, all) => all.indexOf(value) === i).flatMap(value => [svg("line", {x1: 40, x2: x(last), y1: y(value), y2: y(value), class: "grid-line"}),
      svg("text", {x: 34, y: y(value) + 4, "text-anchor": "end"}, value.toFixed(value % 1 ? 1 : 0))]),
    svg("line", {x1: x(chosen), x2: x(chosen), y1: 14, y2: 170, class: "grid-line chosen"}),
    ...steps_of_contrast.map((steps, i) => svg("text", {x: x(i), y: 188, "text-anchor": "middle"}, steps)),
    svg("text", {x: x(last), y: 205, "text-anchor": "end"}, "steps of training"), curve("ratio", "one"), curve("cosine", "two"),
    ...names.map(([, name, kind], i) => svg("text", {x: x(last) + 8, y: at[i], class: kind}, name)));
}

function prepare_contrast() {
  const controls = [
    ["ranks", choice_of([1, 2, 3, 4, 5, 6, 8, 10, 12].map(n => [n, n]), contrast.ranks, value => set("ranks", Number(value)))],
    ["temperature", slider("temperature", 0.05, 1, 0.05)],
    ["noise of the views", slider("noise", 0, 1, 0.05)],
    ["steps of training", choice_of(steps_of_contrast.map(n => [n, n]), contrast.steps, value => set("steps", Number(value)))],
    ["mistake", choice_of(mistakes.slice(1).map(({name}) => [name, name]), contrast.mistake, value => set("mistake", value))],
  ];
  const set = (name, value) => { contrast[name] = value; show_contrast(); };
  function slider(name, least, most, step) {
    const made = make("span"), input = make("input"), output = make("output", String(contrast[name]));
    Object.assign(input, {type: "range", min: least, max: most, step, value: contrast[name]});
    input.setAttribute("aria-label", name);
    input.addEventListener("input", () => { output.textContent = input.value; });
    input.addEventListener("change", () => set(name, Number(input.value)));
    input.addEventListener("keydown", event => event.stopPropagation());
    made.append(input, " ", output);
    return made;
  }
  element("contrast-controls").replaceChildren(...controls.map(([text, control]) => labelled(text, control)));
}

function open_contrast(given) {
  for (const name of ["ranks", "temperature", "noise", "steps"]) if (given.get(name) && Number(given.get(name)) >= 0) contrast[name] = Number(given.get(name));
  if (mistakes.some(({name}) => name === given.get("mistake"))) contrast.mistake = given.get("mistake");
  if (contrast_at(contrast.steps).error || !steps_of_contrast.includes(contrast.steps)) Object.assign(contrast, {ranks: 4, temperature: 0.2, noise: 0.2, steps: 0});
  prepare_contrast();
  hide_tapes();
  show_contrast();
}
