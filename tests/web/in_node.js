// SPDX-License-Identifier: Apache-2.0
// Replies of the page's own Weft to requests on standard input, one a line:  node in_node.js build-web/weft.js
"use strict";
const {readFileSync} = require("fs"), path = require("path").resolve(process.argv[2]);
const lines = readFileSync(0, "utf8").split("\n").filter(line => line);
require(path)({wasmBinary: readFileSync(path.replace(/js$/, "wasm"))}).then(weft => {
  for (const line of lines) {
    weft.ccall("weft_ask", null, ["string"], [line]);
    process.stdout.write(weft.ccall("weft_reply", "string", [], []) + "\n");
  }
});
