// SPDX-License-Identifier: MIT
/// @file
/// The exchange: before two queue pairs can talk, each side has to tell the other where its own is.
/// They use an ordinary TCP connection, and send one readable line in each direction:
///
///     client                                     server
///       |   LID:QPN:PSN:GID:MTU            --->    |   brings its QP to RTS, then answers
///       |   <---             LID:QPN:PSN:GID:MTU   |
///       |   brings its QP to RTS, then: done --->  |   both may send
///
/// MTU is decimal, the other fields are hexadecimal. Without MTU it is the line of the stock
/// ibv_rc_pingpong, which can take either side: see Exchange::peer_is_stock().
/// If memory is shared as well, `:ADDRESS:RKEY:LENGTH` follows on the same line.
///
/// Each message ends in a zero byte; a newline is taken as well, so that a person with `nc` can be
/// the peer. What the peer sends is checked before it is used.
///
/// Introduced in lesson 02_send_recv, except where another one is named.
#pragma once

#include "rdmacommon/check.hpp"
#include "rdmacommon/options.hpp"

#include <infiniband/verbs.h>

#include <chrono>
#include <cstdint>
#include <string>
#include <string_view>

namespace rdmacommon {

/// The address of a queue pair: what one side must know of the other to connect to it.
struct Endpoint {
  uint16_t lid; ///< Local identifier of the port (InfiniBand); says nothing on RoCE.
  uint32_t qpn; ///< Queue pair number, 24 bits.
  uint32_t psn; ///< Packet sequence number of the first packet it will send, 24 bits.
  ibv_gid gid;  ///< The port's GID, in network byte order as verbs has it.
  ibv_mtu mtu;  ///< The largest path MTU that this side can take. Both use the smaller of the two.
};

/// An Endpoint as the line "LID:QPN:PSN:GID:MTU": 4, 6, 6 and 32 lower-case hexadecimal digits, and
/// the MTU in bytes, 4 decimal digits.
std::string to_line(const Endpoint &endpoint);

/// The reverse of to_line(). A line without ":MTU" is a stock tool's, and means an MTU of 1024.
/// @throws Error if the line does not have exactly this form; the message names the field
Endpoint parse_endpoint(std::string_view line, Where where = Where::here());

/// Memory of the other side's that it lets this side use: what an RDMA WRITE, an RDMA READ or an
/// atomic needs to know. All of it is in host byte order here. Introduced in lesson 04_read_write.
struct RemoteMemory {
  uint64_t address; ///< The beginning: a virtual address of the other side's program, or 0.
  uint32_t rkey;    ///< The key of its region.
  uint64_t length;  ///< Length in bytes. The other side's NIC refuses what is beyond.
};

/// Describes all of `mr` for the other side. The access flags say what it may do there. Introduced
/// in lesson 04_read_write.
RemoteMemory share(const ibv_mr *mr);

/// A RemoteMemory as "ADDRESS:RKEY:LENGTH": 16, 8 and 16 lower-case hexadecimal digits.
/// Introduced in lesson 04_read_write.
std::string to_line(const RemoteMemory &memory);

/// The reverse. Introduced in lesson 04_read_write.
/// @throws Error if the text does not have exactly this form, or names no memory that there can be
RemoteMemory parse_remote_memory(std::string_view text, Where where = Where::here());

/// A packet sequence number to start from: random, so that packets left over from an earlier
/// connection of the same queue pair number are not taken for this one's.
/// @return 24 bits
uint32_t random_psn();

/// The TCP connection over which the two sides exchange their Endpoints. Owns the socket.
/// Not thread-safe. Every call that waits for the peer ends within the options' timeout, and
/// finish() within twice that.
///
///     rdmacommon::Exchange exchange(options);
///     exchange.send(rdmacommon::endpoint_of(qp.get(), port, psn));
///     const rdmacommon::Endpoint peer = exchange.receive();
///     // to_init(), to_rtr(), to_rts(); connect() does all of this in one call
///     exchange.finish(); // before the queue pair is destroyed
class Exchange {
public:
  /// Makes the connection: as the client of options.host, or, without a host, as the server, which
  /// listens, prints "listening on TCP port N", takes one client and stops listening. The client
  /// tries again while the connection is refused, since the server may still be starting.
  /// @throws Error if that fails or takes longer than options.timeout (server: options.wait)
  explicit Exchange(const PairOptions &options, Where where = Where::here());
  ~Exchange();
  Exchange(Exchange &&other) noexcept; ///< `other` may only be destroyed then.
  Exchange(const Exchange &) = delete;
  Exchange &operator=(const Exchange &) = delete;

