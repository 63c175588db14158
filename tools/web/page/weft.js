// Weft, which is in the page in compressed form. ask(request) returns its reply (requests.h).
let ask = null;
async function load_weft() {
  const packed = Uint8Array.from(atob(element("weft").textContent.trim()), letter => letter.charCodeAt(0));
  const stream = new Blob([packed]).stream().pipeThrough(new DecompressionStream("gzip"));
  const weft = await Weft({wasmBinary: await new Response(stream).arrayBuffer()});
  ask = request => {
    weft.ccall("weft_ask", null, ["string"], [JSON.stringify(request)]);
    return JSON.parse(weft.ccall("weft_reply", "string", [], []));
  };
}

// Parts of the page that several views use.
function button(text, act) {
  const made = make("button", text);
  made.addEventListener("click", act);
  return made;
}
function labelled(text, control) {
  const made = make("label", text + " ");
  made.append(control);
  return made;
}
// Makes the entries, [value, words], those of a choice.
function fill(select, entries, chosen = entries[0][0]) {
  select.replaceChildren(...entries.map(([value, words]) => new Option(words, value)));
  select.value = chosen;
}
function choice_of(entries, chosen, act) {
  const made = make("select");
  fill(made, entries, chosen);
  made.addEventListener("change", () => act(made.value));
  return made;
}
const brief = number => number === null ? "NaN" : String(Number(number.toPrecision(6)));

// The usual mistakes of a backward, the adjoint first. made_by has a program for PyTorch that makes each.
let mistakes = [];
const about_mistake = ({what, signature}) => make("p", what + (signature ? ` weft verify calls it ${signature}.` : ""));
function in_pytorch(named) {
  const code = named.map(({name}) => made_by[name]).find(each => each);
  return code ? [make("p", "In PyTorch this is, for example:"), make("pre", code)] : [];
}

function show_tapes(record) {
  element("tape").hidden = false;
  moved = () => {};
  element("line").textContent = "";
  show_record(record, 1, 1e9);
}
const hide_tapes = () => { element("tape").hidden = true; };
