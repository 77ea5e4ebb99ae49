// SPDX-License-Identifier: MIT
// Puts a Run button below each ./lab run command of a lesson, and runs it in the page. site.py
// writes play.json, which says what each command runs and prints.
import { Machine } from "./page_machine.js";
import { dissected } from "./page_wire.js";

const here = new URL(".", import.meta.url).href;
const data = await (await fetched("play.json")).json();
const listening = new RegExp(`^(?:${data.listening})`);
const rules = data.rules.map(([pattern, words]) => [new RegExp(pattern, "g"), words]);
let busy = Promise.resolve(); // until the machine has ended what it runs

function make(tag, properties = {}, ...children) {
  const element = Object.assign(document.createElement(tag), properties);
  element.append(...children);
  return element;
}

async function fetched(name) {
  const answer = await fetch(here + name);
  if (!answer.ok) throw new Error(`cannot load ${name}: status ${answer.status}`);
  return answer;
}

async function unpacked(name) {
  const packed = (await fetched(name)).body;
  return new Response(packed.pipeThrough(new DecompressionStream("gzip"))).arrayBuffer();
}

// A function whose first call makes something, which all calls return. If that fails, the next
// call tries again.
function once(make) {
  let made;
  return () => (made ??= make().catch((error) => {
    made = undefined;
    throw error;
  }));
}

const saved = once(() => Promise.all([
  import("./libv86.js"), unpacked("v86.wasm.gz").then((bytes) => WebAssembly.compile(bytes)),
  fetched("state.bin.zst").then((answer) => answer.arrayBuffer())]));
async function start() {
  const [{ V86 }, wasm, state] = await saved();
  return Machine.start(V86, wasm, state);
}
// The page's machine, and the two hosts of a network, of which it is the first. The second one gets
// addresses of its own before it is joined: the network never has two hosts with the same ones.
const machine = once(start);
const hosts = once(async () => {
  const [first, second] = await Promise.all([machine(), start()]);
  if (await second.run(data.become_second, () => {}).status)
    throw new Error("the second machine has no RDMA device");
  first.join(second);
  return [first, second];
});

function have(pc, name) {
  if (!pc.files.has(name))
    pc.files.set(name, once(
      async () => pc.put(name, new Uint8Array(await unpacked(`files/${name}.gz`)))));
  return pc.files.get(name)();
}

export function normalised(line) {
  return rules.reduce((text, [pattern, words]) => text.replace(pattern, words), line).trimEnd();
}

// The lines that are not as recorded, by role; undefined if all are.
export function difference(expected, roles) {
  const found = [];
  for (const role of new Set([...Object.keys(expected), ...Object.keys(roles)])) {
    const [wanted, real] = [expected, roles].map((side) => (side[role] ?? []).map(normalised));
    if (wanted.join("\n") === real.join("\n")) continue;
    const before = found.length;
    for (const line of wanted) if (!real.includes(line)) found.push(`missing: ${line}`);
    for (const line of real) if (!wanted.includes(line)) found.push(`not recorded: ${line}`);
    if (found.length === before) found.push(`${role}: other order or number of lines`);
  }
  return found.length ? found : undefined;
}

class Run {
  roles = {}; // what each side has printed
  started = []; // for stop()
  is_stopped = false;

  constructor(what, output, wire) {
    Object.assign(this, { what, output, wire });
  }

  // Runs it on `first`, and what is a client on `other`, which may be the same.
  async run(first, other) {
    const { commands } = this.what;
    const files = commands.flat().filter((word) => data.files.includes(word));
    await Promise.all(files.flatMap((name) => [have(first, name), have(other, name)]));
    first.sends = (frame) => this.draw(frame, "right");
    other.sends = (frame) => this.draw(frame, "left");
    const [server, client] = commands;
    let ended;
    const server_ended = this.start(first, server, client ? "server" : "", (line) => {
      const ready = client && !ended && listening.exec(line);
      if (ready)
        ended = this.start(
          other, client.map((word) => (word === "{port}" ? ready[1] : word)), "client");
    });
    return [await server_ended, await ended];
  }

  draw(frame, direction) {
    const packet = this.what.two_hosts && dissected(frame, data);
    if (packet) this.wire.append(make("li", { className: direction }, packet));
  }

  stop() {
    this.is_stopped = true;
    this.started.forEach((end) => end());
  }

