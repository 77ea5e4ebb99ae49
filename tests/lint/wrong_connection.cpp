// SPDX-License-Identifier: MIT
// Cases about the attributes of a connection, and about what it lets a peer do.

#include "cases.hpp"

#include <cstdlib>
#include <cstring>
#include <fstream>
#include <thread>

namespace cases {
namespace {

const Add no_grh("no-grh", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options, {.connected = false});
  try {
    pair.connect({.to_rtr = [&](bool, ibv_qp_attr &attr) { attr.ah_attr.is_global = !wrong; }});
  } catch (const Error &) { // the kernel refuses it, too
  }
});

// An index whose entry is of another kind, or empty.
int index_of(const Port &port, bool empty) {
  for (int i = 0; i < port.attr.gid_tbl_len; ++i) {
    ibv_gid_entry entry{};
    if (ibv_query_gid_ex(port.context.get(), port.number, static_cast<std::uint32_t>(i), &entry,
                         0)) {
      if (empty)
        return i;
    } else if (!empty && entry.gid.raw[0] == 0xfe) {
      return i; // link-local
    }
  }
  throw Error("the GID table", "no such entry");
}

void connect_from(Pair &pair, int index) {
  try {
    pair.connect({.to_rtr = [&](bool, ibv_qp_attr &attr) {
      attr.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(index);
    }});
  } catch (const Error &) {
  }
}

const Add gid_empty("gid-empty", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options, {.connected = false});
  connect_from(pair, wrong ? index_of(pair.port, true) : static_cast<int>(pair.port.gid.gid_index));
});

const Add gid_type("gid-type", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options, {.connected = false});
  connect_from(pair,
               wrong ? index_of(pair.port, false) : static_cast<int>(pair.port.gid.gid_index));
});

// The index of the GID of an IPv4 address; -1 if no entry has it.
int index_of(const Port &port, const std::string &address) {
  for (int i = 0; i < port.attr.gid_tbl_len; ++i) {
    ibv_gid_entry entry{};
    if (!ibv_query_gid_ex(port.context.get(), port.number, static_cast<std::uint32_t>(i), &entry,
                          0) &&
        entry.gid_type == IBV_GID_TYPE_ROCE_V2 && to_text(entry.gid) == "::ffff:" + address)
      return i;
  }
  return -1;
}

// Changes the addresses of the port's network interface, and waits until the GID table shows it.
// An earlier run that was killed may have left the address: "replace" adds it or finds it.
int change(const Port &port, const char *what, const std::string &address) {
  std::string interface;
  std::ifstream("/sys/class/infiniband/" + port.device_name() + "/ports/" +
                std::to_string(port.number) + "/gid_attrs/ndevs/" +
                std::to_string(port.gid.gid_index)) >>
      interface;
  const std::string command =
      "ip address " + std::string(what) + " " + address + "/32 dev " + interface;
  if (std::system(command.c_str()) != 0)
    throw Error(command, "it failed");
  const bool there = std::string(what) == "replace";
  int index = -1;
  while (((index = index_of(port, address)) >= 0) != there) {
    ibv_async_event event{};
    check_errno(ibv_get_async_event(port.context.get(), &event), "ibv_get_async_event");
    ibv_ack_async_event(&event);
  }
  return index;
}

const Add gid_changed("gid-changed", [](const DeviceOptions &options, bool wrong) {
  const std::string address = "10.79.0.1";
  Pair pair(options, {.connected = false});
  const int index = change(pair.port, "replace", address);
  pair.connect({.to_rtr = [&](bool, ibv_qp_attr &attr) {
    attr.ah_attr.grh.sgid_index = static_cast<std::uint8_t>(index);
    check_rc(
        ibv_query_gid(pair.port.context.get(), pair.port.number, index, &attr.ah_attr.grh.dgid),
        "ibv_query_gid");
  }});
  pair.receive();
  pair.receive();
  pair.send();
  wait(pair.sent.get());
  if (wrong)
    change(pair.port, "del", address);
  pair.send();
  const ibv_wc second = next(pair.sent.get());
  if (!wrong) {
    check_wc(second, "the SEND");
    change(pair.port, "del", address);
  }
});

const Add wrong_state("wrong-state", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options, {.connected = !wrong});
  ibv_sge what = pair.at(0, 8);
  ibv_send_wr request{.sg_list = &what, .num_sge = 1, .opcode = IBV_WR_SEND};
  ibv_send_wr *bad = nullptr;
  if (!wrong)
    pair.receive();
  request.send_flags = IBV_SEND_SIGNALED;
  if (!ibv_post_send(pair.a.get(), &request, &bad) && !wrong)
    next(pair.sent.get());
});

