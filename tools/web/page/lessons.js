// The lessons of lessons.json. Each has steps, which are shown one after the other: a prediction, a program to write, or a
// question.
let lesson_number = 0;

const heading = (number, lesson) => `${number + 1} ${lesson.title}`;
// Words between backticks are of a program.
const paragraphs = texts => (texts ?? []).map(text => {
  const made = make("p");
  made.append(...text.split("`").map((part, i) => i % 2 ? make("code", part) : part));
  return made;
});

function show_list() {
  element("lesson-list").replaceChildren(...all_lessons.map((lesson, i) => {
    const item = make("li"), link = make("a", lesson.title);
    link.href = `#lesson=${i + 1}`;
    item.append(link, make("span", ` ${lesson.about}`, "soft"));
    return item;
  }));
}

function predict_step(step, done) {
  const text = step.program.join("\n"), reply = ask({program: text, ranks: step.ranks ?? 1}), shown = listing(text);
  const part = step.what ?? "cotangents", named = name => reply.names.find(each => each.name === name);
  const fields = predictions(step.predict.flatMap(name => named(name)[part].map((wanted, r) =>
    ({label: reply.ranks > 1 ? `${name} on rank ${r}` : name, wanted}))), step.digits ? reply.ranks : 0, () => {
    show_program_tapes(reply, text, shown);
    done();
  });
  const controls = make("fieldset");
  controls.append(button("compare", fields.compare), button("show me", fields.reveal));
  return {parts: [shown, fields.table, controls], focus: fields.focus};
}

function write_step(step, done) {
  const {made, field} = editor({text: step.program.join("\n"), ranks: step.ranks ?? 1, right: step.right.join("\n"), label: "judge",
    judged: reply => { if (reply.comparison?.equal) done(); }});
  const solution = make("details"), pass = button("go on without", done);
  solution.append(make("summary", "the solution"), listing(step.right.join("\n")));
  pass.className = "pass";
  made.append(solution, pass);
  return {parts: [made], focus: () => field.focus()};
}

function choose_step(step, done) {
  const shown = step.program ? [listing(step.program.join("\n"))] : [], why = make("p", "", "why"), refused = make("p", "", "message");
  why.setAttribute("aria-live", "polite");
  const answers = step.choose.map(answer => button(answer.text, event => {
    event.target.classList.add(answer.right ? "right" : "off");
    why.textContent = (answer.right ? "✓ " : "✗ ") + answer.why;
    if (!answer.right) return;
    if (step.program) {
      const text = step.program.join("\n"), reply = ask({program: text, ranks: step.ranks ?? 1});
      refused.textContent = reply.error ? `Weft: ${reply.error}` : "";
      if (!reply.error) show_program_tapes(reply, text, shown[0]);
    }
    done();
  }));
  const list = make("div", "", "answers");
  list.append(...answers);
  return {parts: [...shown, list, why, refused], focus: () => answers[0].focus()};
}

function show_step(number) {
  const lesson = all_lessons[lesson_number], step = lesson.steps[number], card = make("section", "", "card step");
  let ended = false;
  const done = () => {
    if (ended) return;
    ended = true;
    card.classList.add("done");
    card.append(...paragraphs(step.after));
    const last = number + 1 === lesson.steps.length, next = button(last ? "to the end" : "next", () => {
      next.remove();
      hide_tapes();
      if (last) show_end(); else show_step(number + 1);
    });
    next.className = "next";
    card.append(next);
    card.querySelectorAll(".pass").forEach(each => each.remove());
    next.focus();
  };
  const kind = step.predict ? predict_step : step.right ? write_step : choose_step;
  const {parts, focus} = kind(step, done);
  card.append(...paragraphs(step.text), ...parts);
  element("steps").append(card);
  focus();
}

function show_end() {
  const card = make("section", "", "card"), next = make("a"), has_next = lesson_number + 1 < all_lessons.length;
  next.textContent = has_next ? heading(lesson_number + 1, all_lessons[lesson_number + 1]) : "All lessons";
  next.href = has_next ? `#lesson=${lesson_number + 2}` : "#lessons";
  card.id = "end";
  card.append(make("h2", "What to keep"), ...paragraphs([...all_lessons[lesson_number].keep,
    `To go on in C++: the repository's exercises have a function for this lesson, and \`weft grade ${lesson_number + 1}\` judges it.`]), next);
  element("steps").append(card);
  next.focus();
}

function open_lesson(given) {
  lesson_number = Math.min(Math.max(Number(given.get("lesson")) || 1, 1), all_lessons.length) - 1;
  const lesson = all_lessons[lesson_number];
  element("lesson-title").textContent = heading(lesson_number, lesson);
  element("steps").replaceChildren();
  hide_tapes();
  show_step(0);
  scrollTo(0, 0);
}