  /// Sends one line. @throws Error if the peer is gone
  void send(const Endpoint &endpoint, Where where = Where::here());

  /// Receives one line. @throws Error if it is not right
  Endpoint receive(Where where = Where::here());

  /// The peer is ibv_rc_pingpong, whose line has no MTU: from here on send() leaves it out. A
  /// server need not call it: receive() finds out.
  void peer_is_stock() { peer_is_stock_ = true; }

  /// Sends one line, with memory that the peer may use. @throws Error if the peer is gone
  void send(const Endpoint &endpoint, const RemoteMemory &memory, Where where = Where::here());

  /// Receives one line, with memory of the peer's. @throws Error also if the peer shares no memory
  Endpoint receive(RemoteMemory &memory, Where where = Where::here());

  /// Says "done": the peer may go on. @throws Error if the peer is gone
  void send_done(Where where = Where::here());

  /// Waits for the peer's "done", as long as the options' timeout. @throws Error if anything else
  /// comes
  void receive_done(Where where = Where::here());

  /// Waits for the peer's "done" with another limit, for a peer that has much to do.
  void receive_done(std::chrono::milliseconds limit, Where where = Where::here());

  /// Returns true if a receive_…() would not wait: the peer has sent something, or is gone.
  /// Does not wait, so that a program can look in between polling for completions.
  bool can_receive(Where where = Where::here()) const;

  /// The connection's file descriptor, for poll(2) and epoll(7): readable when the peer has sent
  /// something, or is gone. Stays this object's. Introduced in lesson 09_shared_receive.
  int fd() const { return socket_; }

  /// Says that this side has finished, and waits until the peer has too, or is gone. Only then may
  /// a queue pair be destroyed: the peer may still be waiting for this one's acknowledgement.
  /// Waits for at most twice the options' timeout: the peer may be in a step of its own, which may
  /// take the timeout, and then it has to end.
  void finish(Where where = Where::here());

private:
  friend class Listener;
  Exchange(int socket, std::chrono::milliseconds timeout) : socket_(socket), timeout_(timeout) {}
  void send_message(std::string_view text, Where where);
  std::string receive_message(size_t length, const char *what, std::chrono::milliseconds limit,
                              Where where);

  int socket_ = -1;
  std::chrono::milliseconds timeout_;
  std::string unread_; // the bytes that came behind the last message
  bool peer_is_stock_ = false;
};

/// A server's listening socket, for one that takes several clients. Owns the socket. Not
/// thread-safe. Introduced in lesson 07_atomics.
///
///     rdmacommon::Listener listener(options);
///     for (uint32_t i = 0; i < clients; ++i)
///       serve(listener.accept()); // an Exchange
class Listener {
public:
  /// Listens, and prints "listening on TCP port N".
  /// @param options tcp_port, wait and timeout are used
  /// @throws Error if that port is taken
  explicit Listener(const PairOptions &options, Where where = Where::here());
  ~Listener();
  Listener(const Listener &) = delete;
  Listener &operator=(const Listener &) = delete;

  /// The next client, in the order in which they come.
  /// @throws Error if none comes within the options' `wait`
  Exchange accept(Where where = Where::here());

private:
  int socket_;
  std::chrono::milliseconds wait_, timeout_;
};

} // namespace rdmacommon
