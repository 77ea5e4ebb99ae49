// SPDX-License-Identifier: MIT
// Dissects a RoCEv2 packet (lessons/reading_a_packet.md).

// Which operations have a header behind the BTH, and its size in bytes.
const extended = [
  [/^UD/, 8], [/WRITE (First|Only)|READ Request|ATOMIC WRITE/, 16], [/CmpSwap|FetchAdd/, 28],
  [/Acknowledge|Response (First|Last|Only)/, 4], [/ATOMIC Acknowledge/, 8],
  [/Immediate|Invalidate/, 4]];
const CNP = 0x81; // Congestion Notification Packet
// The messages of the connection manager, from attribute 0x10 on.
const messages = [
  "ConnectRequest", "MsgRcptAck", "ConnectReject", "ConnectReply", "ReadyToUse",
  "DisconnectRequest", "DisconnectReply"];

// One line about an Ethernet frame. Undefined if it is no RoCEv2 packet.
export function dissected(frame, { operations, naks }) {
  const bytes = new DataView(frame.buffer);
  const is_ipv4 = bytes.getUint16(12) === 0x0800;
  const udp = 14 + (is_ipv4 ? 20 : 40), bth = udp + 8, after = bth + 12;
  const protocol = bytes.getUint8(is_ipv4 ? 23 : 20);
  if (protocol !== 17 || frame.length < after || bytes.getUint16(udp + 2) !== 4791) return;
  const opcode = bytes.getUint8(bth);
  const qp = bytes.getUint32(bth + 4) & 0xffffff, psn = bytes.getUint32(bth + 8) & 0xffffff;
  if (qp === 1) { // behind the DETH: a management datagram, whose bytes 16 and 17 are the attribute
    const attribute = bytes.getUint16(after + 8 + 16);
    return `CM ${messages[attribute - 0x10] ?? `message 0x${attribute.toString(16)}`}`;
  }
  if (opcode === CNP) return "CNP";
  const name = (opcode >> 5 === 3 ? "UD " : "") + operations[opcode & 31];
  const headers = extended.reduce((sum, [which, size]) => sum + (which.test(name) ? size : 0), 0);
  const padding = (bytes.getUint8(bth + 1) >> 4) & 3;
  const payload = bytes.getUint16(udp + 4) - 8 - 12 - headers - padding - 4; // UDP, BTH, ICRC
  const words = [name, `QP 0x${qp.toString(16)}`, `PSN 0x${psn.toString(16)}`];
  if (payload) words.push(`${payload} B`);
  if (bytes.getUint8(bth + 8) & 0x80) words.push("acknowledgement requested");
  if (/Acknowledge/.test(name)) {
    const kind = bytes.getUint8(after) >> 5, code = bytes.getUint8(after) & 31;
    words.push(kind === 0 ? "ACK" : kind === 1 ? "RNR NAK" : `NAK, ${naks[code] ?? code}`);
  }
  return words.join(" · ");
}
