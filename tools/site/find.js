// SPDX-License-Identifier: MIT
// The box "Find" of the site: it looks in the sections of all lessons. find_data.js, which
// tools/lab/commands/docs.py writes, has them as `sections`: [title, heading, address, text]. An
// address with ?find=WORDS begins with these words.
"use strict";

(() => {
  const box = document.getElementById("find"), list = document.getElementById("found");
  const most = 20, around = 60; // sections; characters on each side of a word

  function hits(words) {
    const found = [];
    for (const [title, heading, address, text] of sections) {
      const head = `${title} ${heading}`.toLowerCase(), body = text.toLowerCase();
      if (!words.every((word) => head.includes(word) || body.includes(word)))
        continue;
      const inHead = words.filter((word) => head.includes(word)).length;
      const often = words.reduce((sum, word) => sum + body.split(word).length - 1, 0);
      found.push({ title, heading, address, text, at: body.indexOf(words[0]),
                   score: 1000 * inHead + often });
    }
    return found.sort((a, b) => b.score - a.score).slice(0, most);
  }

  function show() {
    const words = box.value.toLowerCase().split(/\s+/).filter((word) => word.length > 1);
    list.replaceChildren();
    for (const hit of words.length ? hits(words) : []) {
      const item = document.createElement("li"), link = document.createElement("a");
      link.href = hit.address;
      link.textContent = hit.heading ? `${hit.title}: ${hit.heading}` : hit.title;
      item.append(link);
      if (hit.at >= 0) {
        const from = Math.max(0, hit.at - around);
        item.append(` … ${hit.text.slice(from, hit.at + around)} …`);
      }
      list.append(item);
    }
  }

  box.addEventListener("input", show);
  box.value = new URLSearchParams(location.search).get("find") || "";
  show();
})();