const Add missing_attribute("missing-attribute", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options, {.connected = false});
  ibv_qp_attr attr{.qp_state = IBV_QPS_INIT, .port_num = pair.port.number};
  const int mask = IBV_QP_STATE | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
  (void)ibv_modify_qp(pair.a.get(), &attr, wrong ? mask : mask | IBV_QP_PKEY_INDEX);
});

const Add no_rd_atomic("no-rd-atomic", [](const DeviceOptions &options, bool wrong) {
  const unsigned access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
  Pair pair(options, {.access = access,
                      .qp_access = IBV_ACCESS_REMOTE_READ,
                      .to_rts = [&](bool, ibv_qp_attr &attr) { attr.max_rd_atomic = !wrong; }});
  pair.write(pair.mr->rkey, reinterpret_cast<std::uintptr_t>(pair.buffer.get()) + page,
             IBV_WR_RDMA_READ);
  if (!wrong)
    wait(pair.sent.get());
});

// The peer sends before there is a receive, and its attempts are soon used up.
const Add late_receive("late-receive", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options, {.connected = false});
  pair.connect({.to_rtr = [&](bool first, ibv_qp_attr &attr) {
    attr.min_rnr_timer = 1; // 0.01 ms
    if (!first && !wrong)
      pair.receive(); // b is in INIT
  }});
  pair.send();
  next(pair.sent.get());
  if (wrong)
    pair.receive();
});

const Add no_timeout("no-timeout", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options, {.to_rts = [&](bool, ibv_qp_attr &attr) { attr.timeout = wrong ? 0 : 10; }});
});

const Add no_retry("no-retry", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options, {.to_rts = [&](bool, ibv_qp_attr &attr) { attr.retry_cnt = wrong ? 0 : 3; }});
});

// Each message of the wrong program comes before its receive. No event tells that the device has
// refused it, so the program goes on until one has taken long.
const Add rnr_long("rnr-long", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options, {.to_rtr =
                          [&](bool, ibv_qp_attr &attr) {
                            attr.min_rnr_timer = wrong ? 0 : 12; // 655.36 ms, 0.64 ms
                          },
                      .to_rts = [](bool, ibv_qp_attr &attr) { attr.rnr_retry = 6; }});
  const auto took = [&] {
    const auto began = std::chrono::steady_clock::now();
    if (!wrong)
      pair.receive();
    pair.send();
    if (wrong) {
      std::this_thread::sleep_for(20ms);
      pair.receive();
    }
    wait(pair.sent.get());
    wait(pair.received.get());
    return std::chrono::steady_clock::now() - began;
  };
  while (took() < 500ms && wrong)
    ;
});

const Add one_read("one-read", [](const DeviceOptions &options, bool wrong) {
  const std::uint8_t most = wrong ? 1 : 2;
  Pair pair(options, {.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ,
                      .qp_access = IBV_ACCESS_REMOTE_READ,
                      .to_rtr = [&](bool, ibv_qp_attr &attr) { attr.max_dest_rd_atomic = most; },
                      .to_rts = [&](bool, ibv_qp_attr &attr) { attr.max_rd_atomic = most; }});
  for (int i = 0; i < 2; ++i)
    pair.write(pair.mr->rkey, reinterpret_cast<std::uintptr_t>(pair.buffer.get()) + page,
               IBV_WR_RDMA_READ);
  for (int i = 0; i < 2; ++i)
    wait(pair.sent.get());
});

const Add rnr_forever("rnr-forever", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options, {.to_rts = [&](bool, ibv_qp_attr &attr) { attr.rnr_retry = wrong ? 7 : 6; }});
});

const Add psn_differs("psn-differs", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options, {.to_rtr = [&](bool first, ibv_qp_attr &attr) {
              attr.rq_psn = wrong && first ? 8 : 7;
            }});
});

const Add mtu_differs("mtu-differs", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options, {.to_rtr = [&](bool first, ibv_qp_attr &attr) {
              attr.path_mtu = wrong && first ? IBV_MTU_256 : IBV_MTU_512;
            }});
});

const Add depth_differs("depth-differs", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options, {.to_rts = [&](bool first, ibv_qp_attr &attr) {
              attr.max_rd_atomic = wrong && first ? 4 : 1;
            }});
});

