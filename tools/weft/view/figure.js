// The lanes of a moment as a picture for print: figure_of makes an SVG of them, save_figure gives it to the reader as a file.
// `shown` has of each line {line, name, placement, cells}. A cell is of a rank: value and cotangent as texts, and of each
// whether it should be equal on all ranks, and is not.
const figure_of = (() => {
  const colours = {R: "#2f7295", I: "#8661a8", V: "#c4703a", P: "#b34a5e", C: "#6b8f3d", "?": "#6d737b"};
  const ink = "#22262b", soft_ink = "#6d737b", rule = "#d5d1ca", band = "#e3edf2", alarm = colours.P;
  const letter_width = 7.3, line_height = 17, margin = 16;  // of 12 px

  function shape(name, attributes, text) {
    const made = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
    if (text !== undefined) made.textContent = text;
    return made;
  }

  function chips_at(x, y, placement) {
    return [...placement].flatMap((letter, i) => [
      shape("rect", {x: x + 15 * i, y: y - 10, width: 13, height: 13, rx: 3, fill: colours[letter]}),
      shape("text", {x: x + 15 * i + 6.5, y, fill: "#fff", "font-weight": 600, "text-anchor": "middle"}, letter)]);
  }

  return (shown, ranks, title) => {
    const longest = texts => Math.max(...texts.map(text => [...text].length), 6) * letter_width + 2 * margin;
    const first = longest(shown.map(each => each.name)) + 15 * Math.max(...shown.map(each => each.placement.length), 1);
    const columns = Array.from({length: ranks}, (_, rank) => longest(shown.flatMap(each =>
      each.cells[rank] ? [each.cells[rank].value, each.cells[rank].cotangent] : [])));
    const left = columns.map((_, rank) => first + columns.slice(0, rank).reduce((sum, width) => sum + width, 0));
    const width = first + columns.reduce((sum, each) => sum + each, 0);
    const made = [shape("text", {x: margin, y: 24, fill: ink, "font-weight": 600}, title),
                  shape("text", {x: margin, y: 50, fill: soft_ink}, "node"),
                  ...left.map((x, rank) => shape("text", {x, y: 50, fill: soft_ink}, `rank ${rank}`))];
    let y = 58;
    for (const {line, name, placement, cells} of shown) {
      const height = line_height * (cells.some(cell => cell?.cotangent) ? 2 : 1) + 6;
      if (line.collective) made.push(shape("rect", {x: 0, y, width, height, fill: band}));
      made.push(shape("line", {x1: 0, x2: width, y1: y, y2: y, stroke: line.collective ? colours.R : rule}));
      const base = y + line_height - 2;
      made.push(shape("text", {x: margin, y: base, fill: ink}, name),
                ...chips_at(margin + ([...name].length + 1) * letter_width, base, placement));
      cells.forEach((cell, rank) => {
        const written = (text, y, fill, differs) => made.push(shape("text",
          {x: left[rank], y, fill: differs ? alarm : fill, ...(differs && {"font-weight": 600, "text-decoration": "underline"})}, text));
        if (cell) written(cell.value, base, ink, cell.value_differs);
        if (cell?.cotangent) written(cell.cotangent, base + line_height, alarm, cell.cotangent_differs);
      });
      y += height;
    }
    made.push(shape("line", {x1: 0, x2: width, y1: y, y2: y, stroke: rule}));
    for (const letter of new Set(shown.flatMap(each => [...each.placement]))) {
      y += line_height + 3;
      made.push(...chips_at(margin, y, letter), shape("text", {x: margin + 22, y, fill: soft_ink}, placements[letter]));
    }
    const wide = Math.max(width, longest([title]));
    const svg = shape("svg", {viewBox: `0 0 ${wide} ${y + margin}`, width: wide, height: y + margin, "font-size": 12,
                              "font-family": "'DejaVu Sans Mono', Menlo, Consolas, monospace"});
    svg.append(shape("title", {}, title), shape("rect", {width: "100%", height: "100%", fill: "#fff"}), ...made);
    return svg;
  };
})();

function save_figure(svg, name) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([new XMLSerializer().serializeToString(svg)], {type: "image/svg+xml"}));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}
