// SPDX-License-Identifier: MIT
// 31_kernel_client, its server: memory for the pages of one client, which reaches it by several
// queues.
//
// Lesson:  lessons/31_kernel_client.md
// Needs:   an RDMA device with an IP address (./lab doctor says where yours comes from)
// Run:     ./lab run 31_kernel_client
// By hand: page_server                     listens on all addresses
//                                          --largest BYTES: the most that a client may have
//          insmod kernel_client.ko server=ADDRESS port=18515

#include <rdmacommon/check.hpp>
#include <rdmacommon/cm.hpp>
#include <rdmacommon/completions.hpp>
#include <rdmacommon/description.hpp>
#include <rdmacommon/handles.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/requests.hpp>

#include <infiniband/verbs.h>
#include <rdma/rdma_cma.h>

#include <endian.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

using namespace rdmacommon;

namespace {

// The private data of the request for each queue; kernel_client.h has it for C.
struct QueueRequest {
  Greeting greeting;
  uint64_t length; // bytes that all queues together need
  uint16_t queue;  // number of this queue, from 0
  uint16_t queues; // number of all queues
  uint32_t reserved;
};
static_assert(sizeof(QueueRequest) == 24);
constexpr uint16_t max_queues = 64;
constexpr int closed = IBV_ACCESS_LOCAL_WRITE;
constexpr int open_to_all_queues = closed | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

QueueRequest request_in(const rdma_conn_param &came) {
  QueueRequest told{};
  if (came.private_data != nullptr && came.private_data_len >= sizeof told)
    std::memcpy(&told, came.private_data, sizeof told);
  return {.greeting = told.greeting,
          .length = be64toh(told.length),
          .queue = be16toh(told.queue),
          .queues = be16toh(told.queues),
          .reserved = 0};
}

// The objects that all queues share, on the device of the first queue. There is one PD, so the key
// that the client learns on queue 0 is good on all of them.
struct SharedObjects {
  SharedObjects(ibv_context *context, uint64_t length) : pages(length), context(context) {}

  std::vector<char> pages;
  Description theirs{};
  ibv_context *context;
  unique_pd pd = alloc_pd(context);
  unique_mr mr = reg_mr(pd.get(), pages.data(), pages.size(), open_to_all_queues);
  unique_mr theirs_mr = reg_mr(pd.get(), &theirs, sizeof theirs, closed);
  unique_comp_channel channel = create_comp_channel(context);
  unique_cq cq = create_cq(context, 2 * max_queues, channel.get());
};

struct Queue {
  unique_cm_id id;
  unique_cm_qp qp; // goes first
};

class PageServer {
public:
  PageServer(const CmOptions &options, uint64_t largest) : options_(options), largest_(largest) {}

  void run() {
    const unique_cm_id listener = cm_listen(channel_.get(), options_, max_queues);
    while (queues_.empty() || open_ > 0) {
      const unique_cm_event event =
          next_cm_event(channel_.get(), RDMA_CM_EVENT_CONNECT_REQUEST, options_.wait);
      switch (event->event) {
      case RDMA_CM_EVENT_CONNECT_REQUEST:
        try {
          take_request(*event);
        } catch (const Error &error) {
          if (queues_.empty())
            throw;                                    // nobody is served yet
          std::fprintf(stderr, "%s\n", error.what()); // a stranger; the client's queues go on
        }
        break;
      case RDMA_CM_EVENT_ESTABLISHED:
        if (event->id == queues_.front().id.get())
          describe_memory();
        break;
      case RDMA_CM_EVENT_DISCONNECTED: // the client leaves, or has died
        rdma_disconnect(event->id);    // fails if the connection is already gone
        --open_;
        break;
      case RDMA_CM_EVENT_TIMEWAIT_EXIT:
        break;
      default:
        check_cm_event(*event, RDMA_CM_EVENT_ESTABLISHED);
      }
    }
    const auto text = static_cast<int>(strnlen(memory_->pages.data(), 72));
    std::printf("DISCONNECTED     all queues; my memory begins: \"%.*s\"\n", text,
                memory_->pages.data());
  }

private:
  // Nothing is made for a client before its request is known to be right.
  void take_request(const rdma_cm_event &event) {
    unique_cm_id id(event.id);
    const auto hello = greeting_in(event.param.conn);
    const QueueRequest asked = request_in(event.param.conn);
    if (!hello || hello->version != protocol_version)
      reject(id.get(), Refusal::version, words_for(Refusal::version));
    if (queues_.empty() && (asked.length == 0 || asked.length > largest_))
      reject(id.get(), Refusal::full,
             "it needs " + std::to_string(asked.length) + " bytes, and may have 1 to " +
                 std::to_string(largest_));
    if (asked.queues == 0 || asked.queues > max_queues || asked.queue >= asked.queues ||
        asked.queue != queues_.size())
      reject(id.get(), Refusal::full,
             "queue " + std::to_string(asked.queue) + " of " + std::to_string(asked.queues) +
                 " comes after " + std::to_string(queues_.size()));
    if (memory_ && (id->verbs != memory_->context || asked.length != memory_->pages.size()))
      reject(id.get(), Refusal::full, "this queue is not like the first");
    if (!memory_)
      memory_ = std::make_unique<SharedObjects>(id->verbs, asked.length);
    std::printf("CONNECT_REQUEST  queue %u of %u on %s\n", asked.queue, asked.queues,
                ibv_get_device_name(id->verbs->device));
    accept(std::move(id), event.param.conn);
  }