const Add access_unused("access-unused", [](const DeviceOptions &options, bool wrong) {
  const unsigned used = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
  Pair pair(options, {.access = used | (wrong ? unsigned{IBV_ACCESS_REMOTE_READ} : 0u),
                      .qp_access = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ});
  pair.write(pair.mr->rkey, reinterpret_cast<std::uintptr_t>(pair.buffer.get()) + page);
  wait(pair.sent.get());
});

const Add access_mismatch("access-mismatch", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options, {.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
                      .qp_access = wrong ? 0u : unsigned{IBV_ACCESS_REMOTE_WRITE}});
  pair.write(pair.mr->rkey, reinterpret_cast<std::uintptr_t>(pair.buffer.get()) + page);
  next(pair.sent.get());
});

// The bind goes to one queue pair, the key through another.
const Add rkey_early("rkey-early", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options, {.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND});
  Pair other(options);
  const unique_mw mw(check_ptr(ibv_alloc_mw(pair.pd.get(), IBV_MW_TYPE_2), "ibv_alloc_mw"));
  const std::uint32_t key = ibv_inc_rkey(mw->rkey);
  ibv_send_wr bind{.wr_id = 9, .opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED};
  bind.bind_mw = {.mw = mw.get(),
                  .rkey = key,
                  .bind_info = {.mr = pair.mr.get(),
                                .addr = reinterpret_cast<std::uintptr_t>(pair.buffer.get()),
                                .length = page,
                                .mw_access_flags = IBV_ACCESS_REMOTE_READ}};
  post_send(pair.a.get(), bind);
  if (!wrong)
    wait(pair.sent.get());
  other.receive();
  std::memcpy(other.buffer.get() + 4, &key, sizeof key);
  other.send();
  wait(other.sent.get());
  if (wrong)
    wait(pair.sent.get());
});

// ---- completions with an error

// The mistake is not in these programs: the test injects the status.
void send_and_look(const DeviceOptions &options, bool) {
  Pair pair(options);
  pair.receive();
  pair.send();
  next(pair.sent.get());
}
const Add local_protection("local-protection", send_and_look);
const Add local_operation("local-operation", send_and_look);

const Add remote_access("remote-access", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options, {.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
                      .qp_access = IBV_ACCESS_REMOTE_WRITE});
  pair.write(pair.mr->rkey ^ (wrong ? 0x5500 : 0),
             reinterpret_cast<std::uintptr_t>(pair.buffer.get()) + page);
  next(pair.sent.get());
});

const Add remote_request("remote-request", [](const DeviceOptions &options, bool wrong) {
  const unsigned access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
  Pair pair(options,
            {.access = access, .qp_access = wrong ? 0u : unsigned{IBV_ACCESS_REMOTE_READ}});
  pair.write(pair.mr->rkey, reinterpret_cast<std::uintptr_t>(pair.buffer.get()) + page,
             IBV_WR_RDMA_READ);
  next(pair.sent.get());
});

const Add remote_operation("remote-operation", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options);
  pair.receive(page, wrong ? 32 : 64);
  pair.send();
  next(pair.sent.get());
});

const Add retry_exceeded("retry-exceeded", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options);
  pair.receive();
  if (wrong)
    pair.b.reset();
  pair.send();
  next(pair.sent.get());
});

const Add rnr_exceeded("rnr-exceeded", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options);
  if (!wrong)
    pair.receive();
  pair.send();
  next(pair.sent.get());
});

// A window of a region that does not allow windows.
const Add window_bind("window-bind", [](const DeviceOptions &options, bool wrong) {
  Pair pair(options,
            {.access = IBV_ACCESS_LOCAL_WRITE | (wrong ? 0u : unsigned{IBV_ACCESS_MW_BIND})});
  const unique_mw mw(check_ptr(ibv_alloc_mw(pair.pd.get(), IBV_MW_TYPE_2), "ibv_alloc_mw"));
  ibv_send_wr bind{.opcode = IBV_WR_BIND_MW, .send_flags = IBV_SEND_SIGNALED};
  bind.bind_mw = {.mw = mw.get(),
                  .rkey = ibv_inc_rkey(mw->rkey),
                  .bind_info = {.mr = pair.mr.get(),
                                .addr = reinterpret_cast<std::uintptr_t>(pair.buffer.get()),
                                .length = page,
                                .mw_access_flags = IBV_ACCESS_REMOTE_READ}};
  post_send(pair.a.get(), bind);
  next(pair.sent.get());
});

} // namespace
} // namespace cases
