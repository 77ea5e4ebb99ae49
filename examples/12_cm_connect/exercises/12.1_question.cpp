// SPDX-License-Identifier: MIT
// Exercise 12.1 (★): a question and its answer, in private data alone: no PD, no region, no queue
// pair.
// Wanted:   the server adds up the bytes of the client's question and answers with the sum, 32 bits
//           in network byte order; the client prints it.
// Hints: ./lab hint 12.1
// Check: ./lab check 12.1

#include <rdmacommon/check.hpp>
#include <rdmacommon/cm.hpp>
#include <rdmacommon/exchange.hpp>
#include <rdmacommon/options.hpp>

#include <rdma/rdma_cma.h>

#include <arpa/inet.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>

using namespace rdmacommon;

namespace {

using Question = std::array<uint8_t, 4>;
// A number has to be there, and one that was in use a moment ago would be rejected: "stale
// connection".
const uint32_t no_queue_pair = random_psn();

void serve(rdma_event_channel *channel, const CmOptions &options) {
  const unique_cm_id listener = cm_listen(channel, options, 1);
  const unique_cm_event request =
      wait_for_cm_event(channel, RDMA_CM_EVENT_CONNECT_REQUEST, options.wait);
  const unique_cm_id id(request->id);
  Question question{};
  if (request->param.conn.private_data_len < question.size())
    throw Error("the question", "it is too short");
  std::memcpy(question.data(), request->param.conn.private_data, question.size());
  std::printf("asked for %u + %u + %u + %u\n", question[0], question[1], question[2], question[3]);
  // TODO: the answer is missing.
  rdma_conn_param answer{.qp_num = no_queue_pair};
  check_errno(rdma_accept(id.get(), &answer), "rdma_accept");
  wait_for_cm_event(channel, RDMA_CM_EVENT_ESTABLISHED, options.timeout);
  wait_for_cm_event(channel, RDMA_CM_EVENT_DISCONNECTED, options.timeout);
  check_errno(rdma_disconnect(id.get()), "rdma_disconnect");
}

void ask(rdma_event_channel *channel, const CmOptions &options) {
  const unique_cm_id id = create_cm_id(channel);
  cm_resolve(id.get(), channel, options);
  const Question question{250, 7, 30, 4};
  rdma_conn_param param{.private_data = question.data(),
                        .private_data_len = question.size(),
                        .retry_count = 6,
                        .qp_num = no_queue_pair};
  check_errno(rdma_connect(id.get(), &param), "rdma_connect");
  {
    const unique_cm_event answer =
        wait_for_cm_event(channel, RDMA_CM_EVENT_CONNECT_RESPONSE, options.timeout);
    uint32_t sum = 0;
    if (answer->param.conn.private_data_len >= sizeof sum)
      std::memcpy(&sum, answer->param.conn.private_data, sizeof sum);
    std::printf("the sum is %u\n", ntohl(sum));
  }
  check_errno(rdma_establish(id.get()), "rdma_establish");
  check_errno(rdma_disconnect(id.get()), "rdma_disconnect");
  wait_for_cm_event(channel, RDMA_CM_EVENT_DISCONNECTED, options.timeout);
}

void question(int argc, char **argv) {
  CommandLine line{"Asks and answers by private data."};
  const CmOptions options{line, "the server; without it, be the server"};
  line.parse(argc, argv);
  const unique_event_channel channel = create_event_channel();
  (options.is_server() ? serve : ask)(channel.get(), options);
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, question);
}
