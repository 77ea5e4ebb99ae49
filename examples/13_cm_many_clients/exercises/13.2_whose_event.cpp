// SPDX-License-Identifier: MIT
// Exercise 13.2 (★): two connections, one event channel.
// Wanted:   the client asks for two connections, "one" and "two". The server answers the second
//           request first. The client prints the name of each connection in the order in which they
//           are answered: two, one.
// Hints: ./lab hint 13.2
// Check: ./lab check 13.2

#include <rdmacommon/check.hpp>
#include <rdmacommon/cm.hpp>
#include <rdmacommon/exchange.hpp>
#include <rdmacommon/options.hpp>

#include <rdma/rdma_cma.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string_view>

using namespace rdmacommon;

namespace {

std::array<const char *, 2> names = {"one", "two"};

void serve(rdma_event_channel *channel, const CmOptions &options) {
  const unique_cm_id listener = cm_listen(channel, options, 2);
  unique_cm_id one, two;
  while (!one || !two) {
    const unique_cm_event request =
        wait_for_cm_event(channel, RDMA_CM_EVENT_CONNECT_REQUEST, options.wait);
    const rdma_conn_param &asked = request->param.conn;
    const std::string_view said(static_cast<const char *>(asked.private_data),
                                asked.private_data_len);
    (said.starts_with("two") ? two : one).reset(request->id);
  }
  for (rdma_cm_id *id : {two.get(), one.get()}) {
    rdma_conn_param answer{.qp_num = random_psn()}; // without a queue pair, as in exercise 12.1
    check_errno(rdma_accept(id, &answer), "rdma_accept");
    wait_for_cm_event(channel, RDMA_CM_EVENT_ESTABLISHED, options.timeout);
  }
  for (int ended = 0; ended < 2; ++ended) {
    const unique_cm_event event =
        wait_for_cm_event(channel, RDMA_CM_EVENT_DISCONNECTED, options.timeout);
    check_errno(rdma_disconnect(event->id), "rdma_disconnect");
  }
}

void ask(rdma_event_channel *channel, const CmOptions &options) {
  std::array<unique_cm_id, 2> ids{create_cm_id(channel), create_cm_id(channel)};
  for (size_t i = 0; i < ids.size(); ++i) {
    cm_resolve(ids[i].get(), channel, options);
    rdma_conn_param param{
        .private_data = names[i], .private_data_len = 3, .retry_count = 6, .qp_num = random_psn()};
    check_errno(rdma_connect(ids[i].get(), &param), "rdma_connect");
  }
  // TODO: the events come in another order than that of the requests.
  for (size_t i = 0; i < ids.size(); ++i) {
    const unique_cm_event event =
        wait_for_cm_event(channel, RDMA_CM_EVENT_CONNECT_RESPONSE, options.timeout);
    std::printf("%s is answered\n", names[i]);
    check_errno(rdma_establish(event->id), "rdma_establish");
  }
  for (const unique_cm_id &id : ids)
    check_errno(rdma_disconnect(id.get()), "rdma_disconnect");
  for (size_t i = 0; i < ids.size(); ++i)
    wait_for_cm_event(channel, RDMA_CM_EVENT_DISCONNECTED, options.timeout);
}

void whose_event(int argc, char **argv) {
  CommandLine line{"Two connections whose events come on one channel."};
  const CmOptions options{line, "the server; without it, be the server"};
  line.parse(argc, argv);
  const unique_event_channel channel = create_event_channel();
  (options.is_server() ? serve : ask)(channel.get(), options);
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, whose_event);
}