  [[noreturn]] static void reject(rdma_cm_id *id, Refusal why, const std::string &words) {
    const Greeting no = greeting(why);
    check_errno(rdma_reject(id, &no, sizeof no), "rdma_reject");
    throw Error("the client's request", words);
  }

  void accept(unique_cm_id id, const rdma_conn_param &asked) {
    unique_cm_qp qp = create_cm_qp(id.get(), memory_->pd.get(), memory_->cq.get(),
                                   {.max_send_wr = 1,
                                    .max_recv_wr = 1,
                                    .max_send_sge = 1,
                                    .max_recv_sge = 1,
                                    .max_inline_data = sizeof(Description)});
    if (queues_.empty()) { // queue 0, which the descriptions go by
      ibv_sge into = piece(memory_->theirs_mr.get(), &memory_->theirs, sizeof memory_->theirs);
      post_recv(id->qp, {.sg_list = &into, .num_sge = 1});
    }
    const Greeting hello = greeting();
    rdma_conn_param answer{.private_data = &hello,
                           .private_data_len = sizeof hello,
                           .responder_resources = std::min<uint8_t>(asked.responder_resources, 1),
                           .rnr_retry_count = 6};
    check_errno(rdma_accept(id.get(), &answer), "rdma_accept");
    queues_.push_back({.id = std::move(id), .qp = std::move(qp)});
    ++open_;
  }

  // The client asks for its other queues after it has this, so no event is missed meanwhile.
  void describe_memory() {
    ibv_wc done{};
    wait_for_completions(memory_->cq.get(), {&done, 1}, "the client's description",
                         options_.timeout);
    check_wc(done, "the client's description");
    std::printf("theirs  %s\n", to_line(parse_description(memory_->theirs, done.byte_len)).c_str());
    const Description mine = describe(memory_->mr.get());
    ibv_sge sge{.addr = reinterpret_cast<uintptr_t>(&mine), .length = sizeof mine, .lkey = 0};
    post_send(
        queues_.front().id->qp,
        {.sg_list = &sge, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_INLINE});
    std::printf("mine    %s\n", to_line(share(memory_->mr.get())).c_str());
  }

  const CmOptions &options_;
  const uint64_t largest_;
  unique_event_channel channel_ = create_event_channel();
  std::unique_ptr<SharedObjects> memory_; // outlives the queues
  std::vector<Queue> queues_;
  size_t open_ = 0; // queues whose DISCONNECTED has not come
};

void page_server(int argc, char **argv) {
  CommandLine line{"Lends its memory to a client that swaps pages into it."};
  const CmOptions options{line, "the address to listen on [all of them]"};
  uint64_t largest = 64 << 20;
  line.add("--largest", largest, "the most memory that the client may have, in bytes [67108864]", 1,
           uint64_t{1} << 40);
  line.parse(argc, argv);
  PageServer(options, largest).run();
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, page_server);
}
