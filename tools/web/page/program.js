// Programs: the text, what Weft says of it, and the line that belongs to the node that is shown. A learner's own is kept in
// the address.
const collectives_of_programs = /\b(all_gather|reduce_scatter|all_reduce|broadcast|reduce|gather|scatter|all_to_all|shift|scan|exscan)(\[[^\]]*\])?(?=\()/g;
const without_mistakes = text => text.replace(collectives_of_programs, "$1");

// The program as text, a line of which can be marked.
function listing(text) {
  const made = make("pre", "", "program");
  made.append(...text.split("\n").map(line => make("span", line + "\n")));
  return made;
}

// Shows the tapes of a reply, and the line of the program at each node. Where the program has a mistake in place of an
// adjoint, the cotangents that differ are marked.
function show_program_tapes(reply, text, place_for_line = null) {
  show_tapes(reply.record);
  const right = without_mistakes(text) === text ? null : ask({program: without_mistakes(text), ranks: reply.ranks});
  const changed = right && !right.error ? lines.map((line, i) => line.ranks.some((node, r) =>
    node && node.cotangent.brief !== (node_of(right.record.tapes[0][i]?.ranks[r])?.cotangent.brief ?? node.cotangent.brief))) : [];
  rows.forEach((row, i) => row.classList.toggle("changed", Boolean(changed[i])));
  moved = () => {
    const node = lines[moments[now]?.line]?.ranks.find(each => each), number = node && reply.lines_of_nodes[node.number];
    element("line").textContent = number ? `line ${number}: ${text.split("\n")[number - 1]}` : "";
    place_for_line?.querySelectorAll("span").forEach((span, i) => span.classList.toggle("now", i + 1 === number));
  };
  moved();
}

// Of the mistakes that a program has in brackets.
function words_of_breaks(text) {
  const named = [...text.matchAll(collectives_of_programs)].flatMap(([, , broken]) => mistakes.filter(({name}) => broken === `[${name}]`));
  return [...named.map(about_mistake), ...in_pytorch(named)];
}

// What is said of a program that ran: the gradients of its leaves, and whether they belong to its objective.
function words_of_program(reply) {
  const parts = [];
  for (const each of reply.names.filter(each => each.leaf && each.gradients.some(of => of.length))) {
    const same = each.gradients.every(of => String(of) === String(each.gradients[0]));
    parts.push(make("p", `gradient of ${each.name}: `
      + (same ? each.gradients[0].map(brief).join(" ") + (reply.ranks > 1 ? " on every rank" : "")
        : each.gradients.map((of, r) => `rank ${r} ${of.map(brief).join(" ") || "no rows"}`).join(" · "))));
  }
  if (reply.walked) {
    parts.unshift(make("p", `The objective, the sum over ranks, is ${brief(reply.objective)}.`));
    const {gradients, differences} = reply.slopes, fits = Math.abs(gradients - differences) <= 1e-6 * (1 + Math.abs(differences));
    parts.push(make("p", fits ? `The gradients are those of the objective: its slope in a random direction is ${brief(differences)}.`
      : `These are not the gradients of the objective: in a random direction its slope is ${brief(differences)}, and they say ${brief(gradients)}.`,
      fits ? "right" : "off"));
  }
  return parts;
}

// The verdict on a program beside the right one.
function words_of_comparison({equal, equal_here, names, says}) {
  if (equal) return [make("h2", "Right", "right"), make("p", "On random values as well, every leaf has the gradient of the objective.")];
  const parts = [make("h2", names.length ? `Not yet: ${names.join(", or ")}` : "Not yet", "off")], list = make("ul");
  list.append(...says.map(each => make("li", each)));
  if (says.length) parts.push(list);
  if (equal_here) parts.push(make("p", "On the values of this program nothing shows; on random values it does."));
  return [...parts, ...in_pytorch(mistakes.filter(({name}) => names.some(each => each.replace(/( \(S\d+\))? in .*/, "") === name)))];
}

// A field for a program, and a button; judged(reply) is called with what Weft says. Where no other program is the right one, a
// choice of what each collective's backward does.
function editor({text, ranks, right = null, label, judged = () => {}}) {
  const made = make("div"), field = make("textarea"), breaks = make("fieldset"), verdict = make("div", "", "verdict");
  field.value = text;
  field.rows = Math.max(4, text.split("\n").length + 1);
  field.spellcheck = false;
  field.setAttribute("aria-label", "program");
  verdict.setAttribute("aria-live", "polite");
  function show_breaks() {
    const calls = [...field.value.matchAll(collectives_of_programs)];
    breaks.replaceChildren(...calls.map(([, name, mistake], number) => labelled(`backward of ${name}`,
      choice_of(mistakes.map(({name}) => [name, name === "none" ? "its adjoint" : name]), mistake?.slice(1, -1) ?? "none", chosen => {
        let at = 0;
        field.value = field.value.replace(collectives_of_programs, (all, call) => at++ !== number ? all : call + (chosen === "none" ? "" : `[${chosen}]`));
        run();
      }))));
    breaks.hidden = right !== null || calls.length === 0;
  }
  function run() {
    const reply = ask({program: field.value, ranks, ...(right === null ? {} : {right})});
    show_breaks();
    if (reply.error) {
      hide_tapes();
      verdict.replaceChildren(make("h2", "Refused", "off"), make("p", reply.error));
    } else {
      verdict.replaceChildren(...(reply.comparison ? words_of_comparison(reply.comparison) : []), ...words_of_program(reply),
        ...words_of_breaks(field.value));
      show_program_tapes(reply, field.value);
    }
    judged(reply, field.value);
    return reply;
  }
  field.addEventListener("keydown", event => {
    event.stopPropagation();
    if (event.key !== "Enter" || !event.ctrlKey) return;
    event.preventDefault();
    run();
  });
  const controls = make("fieldset");
  controls.append(button(label, run), make("span", "or Ctrl and Enter", "soft"));
  show_breaks();
  made.append(field, breaks, controls, verdict);
  return {made, run, field};
}
formulas["defined"] = formulas["defined collective"] = ["y and its pullbacks are as the program defines them"];

const first_program = `x = leaf {[1] | [2] | [3]}
y = all_gather(x)
loss = sum(y) * 10 ^ rank`;

function open_program(given) {
  const text = given.get("text") ?? first_program, ranks = Number(given.get("of") ?? 3);
  const share = (_, program) => history.replaceState(null, "", "#" + new URLSearchParams({view: "program", of: ranks, text: program}));
  const {made, run} = editor({text, ranks, label: "run", judged: share});
  element("own-program").replaceChildren(made);
  run();
}
