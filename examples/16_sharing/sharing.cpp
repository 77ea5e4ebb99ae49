// SPDX-License-Identifier: MIT
// 16_sharing: three ways for processes to share RDMA resources, or what lies behind them.
//
// Lesson:  lessons/16_sharing.md
// Needs:   an RDMA device (./lab doctor says where yours comes from); to import one that can:
//          SoftRoCE cannot
// Run:     ./lab run 16_sharing
//          ./lab run 16_sharing -- --way one-owner
// By hand: sharing --serve NAME     the owner; two of the workers are its children
//          sharing --attach NAME    a third worker, which has nothing to do with it

#include "slots.hpp"
#include "exported.hpp"
#include "fd_passing.hpp"
#include "loopback_qp.hpp"
#include "workers.hpp"

#include <rdmacommon/check.hpp>
#include <rdmacommon/objects.hpp>
#include <rdmacommon/options.hpp>
#include <rdmacommon/processes.hpp>

#include <infiniband/verbs.h>

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <deque>
#include <memory>
#include <string>
#include <vector>

using namespace rdmacommon;

namespace {

constexpr unsigned worker_count = 3, requests = 2; // each worker makes so many requests
constexpr const char *cannot = "this device cannot import";

struct Settings {
  const DeviceOptions &device;
  std::string serve, attach, way = "all";
  Limit limit{};
};

// [unrelated]
// For a Child: this program again, in a process that shares nothing with us but the name of a
// socket.
auto unrelated(const std::string &name, const Settings &from, const char *way) {
  return [&, way](const Link &) {
    execl("/proc/self/exe", "sharing", "--attach", name.c_str(), "--way", way, "--device",
          from.device.device.c_str(), nullptr);
    throw_errno(errno, "execl");
  };
}
// [unrelated]

std::string own_name() {
  return "rdma-by-example-" + std::to_string(getpid());
}

// ---- 1: export and import

// [export]
void serve_export(const Settings &settings) {
  const std::string name = own_name();
  const Link listener = listen_as(name);
  Child importer(unrelated(name, settings, "export"));
  const File memory = make_memory();
  const MappedSlots shared(memory.get());
  put(shared->slots[0].request, "hello from imported memory");
  const Port port = open_port(settings.device);
  const unique_pd pd = alloc_pd(port.context.get());
  const int access = IBV_ACCESS_LOCAL_WRITE;
  const unique_mr mr = reg_mr(pd.get(), &*shared, sizeof(Slots), access);

  if (!listener.can_receive(settings.limit))
    throw Error("the other process", "it has not come");
  const Link link = accept_if_us(listener);
  const Exported what{pd->handle, mr->handle, reinterpret_cast<uintptr_t>(&*shared)};
  const std::array files{port.context->cmd_fd, memory.get()};
  send_with_files(link, to_line(what), files);
  std::printf("export:      the other process has %s\n", link.receive(settings.limit).c_str());
  const std::string result = link.receive(settings.limit);
  importer.wait(settings.limit);
  if (result.starts_with(cannot) && settings.way == "export")
    throw Unsupported(result);
  std::printf("             %s\n", result.c_str());
}
// [export]

// [import]
std::string import_and_send(const Settings &settings, File &command, const Exported &what) {
  const unique_context context(ibv_import_device(command.get()));
  if (!context)
    return std::string(cannot).append(": ibv_import_device says ").append(strerrorname_np(errno));
  command.release(); // ibv_close_device closes it
  // Not ibv_dealloc_pd and ibv_dereg_mr: those would destroy the owner's objects.
  const std::unique_ptr<ibv_pd, decltype(&ibv_unimport_pd)> pd(
      check_ptr(ibv_import_pd(context.get(), what.pd), "ibv_import_pd"), ibv_unimport_pd);
  const std::unique_ptr<ibv_mr, decltype(&ibv_unimport_mr)> mr(
      check_ptr(ibv_import_mr(pd.get(), what.mr), "ibv_import_mr"), ibv_unimport_mr);
  // CQ and QP are our own: they have state, and belong to one process.
  const unique_cq cq = create_cq(context.get(), 2);
  const unique_qp qp =
      create_rc_qp(pd.get(), cq.get(),
                   {.max_send_wr = 1, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1});
  const Port port = open_port(settings.device); // for its number and GID
  connect_to_itself(qp.get(), port);
  const uint64_t slot = what.address + offsetof(Slots, slots);
  ibv_sge from{slot + offsetof(Slot, request), text_size, mr->lkey};
  ibv_sge into{slot + offsetof(Slot, reply), text_size, mr->lkey};
  post_recv(qp.get(), {.sg_list = &into, .num_sge = 1});
  post_send(qp.get(), {.sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND});
  wait_for_completion(cq.get(), "the message", std::chrono::seconds(5));
  return "imported, and sent: ";
}

void attach_import(const Settings &settings) {
  const Link owner = attach_to(settings.attach);
  std::vector<File> files;
  const Exported what = parse_exported(receive_with_files(owner, files, 2, settings.limit));
  const MappedSlots shared(files[1].get());
  owner.send(device_of(files[0]) + " and " + std::to_string(sizeof(Slots)) + " bytes of memory");
  const std::string result = import_and_send(settings, files[0], what);
  owner.send(result + get(shared->slots[0].reply));
}
// [import]

// ---- 2: created before the fork

// [before-fork]
void before_fork(const Settings &settings) {
  const MappedSlots shared(make_memory().get()); // shared; the mapping keeps it
  Slot &slot = shared->slots[0];
  const LoopbackQp rdma(settings.device, &*shared, sizeof(Slots));
  ibv_sge room = piece(rdma.mr.get(), &slot.reply, text_size);
  post_recv(rdma.qp.get(), {.sg_list = &room, .num_sge = 1});
  Child child([&](const Link &owner) {
    put(slot.request, "hello from the child");
    // The keys of a region are numbers, and as good here as there. Posting is for the owner.
    const ibv_sge what = piece(rdma.mr.get(), &slot.request, text_size);
    owner.send(std::string(reinterpret_cast<const char *>(&what), sizeof what));
    owner.receive(settings.limit);
    owner.send("the child reads \"" + get(slot.reply) + '"');
  });
  ibv_sge what{};
  child.link().receive(settings.limit).copy(reinterpret_cast<char *>(&what), sizeof what);
  post_send(rdma.qp.get(), {.sg_list = &what, .num_sge = 1, .opcode = IBV_WR_SEND});
  rdma.wait_for_message(settings.limit);
  child.link().send("it has arrived");
  const std::string seen = child.link().receive(settings.limit);
  if (seen != "the child reads \"hello from the child\"")
    throw Error("before-fork", seen);
  std::printf("before-fork: the child named the memory, its parent sent it, %s\n", seen.c_str());
}
// [before-fork]

// ---- 3: one owner

// [worker]
// Asks for `count` things. Knows nothing of RDMA: a slot, and a link to the owner.
void work(const Link &owner, Slot &slot, const std::string &who, unsigned count, Limit limit) {
  for (unsigned i = 0; i < count; ++i) {
    put(slot.request, "request " + std::to_string(i) + " of " + who);
    slot.length.store(text_size, std::memory_order_release);
    owner.send("ready");
    if (owner.receive(4 * limit) != "done") // the owner may be busy with the others
      throw Error("the owner", "it has refused the request");
  }
  owner.send("received \"" + get(slot.reply) + '"');
}

void attach_worker(const Settings &settings) {
  const Link owner = attach_to(settings.attach);
  std::vector<File> files;
  const unsigned slot = static_cast<unsigned>(
      parse_numbers<1>(receive_with_files(owner, files, 1, settings.limit), slot_count - 1)[0]);
  const MappedSlots shared(files[0].get());
  if (shared->version != slots_version)
    throw Error("the slots", "they are of another version");
  work(owner, shared->slots[slot], "an unrelated process", requests, settings.limit);
}
// [worker]

// [serve]
// Sends what is ready in the worker's slot. What a worker says is checked, and it can say only
// "ready": which slot that means is up to the owner.
void serve(const LoopbackQp &rdma, const Slots &shared, Worker &worker, const Settings &settings) {
  const std::string said = worker.link->receive(settings.limit);
  if (said != "ready") { // it is finished
    const bool printable =
        std::all_of(said.begin(), said.end(), [](char c) { return c >= ' ' && c <= '~'; });
    worker.last = printable && said.starts_with("received ") ? said : "says what it must not";
    return;
  }
  const Slot &slot = shared.slots[worker.slot];
  const uint32_t length = slot.length.load(std::memory_order_acquire); // once: it may change
  if (length == 0 || length > text_size || ++worker.asked > requests) {
    worker.last = "was refused: request " + std::to_string(worker.asked) + ", of " +
                  std::to_string(length) + " bytes";
    worker.link->send("refused");
    return;
  }
  ibv_sge from = piece(rdma.mr.get(), &slot.request, length);
  ibv_sge into = piece(rdma.mr.get(), &slot.reply, text_size);
  post_recv(rdma.qp.get(), {.sg_list = &into, .num_sge = 1});
  // An echo. Signaled: the places of unsignaled requests are free only when a later one completes.
  post_send(
      rdma.qp.get(),
      {.sg_list = &from, .num_sge = 1, .opcode = IBV_WR_SEND, .send_flags = IBV_SEND_SIGNALED});
  for (int completions = 0; completions < 2; ++completions) // the SEND's, and the receive's
    rdma.wait_for_message(settings.limit);
  worker.link->send("done");
}
// [serve]

void one_owner(const Settings &settings) {
  const std::string name = settings.serve.empty() ? own_name() : settings.serve;
  const Link listener = listen_as(name);
  const File memory = make_memory();
  const MappedSlots shared(memory.get());
  shared->version = slots_version;
  // First the processes, then the device: they have nothing of it, and cannot do it any harm.
  std::deque<Child> children;
  for (unsigned i = 0; i + 1 < worker_count; ++i)
    children.emplace_back([&](const Link &owner) {
      work(owner, shared->slots[i], "a child", requests, settings.limit);
    });
  if (settings.serve.empty())
    children.emplace_back(unrelated(name, settings, "one-owner"));
  else
    std::printf("serving as %s\n", name.c_str());
  const LoopbackQp rdma(settings.device, &*shared, sizeof(Slots));

  Link stranger; // nobody yet; the children do not wait for it
  std::vector<Worker> workers;
  for (unsigned i = 0; i < worker_count; ++i)
    workers.push_back({i + 1 < worker_count ? &children[i].link() : &stranger, i, ""});
  const auto limit = [&] { // with a reader who starts the other one by hand
    return stranger.fd() < 0 && !settings.serve.empty() ? 12 * settings.limit : settings.limit;
  };
  // [loop]
  for (Worker *next; (next = next_to_speak(workers, listener, limit())) != nullptr;)
    try {
      if (next->link->fd() >= 0) {
        serve(rdma, *shared, *next, settings);
      } else if (stranger = accept_if_us(listener); stranger.fd() >= 0) {
        send_with_files(stranger, std::to_string(worker_count - 1), std::array{memory.get()});
      }
    } catch (const Error &gone) { // one worker's end is not the others'
      next->last = gone.what();
    }
  // [loop]
  for (const Worker &worker : workers)
    std::printf("one-owner:   worker %u %s\n", worker.slot, worker.last.c_str());
}

void sharing(int argc, char **argv) {
  CommandLine line{"Three ways for processes to share RDMA resources."};
  DeviceOptions options{line};
  Settings settings{options};
  std::chrono::seconds limit{5};
  line.add("--way", settings.way, "which one [all]", {"all", "export", "before-fork", "one-owner"});
  line.add("--serve", settings.serve,
           "one-owner: let a worker attach by this name, instead of starting one");
  line.add("--attach", settings.attach, "be that worker (with --way export: the importer)");
  line.add("--timeout", limit, "how long a step may take");
  line.parse(argc, argv);
  settings.limit = limit;

  if (!settings.attach.empty())
    return settings.way == "export" ? attach_import(settings) : attach_worker(settings);
  if (!settings.serve.empty())
    return one_owner(settings);
  if (settings.way == "all" || settings.way == "export")
    serve_export(settings);
  if (settings.way == "all" || settings.way == "before-fork")
    before_fork(settings);
  if (settings.way == "all" || settings.way == "one-owner")
    one_owner(settings);
}

} // namespace

int main(int argc, char **argv) {
  return run_main(argc, argv, sharing);
}
