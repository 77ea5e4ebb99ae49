// SPDX-License-Identifier: MIT
// 11_when_it_breaks: every failure on purpose: what comes of it, on which side, why, and how to go
// on.
//
// Lesson:  lessons/11_when_it_breaks.md
// Needs:   an RDMA device on both sides (./lab doctor says where yours comes from)
// Run:     ./lab run 11_when_it_breaks
//          ./lab run 11_when_it_breaks -- rnr
// By hand: when_it_breaks [FAILURE]                  the server
//          when_it_breaks [FAILURE] --host ADDRESS   the client, which reports

#include "failures.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/queue_pair.hpp>
#include <rdmacommon/requests.hpp>

#include <infiniband/verbs.h>

#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

using namespace rdmacommon;

namespace {

// ---- what can be seen

// [observe]
// Waits for the next completion, and returns its status as text.
std::string wait_for_failure(ibv_cq *cq, std::chrono::seconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  ibv_wc wc{};
  while (check_count(ibv_poll_cq(cq, 1, &wc), "ibv_poll_cq") == 0)
    if (std::chrono::steady_clock::now() > deadline)
      throw Error("the failure", "it did not come");
  return "status " + std::to_string(wc.status) + ", " + ibv_wc_status_str(wc.status);
}

// The completion may come a moment before the queue pair changes its state.
void wait_for_error_state(ibv_qp *qp, std::chrono::seconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (state_of(qp) != std::string_view("ERR"))
    if (std::chrono::steady_clock::now() > deadline)
      throw Error("the queue pair", std::string("it stays in ") + state_of(qp));
}

// Waits for an event about the CQ, which belongs to no request. Other events may come first. A CQ
// may have more room than it says: then nothing happens.
std::string wait_for_event(const ibv_cq *cq, std::chrono::seconds timeout) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  for (;;) {
    pollfd what{.fd = cq->context->async_fd, .events = POLLIN};
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(
        std::max(deadline - std::chrono::steady_clock::now(), std::chrono::nanoseconds(0)));
    if (check_errno(poll(&what, 1, static_cast<int>(left.count())), "poll") == 0)
      return "no event, so it has more room";
    ibv_async_event event{};
    check_errno(ibv_get_async_event(cq->context, &event), "ibv_get_async_event");
    ibv_ack_async_event(&event); // without this, destroying the CQ or QP waits forever
    if (event.event_type == IBV_EVENT_CQ_ERR && event.element.cq == cq)
      return std::string("event: ") + ibv_event_type_str(event.event_type);
  }
}
// [observe]

// ---- one connection, on which something fails

class Connection {
public:
  Connection(const PairOptions &options, const Port &port, Exchange &exchange, bool shares_foreign)
      : options_(options), port_(port), exchange_(exchange), shares_foreign_(shares_foreign) {
    const int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
    pd_ = alloc_pd(port.context.get());
    foreign_pd_ = alloc_pd(port.context.get());
    mr_ = reg_mr(pd_.get(), memory_.data(), memory_.size(), access);
    foreign_mr_ = reg_mr(foreign_pd_.get(), memory_.data(), memory_.size(), access);
    create();
    connect_both();
  }

  void create() {
    qp_.reset(); // before its CQ
    // 3: fewer than the requests that can be posted, so that one failure can overrun it.
    cq_ = create_cq(port_.context.get(), 3);
    qp_ = create_rc_qp(
        pd_.get(), cq_.get(),
        {.max_send_wr = send_depth, .max_recv_wr = 2, .max_send_sge = 1, .max_recv_sge = 1});
  }

  // [connect-both]
  // INIT to RTS with new PSNs, here and at the peer.
  void connect_both() {
    to_init(qp_.get(), port_, IBV_ACCESS_REMOTE_WRITE); // and no REMOTE_READ
    const ibv_mr *shared = shares_foreign_ ? foreign_mr_.get() : mr_.get();
    if (!options_.is_server())
      receive(side()); // for the message that proves the recovery
    theirs_ = connect(qp_.get(), port_, exchange_, options_, share(shared));
  }
  // [connect-both]

