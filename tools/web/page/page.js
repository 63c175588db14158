// Which view is shown: the address says it.
const views = {lessons: show_list, lesson: open_lesson, matrix: open_matrix, program: open_program, contrast: open_contrast};

function view_of(given) {
  if (given.has("lesson")) return "lesson";
  if (given.has("collective")) return "matrix";
  if (given.get("view") in views) return given.get("view");
  return location.hash.slice(1) in views ? location.hash.slice(1) : "lessons";
}
function show_view() {
  const given = new URLSearchParams(location.hash.slice(1)), view = view_of(given);
  for (const name of Object.keys(views)) element(`view-${name}`).hidden = name !== view;
  document.querySelectorAll("nav a").forEach(link => link.toggleAttribute("aria-current", link.hash === `#${view}`));
  hide_tapes();
  views[view](given);
}

load_weft().then(() => {
  mistakes = ask({}).mistakes;
  prepare_matrix();
  addEventListener("hashchange", show_view);
  show_view();
  document.documentElement.dataset.ready = "yes";
});
