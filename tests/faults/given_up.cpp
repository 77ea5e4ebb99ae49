// SPDX-License-Identifier: MIT
// A client that gives up before the server accepts. Both ends are in this process, so that the
// server's calls come after the kernel has learned of it: the CM handles messages in their order,
// and the request of a second client comes after the first client's message.
#include <rdmacommon/check.hpp>
#include <rdmacommon/cm.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>

#include <string>

using namespace rdmacommon;

namespace {

constexpr ibv_qp_cap cap{.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1};

// One end of a connection.
struct End {
  explicit End(unique_cm_id its) : id(std::move(its)) {}
  void create() { qp = create_cm_qp(id.get(), pd.get(), cq.get(), cap); }

  unique_cm_id id;
  unique_pd pd = alloc_pd(id->verbs);
  unique_cq cq = create_cq(id->verbs, 2);
  unique_cm_qp qp;
};

End connecting(rdma_event_channel *channel, const CmOptions &options) {
  unique_cm_id id = create_cm_id(channel);
  cm_resolve(id.get(), channel, options);
  End end(std::move(id));
  end.create();
  rdma_conn_param parameters{};
  check_errno(rdma_connect(end.id.get(), &parameters), "rdma_connect");
  return end;
}

unique_cm_id request(rdma_event_channel *channel, const CmOptions &options) {
  const auto event = wait_for_cm_event(channel, RDMA_CM_EVENT_CONNECT_REQUEST, options.timeout);
  return unique_cm_id(event->id);
}

void give_up(int argc, char **argv) {
  CommandLine line{"Accepts a client that has given up."};
  CmOptions options{line, "this host"};
  std::string call = "accept";
  line.add("--call", call, "that is to fail: create or accept [accept]", {"create", "accept"});
  line.parse(argc, argv);
  const unique_event_channel channel = create_event_channel();
  CmAddress address = cm_address(options);
  const unique_cm_id listener = cm_listen(channel.get(), address, 2);
  options.cm_port = ntohs(rdma_get_src_port(listener.get()));

  End client = connecting(channel.get(), options);
  End server(request(channel.get(), options));
  if (call == "accept")
    server.create();
  client.qp.reset();
  client.id.reset(); // the kernel tells the server's kernel
  const End second = connecting(channel.get(), options);
  const unique_cm_id its = request(channel.get(), options);
  if (call == "create")
    server.create();
  rdma_conn_param answer{};
  check_errno(rdma_accept(server.id.get(), &answer), "rdma_accept");
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, give_up);
}
