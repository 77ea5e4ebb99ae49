// SPDX-License-Identifier: MIT
// Boots the machine in Node, and saves its state when page_init.sh says that it is ready. Then
// starts the saved machine as a page does, and has it run a command.
import { readFileSync, writeFileSync } from "node:fs";
import { Machine, options } from "./page_machine.mjs";

const [folder, bios, vga, kernel, initrd, cmdline, out] = process.argv.slice(2);
const { V86 } = await import(`${folder}/libv86.mjs`);
const image = (file) => {
  const data = readFileSync(file);
  return { buffer: data.buffer.slice(data.byteOffset, data.byteOffset + data.length) };
};
const limit = setTimeout(() => {
  console.error(`the machine is not ready after 120 s: ${console_text}`);
  process.exit(1);
}, 120_000);
let console_text = "", said = "";
const machine = new V86({
  ...options, wasm_path: `${folder}/v86.wasm`, bios: image(bios), vga_bios: image(vga),
  bzimage: image(kernel), initrd: image(initrd), cmdline,
});
machine.add_listener("serial0-output-byte", (byte) => (console_text += String.fromCharCode(byte)));
machine.add_listener("serial1-output-byte", async (byte) => {
  said += String.fromCharCode(byte);
  if (!/^ready\r?\n$/.test(said)) return;
  await machine.stop();
  const state = await machine.save_state();
  const saved = await Machine.start(
    V86, await WebAssembly.compile(readFileSync(`${folder}/v86.wasm`)), state);
  console_text = "it is saved, and ibv_devinfo has said:\n";
  const status = await saved.run(
    "ibv_devinfo -d rxe0", (line) => (console_text += `${line}\n`)).status;
  if (status) console.error(console_text);
  else writeFileSync(out, new Uint8Array(state));
  process.exit(status);
});
