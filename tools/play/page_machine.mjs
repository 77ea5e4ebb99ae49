// SPDX-License-Identifier: MIT
// An emulated PC with Linux and SoftRoCE. page_init.sh runs in it, and answers.

// A saved state fits only a machine with the same options.
export const options = {
  memory_size: 128 << 20, vga_memory_size: 2 << 20, uart1: true, filesystem: {}, acpi: false,
  net_device: { type: "virtio" }, autostart: true, disable_keyboard: true, disable_mouse: true,
  disable_speaker: true,
};

export class Machine {
  files = new Map(); // name -> the function that puts it there once
  #emulator;
  #count = 0;
  #running = new Map(); // number of a command -> {line, end}
  #line = "";
  #bytes = new TextDecoder();

  // Starts the saved machine. V86 is the constructor of libv86.mjs, `wasm` the compiled module of
  // v86.wasm, and `state` an ArrayBuffer.
  static async start(V86, wasm, state) {
    const machine = new Machine();
    const wasm_fn = async (imports) => (await WebAssembly.instantiate(wasm, imports)).exports;
    const emulator = new V86({ ...options, wasm_fn, initial_state: { buffer: state } });
    machine.#emulator = emulator;
    emulator.add_listener("serial1-output-byte", (byte) => machine.#hear(byte));
    await new Promise((resolve) => emulator.add_listener("emulator-started", resolve));
    return machine;
  }

  // Runs a command. `line` is called for each line that it prints.
  // Returns its number, for stop(), and a promise of its exit status.
  run(command, line) {
    const number = ++this.#count;
    const status = new Promise((end) => this.#running.set(number, { line, end }));
    this.#say(`${number} ${command}`);
    return { number, status };
  }

  // Gives the machine a file, which it sees by 9p.
  async put(name, bytes) {
    await this.#emulator.create_file(`/${name}`, bytes);
    await this.run(`chmod +x /files/${name}`, () => {}).status;
  }

  // Ends a command with SIGTERM.
  stop(number) {
    if (this.#running.has(number)) this.#say(`${++this.#count} stop ${number}`);
  }

  // Joins this machine and another one by an Ethernet. Each calls its `sends` with each frame.
  join(other) {
    for (const [from, to] of [[this, other], [other, this]])
      from.#emulator.add_listener("net0-send", (frame) => {
        const copy = Uint8Array.from(frame);
        from.sends?.(copy);
        to.#emulator.bus.send("net0-receive", copy);
      });
  }

  // Connects the shell to a terminal of xterm.
  attach(terminal) {
    this.#emulator.add_listener("serial0-output-byte", (byte) => terminal.write([byte]));
    terminal.onData((text) => this.#emulator.serial0_send(text));
  }

  #say(line) {
    this.#emulator.serial_send_bytes(1, new TextEncoder().encode(line + "\n"));
  }

  #hear(byte) {
    this.#line += this.#bytes.decode(Uint8Array.of(byte), { stream: true });
    if (!this.#line.endsWith("\n")) return;
    const found = /^(\d+)([:=])(.*)/.exec(this.#line.trimEnd());
    this.#line = "";
    const command = found && this.#running.get(Number(found[1]));
    if (!command) return;
    if (found[2] === ":") command.line(found[3]);
    else {
      this.#running.delete(Number(found[1]));
      command.end(Number(found[3]));
    }
  }
}
