// Fields for what a learner predicts, and what is said of each entry.
// lines: [{label, wanted: [numbers]}]; digits: how many ranks have losses 10^rank, or 0.
function predictions(lines, digits, done) {
  const table = make("table", "", "ranks"), body = make("tbody");
  const fields = lines.map(({label, wanted}) => {
    const line = make("tr"), input = make("input"), outcome = make("td", "", "outcome"), field = make("td");
    input.setAttribute("aria-label", `${label}, ${wanted.length} ${wanted.length === 1 ? "number" : "numbers"}`);
    input.placeholder = wanted.length === 0 ? "no rows" : Array(wanted.length).fill("…").join(" ");
    input.disabled = wanted.length === 0;
    input.addEventListener("keydown", event => {
      event.stopPropagation();
      if (event.key !== "Enter") return;
      event.preventDefault();  // it would press the button that gets the focus
      compare();
    });
    field.append(input);
    line.append(make("td", label), field, outcome);
    body.append(line);
    return {input, outcome, wanted};
  });
  table.append(body);

  function compare() {
    const right = fields.map(({input, outcome, wanted}) => {
      const given = numbers_in(input.value), complaint = about(given, wanted, digits);
      outcome.className = "outcome " + (complaint === "" ? "right" : "off");
      outcome.textContent = wanted.length === 0 ? "" : complaint === "" ? "✓" : "✗ " + complaint;
      return complaint === "";
    });
    if (right.every(each => each)) done();
  }
  function reveal() {
    for (const {outcome, wanted} of fields) {
      outcome.className = "outcome";
      outcome.textContent = wanted.map(brief).join(" ");
    }
    done();
  }
  return {table, compare, reveal, focus: () => fields.find(each => !each.input.disabled)?.input.focus()};
}

// "1, 5/6 [2]" as numbers; NaN where there is none.
function numbers_in(text) {
  return text.split(/[\s,;[\]]+/).filter(part => part).map(part => {
    const [above, below = "1"] = part.split("/");
    return above === "" || below === "" ? NaN : Number(above) / Number(below);
  });
}

const close_to = (a, b) => b === null ? Number.isNaN(a) : Math.abs(a - b) < 1e-4 * Math.abs(b) + 1e-9;

// What is wrong with an entry; nothing if it is right.
function about(given, wanted, digits) {
  if (wanted.length === given.length && wanted.every((each, i) => close_to(given[i], each))) return "";
  if (given.length !== wanted.length || given.some((each, i) => Number.isNaN(each) && wanted[i] !== null))
    return `${wanted.length} ${wanted.length === 1 ? "number is" : "numbers are"} needed`;
  const at = wanted.findIndex((each, i) => !close_to(given[i], each)), place = wanted.length > 1 ? `number ${at + 1}: ` : "";
  const words = digits ? about_digits(given[at], wanted[at], digits) : "";
  return place + (words || about_size(given[at], wanted[at]));
}
function about_size(given, wanted) {
  if (wanted === null) return "no number at all comes out here";
  if (given === 0) return "something comes back here";
  if (wanted === 0) return "nothing comes back here";
  if (close_to(given, -wanted)) return "the sign is wrong";
  const factor = given / wanted, parts = [factor, 1 / factor].find(each => each > 1 && close_to(each, Math.round(each)));
  if (parts) return factor > 1 ? `${Math.round(parts)} times too much` : `it is ${Math.round(parts)} times as much`;
  return given < wanted ? "more comes back" : "less comes back";
}
// Which losses an entry lacks or has too often, by its digits.
function about_digits(given, wanted, ranks) {
  const words = [];
  for (let r = 0; r < ranks; ++r) {
    const digit = number => Math.floor(Math.abs(number) / 10 ** r) % 10;
    const [have, want] = [digit(given), digit(wanted)];
    if (have < want) words.push(have === 0 ? `the loss of rank ${r} is missing` : `the loss of rank ${r} counts too little`);
    if (have > want) words.push(want === 0 ? `the loss of rank ${r} never saw this value` : `the loss of rank ${r} counts too often`);
  }
  return words.join(", ");
}
