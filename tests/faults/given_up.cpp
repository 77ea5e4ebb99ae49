// SPDX-License-Identifier: MIT
// A client that gives up before the server accepts. Both sides are in this process.
#include <rdmacommon/check.hpp>
#include <rdmacommon/cm.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/stopwatch.hpp>

#include <chrono>
#include <string>
#include <thread>

using namespace rdmacommon;

namespace {

constexpr ibv_qp_cap cap{.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1};

// One side of a connection.
struct Side {
  explicit Side(unique_cm_id its) : id(std::move(its)) {}
  void create() { qp = create_cm_qp(id.get(), pd.get(), cq.get(), cap); }

  unique_cm_id id;
  unique_pd pd = alloc_pd(id->verbs);
  unique_cq cq = create_cq(id->verbs, 2);
  unique_cm_qp qp;
};

Side connecting(rdma_event_channel *channel, const CmOptions &options) {
  unique_cm_id id = create_cm_id(channel);
  cm_resolve(id.get(), channel, options);
  Side side(std::move(id));
  side.create();
  rdma_conn_param parameters{};
  check_errno(rdma_connect(side.id.get(), &parameters), "rdma_connect");
  return side;
}

unique_cm_id request(rdma_event_channel *channel, const CmOptions &options) {
  const auto event = wait_for_cm_event(channel, RDMA_CM_EVENT_CONNECT_REQUEST, options.timeout);
  return unique_cm_id(event->id);
}

// Waits until the server's kernel knows that the client has given up. No event says so: the kernel
// (ucma.c) drops the events of a connection that nobody has accepted yet. rdma_init_qp_attr() fails
// from then on, and changes nothing.
void wait_until_given_up(rdma_cm_id *id, std::chrono::milliseconds limit) {
  ibv_qp_attr attributes{.qp_state = IBV_QPS_INIT};
  int mask = 0;
  for (const auto deadline = deadline_in(limit); rdma_init_qp_attr(id, &attributes, &mask) == 0;) {
    if (std::chrono::steady_clock::now() >= deadline)
      throw Error("the client", "the kernel does not learn that it has given up");
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

void give_up(int argc, char **argv) {
  CommandLine line{"Accepts a client that has given up."};
  CmOptions options{line, "this host"};
  std::string call = "accept";
  line.add("--call", call, "that is to fail: create or accept [accept]", {"create", "accept"});
  line.parse(argc, argv);
  const unique_event_channel channel = create_event_channel();
  CmAddress address = cm_address(options);
  const unique_cm_id listener = cm_listen(channel.get(), address, 1);
  options.cm_port = ntohs(rdma_get_src_port(listener.get()));

  Side client = connecting(channel.get(), options);
  Side server(request(channel.get(), options));
  if (call == "accept")
    server.create();
  client.qp.reset();
  client.id.reset();
  wait_until_given_up(server.id.get(), options.timeout);
  if (call == "create")
    server.create();
  rdma_conn_param answer{};
  check_errno(rdma_accept(server.id.get(), &answer), "rdma_accept");
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, give_up);
}