  start(pc, command, role, line = () => {}) {
    if (this.is_stopped) return;
    const text = command.map((word) => `'${word.replaceAll("'", "'\\''")}'`).join(" ");
    const started = pc.run(text, (said) => {
      (this.roles[role] ??= []).push(said);
      this.output.append(
        make("span", { className: role, textContent: role ? `[${role}] ` : "" }), said, "\n");
      line(said);
    });
    this.started.push(() => pc.stop(started.number));
    return started.status;
  }
}

function button_below(fragment, line) {
  const what = data.runs[line];
  const status = make("span", { role: "status" });
  const box = make("div", { className: "play" }, status);
  fragment.after(box);
  if (what.why) {
    status.textContent = `Runs on a Linux machine only: ${what.why}.`;
    return;
  }
  const output = make("pre", {
    tabIndex: 0, hidden: true, role: "region", ariaLabel: `Output of ${line}`,
  });
  const button = make("button");
  const name = (text) => {
    button.textContent = text;
    button.ariaLabel = `${text}: ${line}`;
  };
  name("Run");
  box.prepend(button);
  const wire = make("ol", {
    className: "wire", hidden: true, tabIndex: 0, ariaLabel: `Packets of ${line}`,
  });
  box.append(output, wire);
  let run;
  button.onclick = async () => {
    if (run) return run.stop();
    run = new Run(what, output, wire);
    output.replaceChildren();
    wire.replaceChildren(make(
      "li", { className: "hosts" }, make("span", { className: "server" }, "host a: server"),
      make("span", { className: "client" }, "host b: client")));
    output.hidden = false;
    wire.hidden = !what.two_hosts;
    name("Stop");
    status.textContent = "loading the machine";
    try {
      const [first, second] = what.two_hosts ? await hosts() : [await machine()];
      status.textContent = "running";
      const ended = busy.then(() => run.run(first, second ?? first)); // one at a time
      busy = ended.catch(() => {});
      const failed = (await ended).find((one) => one);
      const other = !run.is_stopped && what.expected && difference(what.expected, run.roles);
      status.textContent = run.is_stopped ? "stopped"
        : other ? "not as recorded: see the last lines" : what.expected ? "as recorded"
        : failed ? `ended with status ${failed}` : "ended";
      if (other) output.append(make("span", { className: "other" }, other.join("\n")));
    } catch (error) {
      status.textContent = error.message;
    }
    name("Run");
    run = undefined;
  };
}

async function terminal_in(panel, button) {
  const [pc] = await Promise.all([machine(), import("./xterm.js")]);
  const terminal = new Terminal({ rows: 16, screenReaderMode: true });
  terminal.open(panel);
  terminal.attachCustomKeyEventHandler((event) => {
    if (event.key === "Escape") button.focus(); // the shell gets all other keys, also Tab
    return event.key !== "Escape";
  });
  pc.attach(terminal);
  terminal.input("stty rows 16 cols 80; clear\n");
  return terminal;
}

function terminal_button() {
  const button = make("button", { className: "play-terminal", ariaExpanded: "false" }, "Terminal");
  const panel = make("div", { className: "play-panel", hidden: true }, "Escape: leave it");
  document.body.append(panel, button);
  let terminal; // its promise
  button.onclick = async () => {
    panel.hidden = !panel.hidden;
    button.ariaExpanded = String(!panel.hidden);
    if (panel.hidden) return;
    terminal ??= terminal_in(panel, button);
    try {
      (await terminal).focus();
    } catch (error) {
      panel.textContent = error.message;
      terminal = undefined;
    }
  };
}

document.head.append(
  make("link", { rel: "stylesheet", href: `${here}xterm.css` }),
  make("link", { rel: "stylesheet", href: `${here}page.css` }));
const contents = document.querySelector("div.contents");
if (typeof WebAssembly === "object") {
  for (const fragment of contents.querySelectorAll("div.fragment")) {
    // The last command first, since each button comes right below the block.
    const lines = [...fragment.querySelectorAll("div.line")].map((line) => line.textContent.trim());
    for (const line of lines.reverse())
      if (data.runs[line]) button_below(fragment, line);
  }
  terminal_button();
  contents.append(make(
    "p", {}, "The examples of this page run in a machine that your browser emulates. Its times say"
    + " nothing about a network. ./lab trace runs on two of them, and shows the packets. (On a"
    + " Linux machine it shows the calls, too.) ",
    make("a", { href: `${here}licences.html` }, "Licences"), "."));
} else {
  contents.prepend(make(
    "p", {}, "This browser has no WebAssembly, so the commands run on a Linux machine only."));
}
