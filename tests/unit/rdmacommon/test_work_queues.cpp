// SPDX-License-Identifier: MIT
#include <rdmacommon/check.hpp>
#include <rdmacommon/work_queues.hpp>

#include <gtest/gtest.h>

#include <array>
#include <bit>
#include <cerrno>
#include <cstdint>
#include <vector>

using namespace rdmacommon;

namespace {

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
  ibv_wc came(uint32_t immediate) const {
    ibv_wc wc{.status = IBV_WC_SUCCESS, .opcode = IBV_WC_RECV_RDMA_WITH_IMM, .qp_num = qp.qp_num};
    wc.imm_data = immediate;
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

TEST(ReceiveQueue, RepostsWhatWasUsed) {
  FakeQp fake;
  EXPECT_THROW(ReceiveQueue(&fake.qp, 0), Error);
  ReceiveQueue one(&fake.qp, 1);
  one.received(fake.came(7));
  EXPECT_THROW(one.received(fake.came(7)), Error); // more than were posted
  FakeQp::receives.clear();
  ReceiveQueue again(&fake.qp, 5);
  EXPECT_FALSE(again.repost());
  for (uint32_t i = 0; i < 3; ++i)
    EXPECT_EQ(again.received(fake.came(i)), i);
  EXPECT_EQ(again.used(), 3U);
  EXPECT_TRUE(again.repost());
  EXPECT_EQ(again.used(), 0U);
  for (uint32_t i = 0; i < 5; ++i)
    again.received(fake.came(i));
  EXPECT_TRUE(again.repost());
  EXPECT_EQ(FakeQp::receives, (std::vector{5, 3, 5}));
}

TEST(ReceiveQueue, RefusesWhatIsNoWrite) {
  FakeQp fake;
  ReceiveQueue queue(&fake.qp, 8);
  ibv_wc send = fake.came(1);
  send.opcode = IBV_WC_RECV;
  EXPECT_THROW(queue.received(send), Error);
  ibv_wc failed = fake.came(1);
  failed.status = IBV_WC_WR_FLUSH_ERR;
  EXPECT_THROW(queue.received(failed), Error);
  ibv_wc other = fake.came(1);
  ++other.qp_num;
  EXPECT_THROW(queue.received(other), Error);
}

} // namespace