  // [recover]
  // Both sides do this: a queue pair that has not failed still expects the old PSNs.
  void recover() {
    to_state(side(), IBV_QPS_RESET, "ibv_modify_qp(RESET)"); // drops what is posted
    ibv_wc old{};
    while (check_count(ibv_poll_cq(cq_.get(), 1, &old), "ibv_poll_cq") > 0)
      ; // these completions belong to the old connection
    connect_both();
  }
  // [recover]

  void replace() {
    create();
    connect_both();
  }

  Side side() { return {qp_.get(), cq_.get(), mr_.get(), foreign_mr_.get(), theirs_}; }
  char *text() { return memory_.data(); }

private:
  const PairOptions &options_;
  const Port &port_;
  Exchange &exchange_;
  const bool shares_foreign_;
  std::array<char, message_size> memory_{};
  unique_pd pd_, foreign_pd_;
  unique_mr mr_, foreign_mr_;
  unique_cq cq_;
  unique_qp qp_;
  RemoteMemory theirs_{};
};

// [server]
void server(const Failure &failure, Connection &connection, Exchange &exchange,
            const PairOptions &options) {
  failure.server(connection.side());
  exchange.send_done();
  exchange.receive_done(options.wait); // the client has failed
  const std::string state = state_of(connection.side().qp);
  const std::string seen =
      (state == "ERR" ? wait_for_failure(connection.side().cq, options.timeout) : "nothing") +
      "; " + state;
  std::printf("%s: %s\n", failure.name, seen.c_str());

  connection.recover();
  std::snprintf(connection.text(), message_size, "%s", seen.c_str());
  send(connection.side(), connection.side().message());
  wait_for_completion(connection.side().cq, "the message that proves it", options.timeout);
  exchange.send_done(); // the SEND is acknowledged: the client may destroy its queue pair
}
// [server]

struct Row {
  const Failure &failure;
  std::string client, server;
};

// [client]
Row client(const Failure &failure, Connection &connection, Exchange &exchange,
           const PairOptions &options) {
  exchange.receive_done(); // the server is ready
  std::printf("%s\n  did:       %s\n", failure.name, failure.what);
  failure.client(connection.side());
  std::string seen;
  if (failure.is_event) {
    seen = wait_for_event(connection.side().cq, options.timeout);
  } else {
    seen = wait_for_failure(connection.side().cq, options.timeout);
    wait_for_error_state(connection.side().qp, options.timeout);
  }
  seen += std::string("; ") + state_of(connection.side().qp);
  exchange.send_done();
  std::printf("  client:    %s\n", seen.c_str());

  if (failure.is_event)
    connection.replace(); // a CQ that has lost a completion must not be used any more
  else
    connection.recover();
  exchange.receive_done();
  wait_for_completion(connection.side().cq, "the message that proves it", options.timeout);
  const std::string theirs(connection.text(), strnlen(connection.text(), message_size));
  std::printf("  server:    %s\n  why:       %s\n  fix:       %s\n  recovered: by %s, and the "
              "server's message is here\n",
              theirs.c_str(), failure.why, failure.fix,
              failure.is_event ? "a new CQ and a new QP" : "RESET, INIT, RTR, RTS");
  return {failure, seen, theirs};
}
// [client]

void print(const std::vector<Row> &table) {
  std::printf("| failure | what was done | at the client | at the server | what to do |\n"
              "|---|---|---|---|---|\n");
  for (const auto &[failure, client, server] : table)
    std::printf("| %s | %s | %s | %s | %s |\n", failure.name, failure.what, client.c_str(),
                server.c_str(), failure.fix);
}

void when_it_breaks(int argc, char **argv) {
  CommandLine line{"Lets one thing after the other fail, and recovers."};
  PairOptions options{line};
  std::string wanted = "all";
  std::vector<std::string> names{wanted};
  for (const Failure &failure : failures)
    names.emplace_back(failure.name);
  line.add("failure", wanted, "which one, the same on both sides [all]", names);
  line.parse(argc, argv);

  const Port port = open_port(options);
  Exchange exchange(options);
  std::vector<Row> table;
  for (const Failure &failure : failures)
    if (wanted == "all" || wanted == failure.name) {
      Connection connection(options, port, exchange, options.is_server() && failure.shares_foreign);
      if (options.is_server())
        server(failure, connection, exchange, options);
      else
        table.push_back(client(failure, connection, exchange, options));
    }
  if (!options.is_server())
    print(table);
  exchange.finish();
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, when_it_breaks);
}
