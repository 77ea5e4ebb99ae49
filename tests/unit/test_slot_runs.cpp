// SPDX-License-Identifier: MIT
#include <rdmacommon/check.hpp>
#include <rdmacommon/slot_runs.hpp>

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <vector>

using namespace rdmacommon;

namespace {

TEST(SlotHeader, IsInNetworkByteOrder) {
  const SlotHeader header{
      .length = 0x01020304, .kind = 0x0506, .flags = 0x0708, .id = 0x090a0b0c0d0e0f10};
  const auto bytes = std::bit_cast<std::array<uint8_t, 16>>(to_wire(header));
  for (size_t i = 0; i < bytes.size(); ++i)
    EXPECT_EQ(bytes[i], i + 1);
  EXPECT_EQ(from_wire(to_wire(header)), header);
}

TEST(SlotsOf, CountsTheHeaderToo) {
  EXPECT_EQ(slots_of(0, 64), 1U);
  EXPECT_EQ(slots_of(48, 64), 1U);
  EXPECT_EQ(slots_of(49, 64), 2U);
  EXPECT_EQ(slots_of(112, 64), 2U);
  EXPECT_EQ(slots_of(0xffffffff, 64), (1U << 26) + 1);
  EXPECT_EQ(slots_of(0xffffffff, 1 << 20), (1U << 12) + 1);
}

TEST(CheckedRun, TakesWhatThereIs) {
  for (const rdmacommon::Run run : {rdmacommon::Run{0, 1}, {63, 1}, {0, 64}, {60, 4}}) {
    const rdmacommon::Run again = checked_run(to_immediate(run), 64);
    EXPECT_EQ(again.first, run.first);
    EXPECT_EQ(again.count, run.count);
  }
  EXPECT_EQ(checked_run(to_immediate({0xffff01, 255}), 1 << 24).count, 255U);
}

TEST(CheckedRun, RefusesWhatThereIsNot) {
  for (const rdmacommon::Run run :
       {rdmacommon::Run{0, 0}, {64, 1}, {63, 2}, {0, 65}, {0xffffff, 255}})
    EXPECT_THROW(checked_run(to_immediate(run), 64), Error) << run.first << " " << run.count;
  EXPECT_THROW(checked_run(to_immediate({0xffff02, 255}), 1 << 24), Error);
}

// A QP whose provider only writes down what is posted.
struct FakeQp {
  FakeQp() {
    context.ops.post_send = [](ibv_qp *, ibv_send_wr *request, ibv_send_wr **) {
      chains.emplace_back();
      for (; request != nullptr; request = request->next) {
        chains.back().push_back(*request);
        pieces.push_back(request->num_sge > 0 ? *request->sg_list : ibv_sge{});
      }
      return refuse;
    };
    context.ops.post_recv = [](ibv_qp *, ibv_recv_wr *request, ibv_recv_wr **) {
      receives.emplace_back(0);
      for (; request != nullptr; request = request->next)
        ++receives.back();
      return refuse;
    };
    qp.context = &context;
    qp.qp_num = 17;
    chains.clear();
    pieces.clear();
    receives.clear();
    refuse = 0;
  }
  ibv_wc done(uint64_t wr_id) const {
    return {.wr_id = wr_id, .status = IBV_WC_SUCCESS, .qp_num = qp.qp_num};
  }
  ibv_wc came(rdmacommon::Run run) const {
    ibv_wc wc{.status = IBV_WC_SUCCESS, .opcode = IBV_WC_RECV_RDMA_WITH_IMM, .qp_num = qp.qp_num};
    wc.imm_data = to_immediate(run);
    return wc;
  }

