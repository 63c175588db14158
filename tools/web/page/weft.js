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

function show_tapes(record) {
  element("tape").hidden = false;
  moved = () => {};
  element("line").textContent = "";
  show_record(record, 1, 1e9);
}
const hide_tapes = () => { element("tape").hidden = true; };