  ibv_context context{};
  ibv_qp qp{};
  static inline std::vector<std::vector<ibv_send_wr>> chains;
  static inline std::vector<ibv_sge> pieces;
  static inline std::vector<int> receives;
  static inline int refuse;
};

TEST(SendQueue, PostsAllInOneCall) {
  FakeQp fake;
  SendQueue queue(&fake.qp, 8);
  queue.post();
  EXPECT_EQ(queue.posts(), 0U);
  for (uint32_t i = 0; i < 3; ++i) {
    ibv_sge piece{.addr = 100 + i, .length = i, .lkey = 7};
    queue.add({.sg_list = &piece, .num_sge = 1, .opcode = IBV_WR_RDMA_WRITE});
  }
  queue.add({.opcode = IBV_WR_RDMA_WRITE});
  EXPECT_TRUE(FakeQp::chains.empty());
  queue.post();
  ASSERT_EQ(FakeQp::chains.size(), 1U);
  ASSERT_EQ(FakeQp::chains[0].size(), 4U);
  for (uint32_t i = 0; i < 3; ++i)
    EXPECT_EQ(FakeQp::pieces[i].addr, 100 + i);
  EXPECT_EQ(FakeQp::chains[0][3].wr_id, 4U);
  EXPECT_EQ(FakeQp::chains[0][3].num_sge, 0);
  queue.add({.opcode = IBV_WR_RDMA_WRITE});
  queue.post();
  EXPECT_EQ(FakeQp::chains[1].size(), 1U);
  EXPECT_EQ(queue.posts(), 2U);
}

TEST(SendQueue, PlacesComeBackByCompletions) {
  for (const uint32_t depth : {1U, 2U, 3U, 7U, 64U}) {
    FakeQp fake;
    SendQueue queue(&fake.qp, depth);
    for (int round = 0; round < 5; ++round) {
      while (queue.room() > 0)
        queue.add({.opcode = IBV_WR_RDMA_WRITE});
      EXPECT_THROW(queue.add({.opcode = IBV_WR_RDMA_WRITE}), Error);
      queue.post();
      EXPECT_EQ(queue.added() - queue.done(), depth);
      // Whatever is in the queue, a completion will come that makes room.
      const uint64_t before = queue.done();
      for (const auto &chain : FakeQp::chains)
        for (const ibv_send_wr &request : chain)
          if ((request.send_flags & IBV_SEND_SIGNALED) != 0 && request.wr_id > queue.done())
            queue.completed(fake.done(request.wr_id));
      ASSERT_GT(queue.done(), before) << depth;
      EXPECT_GE(queue.room(), (depth + 1) / 2);
      EXPECT_EQ(queue.room(), depth - (queue.added() - queue.done()));
    }
  }
}

TEST(SendQueue, SignalsWhatAsksForIt) {
  FakeQp fake;
  SendQueue queue(&fake.qp, 8); // one in four at least
  for (int i = 0; i < 8; ++i)
    queue.add({.opcode = IBV_WR_RDMA_WRITE,
               .send_flags = i == 1 ? static_cast<unsigned>(IBV_SEND_SIGNALED) : 0});
  queue.post();
  std::vector<int> signaled;
  for (const ibv_send_wr &request : FakeQp::chains[0])
    if ((request.send_flags & IBV_SEND_SIGNALED) != 0)
      signaled.push_back(static_cast<int>(request.wr_id));
  EXPECT_EQ(signaled, (std::vector{2, 6}));
}

TEST(SendQueue, RefusesCompletionsThatCannotBe) {
  FakeQp fake;
  EXPECT_THROW(SendQueue(&fake.qp, 0), Error);
  SendQueue queue(&fake.qp, 4);
  queue.add({.opcode = IBV_WR_RDMA_WRITE});
  EXPECT_THROW(queue.completed(fake.done(1)), Error); // not posted
  queue.post();
  EXPECT_THROW(queue.completed(fake.done(0)), Error);
  EXPECT_THROW(queue.completed(fake.done(2)), Error);
  ibv_wc other = fake.done(1);
  ++other.qp_num;
  EXPECT_THROW(queue.completed(other), Error);
  ibv_wc failed = fake.done(1);
  failed.status = IBV_WC_RNR_RETRY_EXC_ERR;
  EXPECT_THROW(queue.completed(failed), Error);
  EXPECT_EQ(queue.done(), 0U);
  queue.completed(fake.done(1));
  EXPECT_THROW(queue.completed(fake.done(1)), Error); // twice
  ibv_send_wr two{.num_sge = 2};
  EXPECT_THROW(queue.add(two), Error);
  FakeQp::refuse = EINVAL;
  queue.add({.opcode = IBV_WR_RDMA_WRITE});
  EXPECT_THROW(queue.post(), Error);
}

TEST(AddRun, GoesToTheSamePlaceInTheMirror) {
  FakeQp fake;
  SendQueue queue(&fake.qp, 8);
  std::array<std::byte, 1024> memory{};
  const ibv_mr mr{.addr = memory.data(), .length = memory.size(), .lkey = 5};
  const SlotMirror mirror{
      .mine = &mr, .slot_size = 64, .address = 0x10000, .rkey = 9, .max_inline = 128};
  add_run(queue, mirror, {.first = 14, .count = 2}, 128);
  add_run(queue, mirror, {.first = 3, .count = 3}, 129);
  add_run(queue, mirror, {.first = 3, .count = 3}, 0);
  queue.post();
  const auto &chain = FakeQp::chains[0];
  ASSERT_EQ(chain.size(), 3U);
  EXPECT_EQ(chain[0].opcode, IBV_WR_RDMA_WRITE_WITH_IMM);
  EXPECT_EQ(chain[0].wr.rdma.remote_addr, 0x10000U + 14 * 64);
  EXPECT_EQ(chain[0].wr.rdma.rkey, 9U);
  EXPECT_EQ(chain[0].imm_data, to_immediate({14, 2}));
  EXPECT_NE(chain[0].send_flags & IBV_SEND_INLINE, 0U);
  EXPECT_EQ(FakeQp::pieces[0].addr, reinterpret_cast<uintptr_t>(memory.data()) + 14 * 64);
  EXPECT_EQ(FakeQp::pieces[0].length, 128U);
  EXPECT_EQ(chain[1].send_flags & IBV_SEND_INLINE, 0U);
  EXPECT_EQ(chain[2].num_sge, 0);

  EXPECT_THROW(add_run(queue, mirror, {.first = 0, .count = 2}, 129), Error);
  EXPECT_THROW(add_run(queue, mirror, {.first = 15, .count = 2}, 65), Error);
  EXPECT_THROW(add_run(queue, mirror, {.first = 0, .count = 256}, 64), Error);
  add_run(queue, {}, {.first = 1000, .count = 1}, 0); // immediate data only: no memory
}

TEST(RunReceiver, RepostsWhatWasUsed) {
  FakeQp fake;
  EXPECT_THROW(RunReceiver(&fake.qp, 0, 64), Error);
  RunReceiver one(&fake.qp, 1, 64);
  one.received(fake.came({0, 1}));
  EXPECT_THROW(one.received(fake.came({0, 1})), Error); // more than were posted
  FakeQp::receives.clear();
  RunReceiver again(&fake.qp, 5, 64);
  again.repost();
  for (uint32_t i = 0; i < 3; ++i)
    EXPECT_EQ(again.received(fake.came({i, 2})).first, i);
  again.repost();
  for (uint32_t i = 0; i < 5; ++i)
    again.received(fake.came({i, 2}));
  again.repost();
  EXPECT_EQ(FakeQp::receives, (std::vector{5, 3, 5}));
  EXPECT_EQ(again.posts(), 3U);
}

TEST(RunReceiver, RefusesWhatIsNoRun) {
  FakeQp fake;
  RunReceiver receiver(&fake.qp, 8, 64);
  EXPECT_THROW(receiver.received(fake.came({0, 0})), Error);
  EXPECT_THROW(receiver.received(fake.came({60, 5})), Error);
  ibv_wc send = fake.came({0, 1});
  send.opcode = IBV_WC_RECV;
  EXPECT_THROW(receiver.received(send), Error);
  ibv_wc failed = fake.came({0, 1});
  failed.status = IBV_WC_WR_FLUSH_ERR;
  EXPECT_THROW(receiver.received(failed), Error);
}

} // namespace
